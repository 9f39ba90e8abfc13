//! Section "the channel to daemons": messages that daemons send unasked.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::Arc;

use gantry_frontend::channel::MessageStream;
use gantry_frontend::{Error, Session};
use gantry_shared_capi::data::{self, Data};
use gantry_shared_capi::memory::Given;
use gantry_shared_capi::{Fault, deadline, enter};
use gantry_types::error::Kind;
use tokio::sync::Notify;

use crate::handles::{Inbox, Signal};
use crate::process::process;

pub(super) static GIVEN: Given<Data> = Given::new();

async fn watch(messages: MessageStream, signal: Arc<Signal>) {
    loop {
        messages.ready().await;
        signal.set();
        signal.cleared.notified().await;
    }
}

/// Opens the messages with a tag.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_openInbox(sid: i64, tag: u32) -> i64 {
    enter("gantry_openInbox", 0, || {
        let process = process();
        let channel = process.live_session(sid)?.with(Session::channel)?;
        let failed = |error| Fault::of(Kind::LauncherFailed, &error, Some("no descriptor could be made"));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        let signal = Arc::new(Signal { ours, theirs, cleared: Notify::new() });
        let watching = watch(channel.messages(tag), Arc::clone(&signal));
        let watching = process.inside(|| tokio::spawn(watching).abort_handle())?;
        Ok(process.inboxes.add(&process.ids, Inbox { channel, tag, signal, watching }))
    })
}

/// A descriptor to poll.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getInboxFd(inbox: i64) -> c_int {
    enter("gantry_getInboxFd", -1, || Ok(process().inboxes.get(inbox)?.signal.theirs.as_raw_fd()))
}

/// The next message.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_receive(inbox: i64) -> *mut Data {
    enter("gantry_receive", null_mut(), || {
        let process = process();
        let inbox = process.inboxes.get(inbox)?;
        let mut messages = inbox.channel.messages(inbox.tag);
        let after = deadline::of_calls();
        let next = process.try_wait(async move {
            tokio::select! {
                biased;
                message = messages.next() => Ok(message),
                () = tokio::time::sleep(after) => {
                    Err(Error::TimedOut { phase: "waiting for a message", after, missing: Vec::new() })
                }
            }
        });
        // Remaining messages signal again.
        inbox.signal.clear();
        match next? {
            Some(message) => data::give_data(&GIVEN, &message.bytes, message.member.into(), inbox.tag),
            None => Err(Fault::new(Kind::Gone, "the session is over, and all messages were received")),
        }
    })
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_closeInbox(inbox: i64) -> c_int {
    enter("gantry_closeInbox", 1, || process().inboxes.take(inbox).map(|_| 0))
}

/// Frees data.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_destroyData(data: *mut Data) {
    enter("gantry_destroyData", (), || {
        // SAFETY: guaranteed by the caller.
        unsafe { data::take_data(&GIVEN, data) }
    });
}
