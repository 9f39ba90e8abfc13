//! Signals to processes that are pinned by their start time, so that no signal reaches another process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpgid};

use super::{Pinned, procfs, sys};

/// What [`release`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// It goes on.
    Continued,
    /// A debugger's thread with this id traces it and decides when it goes on.
    LeftToDebugger(i32),
    /// It has ended.
    Gone,
}

/// A rank to release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldRank {
    /// Its process.
    pub(crate) process: Pinned,
    /// Whether it is a child that the calling thread collects, and has not collected. Nobody else can get its pid.
    pub(crate) own: bool,
}

/// Releases held ranks, except those that a debugger traces. Returns the result for each, in their order.
///
/// With `unless_traced` it releases none if one of them is traced, and returns `None`: a reader of stacks soon lets go,
/// and the caller tries again.
///
/// A debugger that attaches in the same instant sees the SIGCONT like any other signal of its tracee.
///
/// All ranks are checked before the first goes on. Released ranks compete with this thread for the processor, so
/// checks beside them would take many times as long.
pub(crate) fn release(ranks: &[HeldRank], unless_traced: bool) -> Option<Vec<io::Result<Released>>> {
    let mut ready = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let prepared = prepare_release(*rank);
        if unless_traced && matches!(prepared, Ok(Ready::Not(Released::LeftToDebugger(_)))) {
            return None;
        }
        ready.push(prepared);
    }
    let go = |ready| match ready {
        Ready::Held(target) => {
            Ok(if target.send(libc::SIGCONT)? { Released::Continued } else { Released::Gone })
        }
        Ready::Not(why) => Ok(why),
    };
    Some(ready.into_iter().map(|ready| ready.and_then(go)).collect())
}

/// A rank that is about to be released.
enum Ready {
    Held(Target),
    Not(Released),
}

fn prepare_release(rank: HeldRank) -> io::Result<Ready> {
    let pid = rank.process.pid;
    let target = if rank.own { Some(Target { pid, pidfd: None }) } else { Target::open(pid) };
    let Some(target) = target else { return Ok(Ready::Not(Released::Gone)) };
    let Some(stat) = rank.process.read_stat()? else { return Ok(Ready::Not(Released::Gone)) };
    // A process that is stopped and traced has state 't'. To read the tracer takes longer than all the rest.
    let tracer =
        if stat.state == 'T' { 0 } else { procfs::read_status(pid).map_or(0, |status| status.tracer) };
    Ok(if tracer == 0 { Ready::Held(target) } else { Ready::Not(Released::LeftToDebugger(tracer)) })
}

/// A process that existed when it was looked up, and the pidfd to reach it.
#[derive(Debug)]
pub(super) struct Target {
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Target {
    /// `None` if it no longer exists.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(super) fn find(process: Pinned) -> io::Result<Option<Self>> {
        let Some(mut target) = Self::open(process.pid) else { return Ok(None) };
        let there = process.is_there().or_else(|_| {
            // The pidfd may have been the last descriptor.
            target.pidfd = None;
            process.is_there()
        });
        Ok(there?.then_some(target))
    }

    /// Whoever has this pid now. Read the start time after this call, so that both mean the same process.
    fn open(pid: i32) -> Option<Self> {
        match sys::pidfd_open(pid) {
            Ok(pidfd) => Some(Self { pid, pidfd: Some(pidfd) }),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            // Kernels before 5.3, seccomp filters that do not know the call, no descriptor left.
            Err(_) => Some(Self { pid, pidfd: None }),
        }
    }

    /// False if it was collected meanwhile.
    pub(super) fn send(&self, signal: i32) -> io::Result<bool> {
        there(match &self.pidfd {
            Some(pidfd) => sys::pidfd_send_signal(pidfd.as_fd(), signal),
            None => sys::kill(self.pid, signal),
        })
    }

    /// Blocks until it has ended, or for `at_most`. Without a pidfd this does not wait.
    pub(super) fn wait_end(&self, at_most: Duration) {
        let Some(pidfd) = &self.pidfd else { return };
        let limit = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        // A failed poll only shortens the wait.
        poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], limit).ok();
    }
}

/// Sends `signal` to exactly this process; false if it no longer exists.
///
/// # Errors
/// When the process belongs to another user or cannot be looked at, or there is no such signal.
pub(crate) fn send(process: Pinned, signal: i32) -> io::Result<bool> {
    Target::find(process)?.map_or(Ok(false), |target| target.send(signal))
}

/// Sends `signal` to `leader` and to every process of the group that it was started in; false if there is none.
///
/// Both numbers stay taken while the leader is not collected. Call this only during that time.
///
/// # Errors
/// When none of them is ours, or there is no such signal or group.
pub(crate) fn kill_group(leader: i32, signal: i32) -> io::Result<bool> {
    let sent = there(sys::kill_group(leader, signal));
    // A process may move to another group of its session.
    match getpgid(Some(Pid::from_raw(leader))) {
        Ok(group) if group.as_raw() != leader => there(sys::kill(leader, signal)),
        _ => sent,
    }
}

pub(super) fn there(sent: io::Result<()>) -> io::Result<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(error) => Err(error),
    }
}
