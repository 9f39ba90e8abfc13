//! The error of a failed call, stored for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_types::error::{Failure, Kind};

use crate::texts::Texts;
use gantry_shared::per_process::PerProcess;

/// The text for a thread without an error so far. Tools for the reference interface may look for it.
pub const NO_FAULT: &str = "Unknown CTI error";

const NO_FAULT_C: &CStr = c"Unknown CTI error";

/// The error of a failed call.
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

    /// The request is not valid.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, text)
    }

    /// Converts an error of a library, with all its causes and its remedy.
    pub fn of(kind: Kind, error: &dyn Error, hint: Option<&str>) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let said = error.to_string();
            // Some errors include the text of their cause.
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

    /// A panic, which is a bug.
    #[must_use]
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        Self::new(Kind::Internal, format!("a bug in gantry itself: {words}"))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its text.
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
    static LAST: RefCell<Option<(Arc<CStr>, Kind)>> = const { RefCell::new(None) };
}

/// The texts that C has got.
static GIVEN: PerProcess<Mutex<Texts>> = PerProcess::new();

/// Stores a fault as this thread's last one.
pub fn keep(function: &str, fault: &Fault) {
    let mut bytes = format!("{function}: {}", fault.text).into_bytes();
    bytes.retain(|byte| *byte != 0);
    let kept = Arc::from(CString::new(bytes).unwrap_or_default());
    // A thread that is ending has no thread-local storage any more.
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

/// This thread's last fault as a C string. It stays valid until this process has got a thousand other texts, also
/// after the thread's end.
#[must_use]
pub fn last_text() -> *const c_char {
    let given = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let (text, _) = last.as_mut()?;
        *text = GIVEN.get().lock().unwrap_or_else(PoisonError::into_inner).keep(text);
        Some(text.as_ptr())
    });
    given.ok().flatten().unwrap_or(NO_FAULT_C.as_ptr())
}

/// The kind of this thread's last fault, as a value of `gantry_error_kind_t`. 0: there was none.
#[must_use]
pub fn last_kind() -> i32 {
    last().1.map_or(0, number_of)
}

/// The value of a kind in `gantry_error_kind_t`.
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

/// Copies this thread's last fault into a buffer, cut to its size. False: there is no room even for the terminating
/// NUL.
///
/// # Safety
/// `buffer` is null or points to `size` writable bytes.
#[must_use]
pub unsafe fn copy_last(buffer: *mut c_char, size: usize) -> bool {
    if buffer.is_null() || size == 0 {
        return false;
    }
    let (text, _) = last();
    let count = text.len().min(size - 1);
    // SAFETY: `count` is below `size`, which the caller guarantees; a string of this library does not overlap the
    // caller's buffer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, count) };
    // SAFETY: as above.
    let end = unsafe { buffer.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    true
}
