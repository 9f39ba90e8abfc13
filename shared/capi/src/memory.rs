//! What is given to C: memory of `malloc`, so that C may `free` it where the header says so.
//!
//! Structures that have a function of their own to free them are kept count of, by address and by type. A program that frees one twice, frees it with the
//! function of another structure, or frees what is not ours, gets an error instead of broken memory.

use std::collections::HashSet;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gantry_types::error::Kind;

use crate::fault::Fault;
use crate::own::PerProcess;

/// Addresses of the structures of one type that this process has given to C. What a forked child has of its parent's is not on its list.
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

    /// Notes a structure that is given away.
    pub fn note(&self, structure: *mut T) -> *mut T {
        self.addresses().insert(structure.addr());
        structure
    }

    /// Takes it off the list: it is being freed.
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

/// Memory for `count` values, all zero. For none too it is not null.
///
/// # Errors
/// There is none left.
pub fn allocate<T>(count: usize) -> Result<*mut T, Fault> {
    // SAFETY: calloc takes any numbers.
    let memory = unsafe { libc::calloc(count.max(1), size_of::<T>().max(1)) };
    if memory.is_null() {
        return Err(Fault::new(Kind::System, "no memory left"));
    }
    Ok(memory.cast())
}

/// Frees memory of [`allocate`]; null is fine.
///
/// # Safety
/// It is null, or came from `malloc` and was not freed yet.
pub unsafe fn release<T>(memory: *mut T) {
    // SAFETY: our caller's word.
    unsafe { libc::free(memory.cast()) };
}

/// A string for C.
///
/// # Errors
/// There is a NUL in it, or no memory left.
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

/// A list of strings for C, with a null at its end. What was made before something failed is freed again.
///
/// # Errors
/// As [`string`].
pub fn strings<S: AsRef<[u8]>>(texts: &[S]) -> Result<*mut *mut c_char, Fault> {
    let mut made = Vec::with_capacity(texts.len());
    for text in texts {
        match string(text.as_ref()) {
            Ok(text) => made.push(text),
            Err(fault) => {
                // SAFETY: they were made here and nobody else has them.
                made.into_iter().for_each(|text| unsafe { release(text) });
                return Err(fault);
            }
        }
    }
    array(&made, 1)
}

/// Frees a list of [`strings`]; null is fine.
///
/// # Safety
/// It is null, or a list of [`strings`] that was not freed yet, nor any string of it.
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
        // SAFETY: our caller's word.
        unsafe { release(text) };
        // SAFETY: this entry was not null, so another one follows.
        at = unsafe { at.add(1) };
    }
    // SAFETY: our caller's word.
    unsafe { release(list) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_what_c_takes_them_for() {
        let list = strings(&["a", "", "bc"]).expect("memory");
        // SAFETY: made above, and not freed yet.
        let found = unsafe { crate::text::list(list.cast_const().cast()) }.expect("a list");
        assert_eq!(found, ["a", "", "bc"]);
        // SAFETY: made above.
        unsafe { release_strings(list) };
        assert!(strings(&["a", "b\0"]).is_err());
    }

    #[test]
    fn what_is_freed_twice_is_refused() {
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
