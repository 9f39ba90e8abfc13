//! Why a call failed, kept for the thread that made it.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char};

use gantry_types::error::{Failure, Kind};

/// What a thread is told that has had no error yet. A tool of the reference's may look for it.
pub const NO_FAULT: &str = "Unknown CTI error";

const NO_FAULT_C: &CStr = c"Unknown CTI error";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    text: String,
}

impl Fault {
    /// A fault of that kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// What was asked makes no sense.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    /// The fault that an error of a library is, with all its causes and what can be done about it.
    pub fn of(kind: Kind, error: &dyn Error, hint: Option<&str>) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let said = error.to_string();
            // Some errors say their cause themselves.
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        if let Some(hint) = hint {
            text = format!("{text} ({hint})");
        }
        Self { kind, text }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it says.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let text = match failure.hint() {
            Some(hint) => format!("{} ({hint})", failure.message()),
            None => failure.message().to_owned(),
        };
        Self { kind: failure.kind(), text }
    }
}

thread_local! {
    static LAST: RefCell<Option<(CString, Kind)>> = const { RefCell::new(None) };
}

/// Keeps a fault as the last one of this thread.
pub fn keep(function: &str, fault: &Fault) {
    let mut bytes = format!("{function}: {}", fault.text).into_bytes();
    bytes.retain(|byte| *byte != 0);
    let kept = CString::new(bytes).unwrap_or_default();
    // A thread that ends, and calls us from there, has no place for it any more.
    LAST.try_with(|last| *last.borrow_mut() = Some((kept, fault.kind))).unwrap_or_default();
}

/// The last fault of this thread: its text, and its kind if there was one.
#[must_use]
pub fn last() -> (String, Option<Kind>) {
    let found = LAST.try_with(|last| {
        last.borrow().as_ref().map(|(text, kind)| (text.to_string_lossy().into_owned(), *kind))
    });
    match found {
        Ok(Some((text, kind))) => (text, Some(kind)),
        _ => (NO_FAULT.to_owned(), None),
    }
}

/// The last fault of this thread as C has it. It stays as it is until the thread's next fault, or its end.
#[must_use]
pub fn last_text() -> *const c_char {
    let found = LAST.try_with(|last| last.borrow().as_ref().map(|(text, _)| text.as_ptr()));
    found.ok().flatten().unwrap_or(NO_FAULT_C.as_ptr())
}

/// A number for the kind of this thread's last fault: the values of `gantry_error_kind_t`. 0: there was none.
#[must_use]
pub fn last_kind() -> i32 {
    last().1.map_or(0, number_of)
}

/// The number of a kind among the values of `gantry_error_kind_t`.
#[must_use]
pub fn number_of(kind: Kind) -> i32 {
    match kind {
        Kind::NotFound => 1,
        Kind::NoAccess => 2,
        Kind::TimedOut => 3,
        Kind::LauncherFailed => 4,
        Kind::Unsupported => 5,
        Kind::Invalid => 6,
        Kind::Protocol => 7,
        Kind::Lost => 8,
        Kind::Gone => 9,
        Kind::System => 11,
        Kind::Internal => 12,
        _ => 10,
    }
}

/// Copies this thread's last fault into a buffer, cut where it does not fit. False: there is no room even for the end of a string.
///
/// # Safety
/// `buffer` is null or leads to `size` bytes that may be written.
#[must_use]
pub unsafe fn copy_last(buffer: *mut c_char, size: usize) -> bool {
    if buffer.is_null() || size == 0 {
        return false;
    }
    let (text, _) = last();
    let count = text.len().min(size - 1);
    // SAFETY: `count` is below `size`, which the caller vouches for; a string of ours does not overlap what the caller may write.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, count) };
    // SAFETY: as above.
    let end = unsafe { buffer.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    true
}
