//! Memory for C, from `malloc`, so that C may `free` it where the header says so.
//!
//! Structures with a free function of their own are tracked by address and type. A program that frees one twice, with
//! the wrong function, or frees a foreign pointer, gets an error instead of corrupted memory.

use std::collections::HashSet;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_types::error::Kind;

use crate::fault::Fault;
use gantry_shared::per_process::PerProcess;

/// Addresses of one type's structures that this process has given to C. A forked child's list does not contain its
/// parent's.
#[derive(Debug, Default)]
pub struct Given<T> {
    addresses: PerProcess<Mutex<HashSet<usize>>>,
    of: PhantomData<fn(T)>,
}

impl<T> Given<T> {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { addresses: PerProcess::new(), of: PhantomData }
    }

    /// Adds a structure to the list.
    pub fn note(&self, structure: *mut T) -> *mut T {
        self.addresses().insert(structure.addr());
        structure
    }

    /// Removes a structure from the list, because it is being freed.
    ///
    /// # Errors
    /// It is not on the list.
    pub fn take_back(&self, structure: *mut T) -> Result<(), Fault> {
        match self.addresses().remove(&structure.addr()) {
            true => Ok(()),
            false => Err(Fault::invalid(
                "nothing was freed: the pointer was freed before, is not gantry's, or belongs to another free function",
            )),
        }
    }

    fn addresses(&self) -> MutexGuard<'static, HashSet<usize>> {
        self.addresses.get().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory for `count` values, all zero. Not null even for 0 values.
///
/// # Errors
/// The memory is exhausted.
pub fn allocate<T>(count: usize) -> Result<*mut T, Fault> {
    // SAFETY: calloc takes any numbers.
    let memory = unsafe { libc::calloc(count.max(1), size_of::<T>().max(1)) };
    if memory.is_null() {
        return Err(Fault::new(Kind::System, "no memory left"));
    }
    Ok(memory.cast())
}

/// Frees memory of [`allocate`]; null is allowed.
///
/// # Safety
/// It is null, or came from `malloc` and was not freed yet.
pub unsafe fn release<T>(memory: *mut T) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::free(memory.cast()) };
}

/// A string for C.
///
/// # Errors
/// The text contains a NUL, or the memory is exhausted.
pub fn string(text: &[u8]) -> Result<*mut c_char, Fault> {
    if text.contains(&0) {
        return Err(Fault::new(
            Kind::Protocol,
            format!("'{}' has a NUL in it", String::from_utf8_lossy(text)),
        ));
    }
    let memory = allocate::<c_char>(text.len() + 1)?;
    // SAFETY: there is room for the text and one more byte, which is zero; it is fresh memory.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), memory, text.len()) };
    Ok(memory)
}

/// An array for C with these values, and `room` more that are zero.
///
/// # Errors
/// There is no memory left.
pub fn array<T: Copy>(values: &[T], room: usize) -> Result<*mut T, Fault> {
    let memory = allocate::<T>(values.len() + room)?;
    // SAFETY: there is room for all of them; it is fresh memory.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory, values.len()) };
    Ok(memory)
}

/// A list of strings for C, terminated by a null. On failure, all strings that were allocated are freed.
///
/// # Errors
/// As [`string`].
pub fn strings<S: AsRef<[u8]>>(texts: &[S]) -> Result<*mut *mut c_char, Fault> {
    let mut made = Vec::with_capacity(texts.len());
    for text in texts {
        match string(text.as_ref()) {
            Ok(text) => made.push(text),
            Err(fault) => {
                // SAFETY: they were allocated here, and these are the only pointers to them.
                made.into_iter().for_each(|text| unsafe { release(text) });
                return Err(fault);
            }
        }
    }
    array(&made, 1)
}

/// Frees a list of [`strings`]; null is allowed.
///
/// # Safety
/// It is null, or a list of [`strings`] of which nothing was freed yet.
pub unsafe fn release_strings(list: *mut *mut c_char) {
    if list.is_null() {
        return;
    }
    let mut at = list;
    loop {
        // SAFETY: no entry before this one was null, so this one is in the list.
        let text = unsafe { at.read() };
        if text.is_null() {
            break;
        }
        // SAFETY: guaranteed by the caller.
        unsafe { release(text) };
        // SAFETY: this entry was not null, so another one follows.
        at = unsafe { at.add(1) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { release(list) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_form_that_c_expects() {
        let list = strings(&["a", "", "bc"]).expect("memory");
        // SAFETY: made above, and not freed yet.
        let found = unsafe { crate::text::list(list.cast_const().cast()) }.expect("a list");
        assert_eq!(found, ["a", "", "bc"]);
        // SAFETY: made above.
        unsafe { release_strings(list) };
        assert!(strings(&["a", "b\0"]).is_err());
    }

    #[test]
    fn a_second_free_is_refused() {
        static GIVEN: Given<u64> = Given::new();
        let one = GIVEN.note(allocate::<u64>(1).expect("memory"));
        GIVEN.take_back(one).expect("once");
        // SAFETY: made above.
        unsafe { release(one) };
        assert!(GIVEN.take_back(one).is_err());
        let mut mine = 3_u64;
        assert!(GIVEN.take_back(&raw mut mine).is_err());
    }
}
