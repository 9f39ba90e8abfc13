//! The targets of C's pointers.

use std::ffi::{CStr, c_char, c_int, c_void};

use gantry_wlm::pbs::tm::Code;

/// A place of the caller's, to be written once the request has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<T>(*mut T);

// SAFETY: a place is only written while the lock on the session is held, by whichever thread polls; the caller keeps it alive until then.
unsafe impl<T> Send for Place<T> {}

impl<T> Place<T> {
    /// A place that the caller must give.
    pub(crate) fn new(pointer: *mut T) -> Result<Self, Code> {
        if pointer.is_null() { Err(Code::BAD_ENVIRONMENT) } else { Ok(Self(pointer)) }
    }

    pub(crate) fn write(self, value: T) {
        // SAFETY: not null; the caller of the C function vouches for the rest: it is writable and of that type until the request has ended.
        unsafe { self.0.write(value) };
    }

    /// Writes as many as fit into `size` places.
    pub(crate) fn write_some(self, values: &[T], size: c_int)
    where
        T: Copy,
    {
        let count = values.len().min(usize::try_from(size).unwrap_or(0));
        // SAFETY: the caller guarantees `size` places, and no more are written; the ranges do not overlap, as the values
        // are this library's.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, count) };
    }
}

/// A string of the caller's; none for a null pointer.
pub(crate) fn text(pointer: *const c_char) -> Option<Vec<u8>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null; the caller vouches for a zero at its end.
    Some(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

/// `count` strings of the caller's; none where one of them is null.
pub(crate) fn texts(pointer: *const *mut c_char, count: c_int) -> Option<Vec<Vec<u8>>> {
    let count = usize::try_from(count).ok()?;
    if pointer.is_null() {
        return None;
    }
    (0..count).map(|index| text(entry(pointer, index))).collect()
}

/// Strings of the caller's up to a null pointer.
pub(crate) fn texts_to_null(pointer: *const *mut c_char) -> Vec<Vec<u8>> {
    if pointer.is_null() {
        return Vec::new();
    }
    (0..).map_while(|index| text(entry(pointer, index))).collect()
}

fn entry(pointer: *const *mut c_char, index: usize) -> *const c_char {
    // SAFETY: within the list: the caller has given its length, or its null pointer has not been reached yet.
    let place = unsafe { pointer.add(index) };
    // SAFETY: as above, and the caller vouches that it is a list of pointers.
    unsafe { place.read() }
}

/// `count` bytes of the caller's.
pub(crate) fn bytes(pointer: *const c_void, count: c_int) -> Result<Vec<u8>, Code> {
    let count = usize::try_from(count).map_err(|_| Code::BAD_ENVIRONMENT)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    if pointer.is_null() {
        return Err(Code::BAD_ENVIRONMENT);
    }
    // SAFETY: not null; the caller vouches for that many bytes.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), count) }.to_vec())
}

/// A copy in memory that C's `free` takes.
pub(crate) fn for_free(values: &[c_int]) -> Result<*mut c_int, Code> {
    // An empty list is a pointer all the same.
    // SAFETY: calloc takes two numbers and touches no memory of ours.
    let memory = unsafe { libc::calloc(values.len().max(1), size_of::<c_int>()) }.cast::<c_int>();
    let place = Place::new(memory).map_err(|_| Code::SYSTEM)?;
    place.write_some(values, c_int::try_from(values.len()).map_err(|_| Code::SYSTEM)?);
    Ok(memory)
}
