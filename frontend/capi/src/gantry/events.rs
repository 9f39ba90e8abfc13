//! Section "events": an application's events, to be read from a descriptor.

use std::ffi::c_int;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream as Pair;

use gantry_frontend::{Event, Events};
use gantry_shared_capi::{Fault, enter};
use gantry_types::error::Kind;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::process::process;

/// Opens a descriptor for events.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_openEvents(app_id: i64) -> c_int {
    enter("gantry_openEvents", -1, || {
        let process = process();
        let events = process.apps.get(app_id)?.handle.events();
        let failed =
            |error: io::Error| Fault::of(Kind::LauncherFailed, &error, Some("no descriptor could be made"));
        // Closed when a program is executed, as all descriptors of this library.
        let (theirs, ours) = Pair::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = process.inside(|| UnixStream::from_std(ours))?.map_err(failed)?;
        process.begin(write_events(events, ours))?;
        Ok(theirs.into_raw_fd())
    })
}

/// Writes events until there are no more, or the reader has closed its end. Unread events wait in memory.
async fn write_events(mut events: Events, mut to: UnixStream) {
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // The tool never sends data. So this event means that it has closed its end.
            _ = to.readable() => None,
        };
        let Some(line) = event.and_then(|event| build_line(&event)) else { return };
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// An event as a line.
fn build_line(event: &Event) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    Some(line)
}
