//! Section "rendezvous": of an application, and above applications.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use gantry_frontend::rendezvous::Multijob;
use gantry_shared_capi::data::{self, Data, Member, RendezvousList};
use gantry_shared_capi::memory::Given;
use gantry_shared_capi::{Fault, deadline, enter, text};

use super::inbox::GIVEN;
use crate::launch::{Asked, Reads};
use crate::process::{fault, process};

static LISTS: Given<RendezvousList> = Given::new();

/// The registered data of all ranks of an application.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_waitRendezvous(app_id: i64) -> *mut Data {
    enter("gantry_waitRendezvous", null_mut(), || {
        let process = process();
        let rendezvous = process.apps.get(app_id)?.handle.rendezvous();
        let deadline = deadline::of_calls();
        let all = process.try_wait(async move { rendezvous.wait(deadline).await })?;
        data::give_data(&GIVEN, &all, Member::default(), 0)
    })
}

/// The states of an application's rendezvous.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_listRendezvous(app_id: i64) -> *mut RendezvousList {
    enter("gantry_listRendezvous", null_mut(), || {
        let list = process().apps.get(app_id)?.handle.rendezvous().list();
        data::give_list(&LISTS, &list, ToString::to_string)
    })
}

/// Frees a list.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_destroyRendezvousList(list: *mut RendezvousList) {
    enter("gantry_destroyRendezvousList", (), || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::take_list(&LISTS, list) }
    });
}

/// An item in a rendezvous's data.
///
/// # Safety
/// `bytes` points to `size` bytes, `way` to `steps` numbers; `item` and `item_size` to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_findItem(
    bytes: *const c_void,
    size: usize,
    way: *const u32,
    steps: c_int,
    item: *mut *const u8,
    item_size: *mut usize,
) -> c_int {
    enter("gantry_findItem", 1, || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::find((bytes, size), (way, steps), (item, item_size)) }.map(|()| 0)
    })
}

/// Makes a rendezvous above applications.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_createMultijob(level: c_int, members: u32) -> i64 {
    enter("gantry_createMultijob", 0, || {
        let level = u8::try_from(level)
            .map_err(|_| Fault::invalid(format!("{level} is not a level of a multijob")))?;
        let multijob = Multijob::of_level(level, members).map_err(|error| fault(&error))?;
        let process = process();
        Ok(process.multijobs.add(&process.ids, multijob))
    })
}

/// Makes one multijob a member of another one.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_joinMultijob(multijob: i64, above: i64, number: u32) -> c_int {
    enter("gantry_joinMultijob", 1, || {
        let (multijob, above) = (process().multijobs.get(multijob)?, process().multijobs.get(above)?);
        multijob.join(&above, number).map_err(|error| fault(&error))?;
        Ok(0)
    })
}

/// Launches an application as a member.
///
/// # Safety
/// Strings and lists of strings are null or valid as in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_launchSubjob(
    multijob: i64,
    number: u32,
    held: c_int,
    launcher_argv: *const *const c_char,
    stdout_fd: c_int,
    stderr_fd: c_int,
    input_file: *const c_char,
    chdir_path: *const c_char,
    env_list: *const *const c_char,
) -> i64 {
    enter("gantry_launchSubjob", 0, || {
        let above = process().multijobs.get(multijob)?;
        // SAFETY: guaranteed by the caller.
        let stdin = Reads::File(unsafe { text::optional(input_file) });
        let to = (stdout_fd, stderr_fd);
        // SAFETY: guaranteed by the caller.
        let asked = unsafe { Asked::read(launcher_argv, to, stdin, chdir_path, env_list, held != 0) }?;
        asked.launch_as(|request| request.subjob(&above, number))
    })
}

/// The registered data of all members.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_waitMultijob(multijob: i64) -> *mut Data {
    enter("gantry_waitMultijob", null_mut(), || {
        let process = process();
        let multijob = process.multijobs.get(multijob)?;
        let deadline = deadline::of_calls();
        let all = process.try_wait(async move { multijob.wait(deadline).await })?;
        data::give_data(&GIVEN, &all, Member::default(), 0)
    })
}

/// Its state.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getMultijob(multijob: i64) -> *mut RendezvousList {
    enter("gantry_getMultijob", null_mut(), || {
        let status = process().multijobs.get(multijob)?.status();
        data::give_list(&LISTS, &[status], ToString::to_string)
    })
}

/// Forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_destroyMultijob(multijob: i64) -> c_int {
    enter("gantry_destroyMultijob", 1, || process().multijobs.take(multijob).map(|_| 0))
}
