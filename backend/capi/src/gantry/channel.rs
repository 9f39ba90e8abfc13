//! Section "the channel to the tool": messages, contributions of any bytes, filters.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use gantry_backend::{Channel, Failure, Kind};
use gantry_shared_capi::data::{self, Data, Member, Merge};
use gantry_shared_capi::memory::Given;
use gantry_shared_capi::{Fault, deadline, enter, text};

use crate::connection::{Kept, backend, fault, get_or};

/// This daemon's end.
static OPEN: Kept<Channel> = Kept::new();

pub(super) static GIVEN: Given<Data> = Given::new();

/// This daemon's end; opened by the first call that needs it.
pub(super) fn channel() -> Result<Arc<Channel>, Fault> {
    get_or(&OPEN, || backend()?.channel().map_err(|error| fault(&error)))
}

/// Opens this daemon's end.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_openChannel() -> c_int {
    enter("gantry_be_openChannel", 1, || channel().map(|_| 0))
}

/// This daemon's member identity on the channel.
///
/// # Safety
/// `member` is null or points to a writable one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_getMember(member: *mut Member) -> c_int {
    enter("gantry_be_getMember", 1, || {
        if member.is_null() {
            return Err(Fault::invalid("the place for the member is NULL"));
        }
        let own = channel()?.member();
        // SAFETY: guaranteed by the caller.
        unsafe { member.write(own.into()) };
        Ok(0)
    })
}

/// A descriptor to poll.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getChannelFd() -> c_int {
    // The channel is never closed while this process lives, so the number stays good.
    enter("gantry_be_getChannelFd", -1, || Ok(channel()?.as_fd().as_raw_fd()))
}

/// The next message with a tag.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_receive(tag: u32) -> *mut Data {
    enter("gantry_be_receive", std::ptr::null_mut(), || {
        let bytes = channel()?.receive(tag, deadline::of_calls()).map_err(|error| fault(&error))?;
        data::give_data(&GIVEN, &bytes, Member::default(), tag)
    })
}

/// The next message with any tag.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_receiveAny() -> *mut Data {
    enter("gantry_be_receiveAny", std::ptr::null_mut(), || {
        let (tag, bytes) = channel()?.receive_any(deadline::of_calls()).map_err(|error| fault(&error))?;
        data::give_data(&GIVEN, &bytes, Member::default(), tag)
    })
}

/// Frees data.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_destroyData(data: *mut Data) {
    enter("gantry_be_destroyData", (), || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::take_data(&GIVEN, data) }
    });
}

/// Sends a message to the tool.
///
/// # Safety
/// `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_send(tag: u32, bytes: *const c_void, size: usize) -> c_int {
    enter("gantry_be_send", 1, || {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { data::bytes(bytes.cast(), size) }?;
        channel()?.send(tag, bytes, deadline::of_calls()).map_err(|error| fault(&error))?;
        Ok(0)
    })
}

/// Contributes bytes.
///
/// # Safety
/// `bytes` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contribute(tag: u32, bytes: *const c_void, size: usize) -> c_int {
    enter("gantry_be_contribute", 1, || {
        // SAFETY: guaranteed by the caller.
        contribute(tag, unsafe { data::bytes(bytes.cast(), size) }?)
    })
}

/// Contributes a part.
pub(super) fn contribute(tag: u32, part: &[u8]) -> Result<c_int, Fault> {
    channel()?.contribute(tag, part, deadline::of_calls()).map_err(|error| fault(&error))?;
    Ok(0)
}

/// Merges for this node's agent until the channel ends.
///
/// # Safety
/// `name` is null or a string; `merge` fulfils the header's contract and belongs to `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_serveFilter(
    name: *const c_char,
    merge: Option<Merge>,
    context: *mut c_void,
) -> c_int {
    enter("gantry_be_serveFilter", 1, || {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text::required_name(name, "the filter's name") }?;
        let merge = merge.ok_or_else(|| Fault::invalid("the filter's function is NULL"))?;
        let served = channel()?.serve_filter(name, |parts| {
            // SAFETY: guaranteed by the caller; it is called by this thread, which has not returned yet.
            let merged = unsafe { data::merge(merge, context, &parts) };
            merged.ok_or_else(|| {
                Failure::new(Kind::Unsupported, format!("merge by the daemon's filter {name:?}"))
            })
        });
        served.map_err(|error| fault(&error))?;
        Ok(0)
    })
}
