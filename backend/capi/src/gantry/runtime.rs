//! Section "co-allocated jobs": the barrier and the messages of a job's processes.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use gantry_backend::runtime::{Message, Rank, Runtime};
use gantry_shared_capi::{Fault, data, deadline, enter, memory, text};

use crate::connection::{Kept, fault, get_or};
use crate::node::to_int;

/// The connection of this process.
static RUNTIME: Kept<Runtime> = Kept::new();

/// The connection of this process.
fn runtime() -> Result<Arc<Runtime>, Fault> {
    get_or(&RUNTIME, || Runtime::connect(deadline::of_launches()).map_err(|error| fault(&error)))
}

fn ask<T>(question: impl FnOnce(&Runtime, Duration) -> Result<T, gantry_backend::Error>) -> Result<T, Fault> {
    question(&*runtime()?, deadline::of_launches()).map_err(|error| fault(&error))
}

/// The barrier.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_barrier() -> c_int {
    enter("gantry_be_barrier", 1, || ask(Runtime::barrier).map(|()| 0))
}

/// This process's rank.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getRank() -> c_int {
    enter("gantry_be_getRank", -1, || to_int(runtime()?.rank().0))
}

/// The number of ranks.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getSize() -> c_int {
    enter("gantry_be_getSize", -1, || to_int(runtime()?.size()))
}

/// The structure of the job.
///
/// # Safety
/// All are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_getSubjobs(
    index: *mut c_int,
    count: *mut c_int,
    sizes: *mut *mut c_int,
) -> c_int {
    enter("gantry_be_getSubjobs", 1, || {
        let structure = ask(Runtime::structure)?;
        let all: Vec<c_int> = structure.sizes.iter().map(|size| to_int(*size)).collect::<Result<_, _>>()?;
        let (own, number) = (to_int(structure.index)?, to_int(all.len())?);
        if !sizes.is_null() {
            let given = memory::array(&all, 0)?;
            // SAFETY: guaranteed by the caller.
            unsafe { set(sizes, given) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { set(index, own) };
        // SAFETY: guaranteed by the caller.
        unsafe { set(count, number) };
        Ok(0)
    })
}

/// Sends to rank 0 of a subjob.
///
/// # Safety
/// `tag` is null or a string; `message` points to `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_sendToSubjob(
    subjob: c_int,
    tag: *const c_char,
    message: *const c_void,
    size: usize,
) -> c_int {
    enter("gantry_be_sendToSubjob", 1, || {
        // SAFETY: guaranteed by the caller.
        let tag = unsafe { text::required_name(tag, "the tag") }?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { data::bytes(message.cast(), size) }?;
        let subjob = number(subjob, "subjob")?;
        ask(|runtime, deadline| runtime.send_to_subjob(subjob, tag, bytes, deadline)).map(|()| 0)
    })
}

/// Receives a message of a subjob.
///
/// # Safety
/// `tag` is null or a string; the others are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_receiveFromSubjobs(
    tag: *const c_char,
    message: *mut *mut c_void,
    size: *mut usize,
    subjob: *mut c_int,
) -> c_int {
    enter("gantry_be_receiveFromSubjobs", 1, || {
        // SAFETY: guaranteed by the caller.
        let tag = unsafe { text::required_name(tag, "the tag") }?;
        let Message { from, bytes } = ask(|runtime, deadline| runtime.receive_from_subjobs(tag, deadline))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(&bytes, message, size) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { set(subjob, to_int(from.subjob)?) };
        Ok(0)
    })
}

/// Sends to a rank of this subjob.
///
/// # Safety
/// As [`gantry_be_sendToSubjob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_sendToRank(
    rank: c_int,
    tag: *const c_char,
    message: *const c_void,
    size: usize,
) -> c_int {
    enter("gantry_be_sendToRank", 1, || {
        // SAFETY: guaranteed by the caller.
        let tag = unsafe { text::required_name(tag, "the tag") }?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { data::bytes(message.cast(), size) }?;
        let rank = Rank(number(rank, "rank")?);
        ask(|runtime, deadline| runtime.send_to_rank(rank, tag, bytes, deadline)).map(|()| 0)
    })
}

/// Receives a message of a rank of this subjob.
///
/// # Safety
/// As [`gantry_be_receiveFromSubjobs`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_receiveFromRanks(
    tag: *const c_char,
    message: *mut *mut c_void,
    size: *mut usize,
    rank: *mut c_int,
) -> c_int {
    enter("gantry_be_receiveFromRanks", 1, || {
        // SAFETY: guaranteed by the caller.
        let tag = unsafe { text::required_name(tag, "the tag") }?;
        let Message { from, bytes } = ask(|runtime, deadline| runtime.receive_from_ranks(tag, deadline))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(&bytes, message, size) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { set(rank, to_int(from.rank.0)?) };
        Ok(0)
    })
}

/// Gives every process the text of rank 0 of each subjob.
///
/// # Safety
/// `said` is null or a string; the others are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_exchange(
    said: *const c_char,
    index: *mut c_int,
    count: *mut c_int,
    all: *mut *mut *mut c_char,
) -> c_int {
    enter("gantry_be_exchange", 1, || {
        // SAFETY: guaranteed by the caller.
        let said = unsafe { text::required(said, "what is said") }?;
        let heard = ask(|runtime, deadline| runtime.exchange(said.as_bytes(), deadline))?;
        let own = to_int(ask(Runtime::structure)?.index)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give_list(Some(heard), count, all) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { set(index, own) };
        Ok(0)
    })
}

/// Gives the master the start points of all processes.
///
/// # Safety
/// `start` is null or a string; the others are null or point to writable variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_masterVector(
    start: *const c_char,
    count: *mut c_int,
    all: *mut *mut *mut c_char,
) -> c_int {
    enter("gantry_be_masterVector", 1, || {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { text::required(start, "the start point") }?;
        let vector = ask(|runtime, deadline| runtime.master_vector(start.as_bytes(), deadline))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give_list(vector, count, all) }.map(|()| 0)
    })
}

/// As [`gantry_be_masterVector`], in an order that subjobs choose.
///
/// # Safety
/// As [`gantry_be_masterVector`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_orderedMasterVector(
    start: *const c_char,
    place: c_int,
    count: *mut c_int,
    all: *mut *mut *mut c_char,
) -> c_int {
    enter("gantry_be_orderedMasterVector", 1, || {
        // SAFETY: guaranteed by the caller.
        let start = unsafe { text::required(start, "the start point") }?;
        // All processes must refuse a wrong place in the same way, so all of them get it.
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        let vector =
            ask(|runtime, deadline| runtime.ordered_master_vector(start.as_bytes(), place, deadline))?;
        // SAFETY: guaranteed by the caller.
        unsafe { give_list(vector, count, all) }.map(|()| 0)
    })
}

fn number(of: c_int, what: &str) -> Result<u32, Fault> {
    u32::try_from(of).map_err(|_| Fault::invalid(format!("there is no {what} {of}")))
}

/// # Safety
/// It is null or may be written.
unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { place.write(value) };
    }
}

/// # Safety
/// Both are null or may be written.
unsafe fn give(bytes: &[u8], message: *mut *mut c_void, size: *mut usize) -> Result<(), Fault> {
    if !message.is_null() {
        // A zero at the end, for texts.
        let given = memory::array(bytes, 1)?;
        // SAFETY: guaranteed by the caller.
        unsafe { set(message, given.cast()) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { set(size, bytes.len()) };
    Ok(())
}

/// # Safety
/// Both are null or may be written.
unsafe fn give_list(
    list: Option<Vec<Vec<u8>>>,
    count: *mut c_int,
    all: *mut *mut *mut c_char,
) -> Result<(), Fault> {
    let number = list.as_ref().map_or(Ok(0), |list| to_int(list.len()))?;
    if !all.is_null() {
        let given = match &list {
            None => std::ptr::null_mut(),
            Some(list) => memory::strings(list)?,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { set(all, given) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { set(count, number) };
    Ok(())
}
