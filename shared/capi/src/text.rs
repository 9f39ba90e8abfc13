//! Strings and lists of strings from C. They are bytes: a path need not be UTF-8.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

use crate::fault::Fault;

/// The most strings of one list: more than any kernel accepts as arguments. A list without its terminating null is
/// noticed here at the latest.
const MAX_STRINGS: usize = 1 << 20;

/// The string at `text`. None: it is null.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that does not change during the call.
#[must_use]
pub unsafe fn optional<'a>(text: *const c_char) -> Option<&'a OsStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: it is not null; the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    Some(OsStr::from_bytes(text.to_bytes()))
}

/// The string at `text`; `what` names it in an error.
///
/// # Errors
/// It is null.
///
/// # Safety
/// As [`optional`].
pub unsafe fn required<'a>(text: *const c_char, what: &str) -> Result<&'a OsStr, Fault> {
    // SAFETY: guaranteed by the caller.
    let found = unsafe { optional(text) };
    found.ok_or_else(|| Fault::invalid(format!("{what} is NULL")))
}

/// As [`required`], for a name rather than a path.
///
/// # Errors
/// It is null, or not UTF-8.
///
/// # Safety
/// As [`optional`].
pub unsafe fn required_name<'a>(text: *const c_char, what: &str) -> Result<&'a str, Fault> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { required(text, what) }?;
    text.to_str().ok_or_else(|| Fault::invalid(format!("{what} is not UTF-8: {}", text.to_string_lossy())))
}

/// The strings of a null-terminated list; none if the list itself is null.
///
/// # Errors
/// There are too many for a list.
///
/// # Safety
/// `list` is null or points to pointers up to a null one, each as [`optional`] requires.
pub unsafe fn list<'a>(list: *const *const c_char) -> Result<Vec<&'a OsStr>, Fault> {
    let mut found = Vec::new();
    if list.is_null() {
        return Ok(found);
    }
    for at in 0..MAX_STRINGS {
        // SAFETY: every entry before this one was not null, so this one is in the list.
        let entry = unsafe { list.add(at) };
        // SAFETY: as above.
        let text = unsafe { entry.read() };
        // SAFETY: guaranteed by the caller for every entry.
        match unsafe { optional(text) } {
            Some(text) => found.push(text),
            None => return Ok(found),
        }
    }
    Err(Fault::invalid(format!("a list of strings has no NULL among its first {MAX_STRINGS} entries")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_lists() {
        let texts = [c"a".as_ptr(), c"\xff".as_ptr(), std::ptr::null()];
        // SAFETY: literals and an array that ends with a null.
        let found = unsafe { list(texts.as_ptr()) }.expect("a list");
        assert_eq!(found, [OsStr::from_bytes(b"a"), OsStr::from_bytes(b"\xff")]);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { list(std::ptr::null()) }.expect("a list"), Vec::<&OsStr>::new());
        // SAFETY: null is allowed.
        let fault = unsafe { required(std::ptr::null(), "the path") }.expect_err("null");
        assert_eq!(fault.text(), "the path is NULL");
        // SAFETY: a literal.
        assert!(unsafe { required_name(c"\xff".as_ptr(), "the id") }.is_err());
    }
}
