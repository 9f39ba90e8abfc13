//! Processes on this node: starts ranks, holds them at their first instruction, releases them and reports their end.
//!
//! A rank has two owners, one after the other. During the start the thread "ranks" ([`thread`]) is its only waiter.
//! That thread forks the ranks, traces them and brings them to *held* ([`hold`]). Then it hands over their pids, and
//! the [`reaper`] on the agent's main thread waits for them. No code calls `waitpid(-1)`.
//!
//! Processes that were not started by this agent are [`adopted`]. For ranks that a launcher started for us, [`enter`]
//! brings them to their programs.

pub(crate) mod adopted;
pub(crate) mod alone;
pub(crate) mod batch;
mod cancel;
pub(crate) mod cores;
pub(crate) mod diagnose;
mod enter;
pub(crate) mod exec;
pub(crate) mod follow;
pub(crate) mod error;
pub(crate) mod hold;
mod pauses;
pub(crate) mod procfs;
pub(crate) mod reaper;
mod refusal;
pub(crate) mod renumber;
pub(crate) mod signal;
pub(crate) mod spawn;
pub(crate) mod strays;
mod sys;
pub(crate) mod thread;
pub(crate) mod trace;

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};

pub(crate) use self::enter::{look_for_hold, prove_held, prove_stopping};
pub(crate) use self::sys::{SERVED, allow_tracer};
pub(crate) use self::trace::HeldProof;
pub(crate) use gantry_types::status::ExitStatus;

/// How a process ended, from a status of `waitpid`; `None` for one that has only stopped or continued.
pub(crate) fn parse_end(status: i32) -> Option<ExitStatus> {
    (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)).then(|| ExitStatus::from_wait_status(status))
}

/// How long all orphans together may take to end. One that is blocked in a system call ends later, as init's child.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(3);

/// Kills what our processes have left behind. Waits until it is gone, [`ORPHANS_END_WITHIN`] at most.
///
/// The agent is a subreaper, so these orphans are its children that it did not start itself.
pub(crate) async fn end_orphans() {
    let until = Instant::now() + ORPHANS_END_WITHIN;
    // The agent's reaper listens for this signal already, so the call cannot fail.
    let Ok(mut news) = signal(SignalKind::child()) else { return };
    while Instant::now() < until {
        let orphans = procfs::read_own_children().unwrap_or_default();
        if orphans.is_empty() {
            return;
        }
        let mut ended = false;
        for pid in orphans {
            // It may have ended by itself meanwhile. It keeps its pid until the agent collects it.
            drop(sys::kill(pid, libc::SIGKILL));
            ended |= !matches!(sys::wait(pid, libc::WNOHANG), Ok(None));
        }
        if !ended {
            drop(timeout_at(until, news.recv()).await);
        }
    }
}

/// A process, told apart from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pinned {
    /// Its pid.
    pub(crate) pid: i32,
    /// Clock ticks from boot to its start, field 22 of `/proc/PID/stat`.
    pub(crate) start_time: u64,
}

impl Pinned {
    /// Pins a process that exists now.
    ///
    /// # Errors
    /// Not found when there is no such process.
    pub(crate) fn now(pid: i32) -> std::io::Result<Self> {
        Ok(Self { pid, start_time: procfs::read_stat(pid)?.start_time })
    }

    /// Whether this same process still exists. One that ended and was not collected does.
    ///
    /// # Errors
    /// It cannot be looked at: no descriptor is left, say.
    pub(crate) fn is_there(&self) -> std::io::Result<bool> {
        Ok(self.read_stat()?.is_some())
    }

    /// Its state; `None` if it no longer exists.
    fn read_stat(&self) -> std::io::Result<Option<procfs::Stat>> {
        match procfs::read_stat(self.pid) {
            Ok(stat) => Ok(Some(stat).filter(|stat| stat.start_time == self.start_time)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Time limit for processes to stop. One that is blocked in a device or a file system stops later.
const STOPPED_WITHIN: Duration = Duration::from_secs(1);

/// Waits until processes that were sent SIGSTOP have stopped or ended. A process takes the signal only once it has a
/// processor. Times out after [`STOPPED_WITHIN`].
pub(crate) async fn stopped(mut processes: Vec<Pinned>) {
    let deadline = Instant::now() + STOPPED_WITHIN;
    loop {
        processes.retain(|process| match process.read_stat() {
            Ok(stat) => stat.is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X')),
            Err(_) => true,
        });
        if processes.is_empty() || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
pub(crate) mod test_support;
#[cfg(test)]
mod tests;
