//! Section "rendezvous".

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;

use gantry_backend::rendezvous::{Handle, Name, Rendezvous, Status};
use gantry_shared_capi::data::{self, Data, Member, RendezvousList};
use gantry_shared_capi::memory::{Given, string};
use gantry_shared_capi::{Fault, deadline, enter, text};

use super::channel::GIVEN;
use crate::connection::fault;

static LISTS: Given<RendezvousList> = Given::new();

/// The rendezvous of a handle. NULL: the rendezvous of the app's ranks, which the environment names.
///
/// # Safety
/// `handle` is null or a string.
unsafe fn rendezvous(handle: *const c_char) -> Result<Rendezvous, Fault> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text::optional(handle) } {
        None => Rendezvous::of_job().map_err(|error| fault(&error)),
        Some(handle) => {
            let parsed: Result<Handle, _> = handle.to_string_lossy().parse();
            let handle = parsed.map_err(|error| Fault::invalid(format!("failed to {error}")))?;
            Ok(Rendezvous::at(handle))
        }
    }
}

/// Sends a request to the rendezvous of a handle.
///
/// # Safety
/// `handle` is null or a string.
unsafe fn ask<T>(
    handle: *const c_char,
    question: impl FnOnce(&Rendezvous) -> Result<T, gantry_backend::Error>,
) -> Result<T, Fault> {
    // SAFETY: guaranteed by the caller.
    let rendezvous = unsafe { rendezvous(handle) }?;
    question(&rendezvous).map_err(|error| fault(&error))
}

/// Registers.
///
/// # Safety
/// `handle` is null or a string; `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_register(
    handle: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    enter("gantry_be_register", 1, || {
        // SAFETY: guaranteed by the caller.
        let item = unsafe { data::bytes(bytes.cast(), size) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { ask(handle, |it| it.register(item, deadline::of_calls())) }?;
        Ok(0)
    })
}

/// The registered data of all members.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_getAll(handle: *const c_char) -> *mut Data {
    enter("gantry_be_getAll", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let all = unsafe { ask(handle, |it| it.get_all(deadline::of_calls())) }?;
        data::give_data(&GIVEN, &all, Member::default(), 0)
    })
}

/// The data of one member.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_getItem(handle: *const c_char, member: u32) -> *mut Data {
    enter("gantry_be_getItem", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let item = unsafe { ask(handle, |it| it.get_item(member, deadline::of_calls())) }?;
        data::give_data(&GIVEN, &item, Member::default(), 0)
    })
}

/// Waits until all have registered.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_waitComplete(handle: *const c_char) -> c_int {
    enter("gantry_be_waitComplete", 1, || {
        // SAFETY: guaranteed by the caller.
        unsafe { ask(handle, |it| it.wait(deadline::of_calls())) }?;
        Ok(0)
    })
}

/// A descriptor that becomes readable when the rendezvous is complete or broken.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_openRendezvous(handle: *const c_char) -> c_int {
    enter("gantry_be_openRendezvous", -1, || {
        // SAFETY: guaranteed by the caller.
        let descriptor = unsafe { ask(handle, |it| it.subscribe_to_end(deadline::of_calls())) }?;
        Ok(descriptor.into_raw_fd())
    })
}

/// Creates or finds a rendezvous by its name.
///
/// # Safety
/// `handle` is null or a string, and so is `name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_createRendezvous(
    handle: *const c_char,
    name: *const c_char,
    expected: u32,
) -> *mut c_char {
    enter("gantry_be_createRendezvous", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text::required_name(name, "the rendezvous's name") }?;
        let name: Name = name.parse().map_err(|error| Fault::invalid(format!("failed to {error}")))?;
        let expected = (expected > 0).then_some(expected);
        let make = |it: &Rendezvous| {
            let made = it.named(name, expected);
            made.status(deadline::of_calls()).map(|_| made.handle().to_string())
        };
        // SAFETY: guaranteed by the caller.
        let handle = unsafe { ask(handle, make) }?;
        string(handle.as_bytes())
    })
}

/// The state of one rendezvous.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_getRendezvous(handle: *const c_char) -> *mut RendezvousList {
    enter("gantry_be_getRendezvous", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { list(handle, |it| it.status(deadline::of_calls()).map(|status| vec![status])) }
    })
}

/// The states of all rendezvous.
///
/// # Safety
/// `handle` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_listRendezvous(handle: *const c_char) -> *mut RendezvousList {
    enter("gantry_be_listRendezvous", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        unsafe { list(handle, |it| it.list(deadline::of_calls())) }
    })
}

/// # Safety
/// `handle` is null or a string.
unsafe fn list(
    handle: *const c_char,
    question: impl FnOnce(&Rendezvous) -> Result<Vec<Status>, gantry_backend::Error>,
) -> Result<*mut RendezvousList, Fault> {
    // SAFETY: guaranteed by the caller.
    let asked = unsafe { rendezvous(handle) }?;
    let found = question(&asked).map_err(|error| fault(&error))?;
    data::give_list(&LISTS, &found, |resource| asked.other(resource.clone()).handle().to_string())
}

/// Frees a list.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_destroyRendezvousList(list: *mut RendezvousList) {
    enter("gantry_be_destroyRendezvousList", (), || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::take_list(&LISTS, list) }
    });
}

/// An item in a rendezvous's data.
///
/// # Safety
/// `bytes` points to `size` bytes, `way` to `steps` numbers; `item` and `item_size` to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_findItem(
    bytes: *const c_void,
    size: usize,
    way: *const u32,
    steps: c_int,
    item: *mut *const u8,
    item_size: *mut usize,
) -> c_int {
    enter("gantry_be_findItem", 1, || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::find((bytes, size), (way, steps), (item, item_size)) }.map(|()| 0)
    })
}
