//! Submits a job for the tool. The tool may end, give up or be killed before the WLM answers. This process then waits for
//! the answer alone, and cancels the job that nobody owns.

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gantry_guard::protocol::FromGuard;
use gantry_guard::submission::{CANCELS_WITHIN, FromSubmitter, NotCancelled, Order, ToSubmitter};
use gantry_shared::wire::build::describe;
use gantry_shared::wire::frame::{self, FrameBuffer};
use gantry_types::id::Pid;
use gantry_wlm::caps::batch::BatchJobs;
use gantry_wlm::host::{Machine, open_pidfd};
use gantry_wlm::{JobRef, find_batch, find_queue, registry};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::Serialize;

use crate::error::{Error, Result};

/// The names of these processes in the kernel, as `ps -o comm` shows them. Who ends guards by name does not mean them.
const SUBMITS: &CStr = c"gantry-submit";
const CANCELS: &CStr = c"gantry-cancel";

/// The first pause before it is asked again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Submits the job that the tool orders. Returns when the job has an owner, or is cancelled.
///
/// # Errors
/// The tool is gone, or said something else. Nothing was submitted.
pub(crate) fn run(mut tool: UnixStream) -> io::Result<()> {
    nix::sys::prctl::set_name(SUBMITS)?;
    let mut incoming = FrameBuffer::new();
    let pid = Pid::new(nix::unistd::getpid().as_raw()).ok_or(io::ErrorKind::InvalidData)?;
    tell(&mut tool, &FromGuard::Hello { release: describe(), pid })?;
    let Some(ToSubmitter::Submit { wlm, order }) = hear(&mut tool, &mut incoming)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (batch, job) = match submit(&wlm, &order) {
        Ok(accepted) => accepted,
        Err(error) => return tell(&mut tool, &FromSubmitter::Refused(error.to_failure())),
    };
    drop(order);
    // A tool that is gone does not read this, and says nothing.
    tell(&mut tool, &FromSubmitter::Accepted(job.clone())).ok();
    if !is_owned(&mut tool, &mut incoming) {
        cancel(batch, &job, |cancelled, again| {
            let cancelled = cancelled.map_err(|error| NotCancelled { failure: error.to_failure(), again });
            tell(&mut tool, &FromSubmitter::Cancelled(cancelled)).ok();
        });
    }
    Ok(())
}

fn submit(wlm: &str, order: &Order) -> Result<(&'static dyn BatchJobs, JobRef)> {
    let wlm = registry::find(wlm)?;
    let batch = find_batch(wlm)?;
    batch.check_cancel(&Machine)?;
    let job = match order {
        Order::Script(submission) => batch.submit(submission, &Machine)?,
        Order::Starter(queued, starter) => find_queue(wlm)?.submit_starter(queued, starter, &Machine)?,
    };
    Ok((batch, job))
}

/// Whether the job has an owner. Waits until the tool says so, or is gone.
fn is_owned(tool: &mut UnixStream, incoming: &mut FrameBuffer) -> bool {
    // Forked children of the tool keep its descriptors open, so the tool may end before the socket does.
    let process = getsockopt(tool, PeerCredentials).ok().and_then(|it| open_pidfd(Pid::new(it.pid())?).ok());
    let mut ready = vec![PollFd::new(tool.as_fd(), PollFlags::POLLIN)];
    ready.extend(process.iter().map(|process| PollFd::new(process.as_fd(), PollFlags::POLLIN)));
    while poll(&mut ready, PollTimeout::NONE) == Err(nix::errno::Errno::EINTR) {}
    tool.set_nonblocking(true).is_ok() && matches!(hear(tool, incoming), Ok(Some(ToSubmitter::Owned)))
}

/// Cancels a job of the named WLM for a guard.
///
/// # Errors
/// There is no such WLM, or it has not cancelled the job.
pub(crate) fn cancel_for(wlm: &str, job: &str) -> Result<()> {
    nix::sys::prctl::set_name(CANCELS).ok();
    // The programs that it runs stay with this process: the guard would kill them as remains of an agent.
    nix::sys::prctl::set_child_subreaper(true).ok();
    let mut last = Ok(());
    cancel(find_batch(registry::find(wlm)?)?, &JobRef(job.to_owned()), |cancelled, _| last = cancelled);
    last
}

/// Cancels a job. A WLM that gives no answer is asked again. `tell` gets each result, and whether
/// another question follows.
fn cancel(batch: &dyn BatchJobs, job: &JobRef, mut tell: impl FnMut(Result<()>, bool)) {
    let until = Instant::now() + CANCELS_WITHIN;
    let [mut pause, longest] = PAUSES;
    loop {
        let cancelled = batch.cancel(job, &Machine);
        let again = matches!(cancelled, Err(gantry_wlm::Error::Unanswered(_))) && Instant::now() < until;
        tell(cancelled.map_err(Error::Wlm), again);
        if !again {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "this process has nothing else to do")]
        std::thread::sleep(pause);
        pause = (2 * pause).min(longest);
    }
}

fn tell(tool: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    tool.write_all(&frame::encode(message).map_err(io::Error::other)?)
}

/// The tool's next message. None: it is gone.
fn hear(tool: &mut UnixStream, incoming: &mut FrameBuffer) -> io::Result<Option<ToSubmitter>> {
    loop {
        if let Some(message) = incoming.next_message().map_err(io::Error::other)? {
            return Ok(Some(message));
        }
        let mut bytes = [0; 16 * 1024];
        match tool.read(&mut bytes)? {
            0 => return Ok(None),
            n => incoming.push(&bytes[..n]).map_err(io::Error::other)?,
        }
    }
}
