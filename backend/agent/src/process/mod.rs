//! Processes on this node: starting ranks, holding them at their first instruction, releasing them, knowing how
//! they end.
//!
//! Two owners, one after the other. While ranks are being started, the thread "ranks" ([`thread`]) is their
//! only waiter: it forks them, traces them and brings them to *held* ([`hold`]). Then their pids are handed
//! over, and the [`reaper`] on the agent's main thread waits for them. Nobody ever calls `waitpid(-1)`.
//! Processes that somebody else started are [`adopted`]; those that a launcher started for us are brought to their programs by [`enter`].

pub(crate) mod adopted;
pub(crate) mod alone;
pub(crate) mod batch;
pub(crate) mod cores;
pub(crate) mod diagnose;
mod enter;
pub(crate) mod follow;
pub(crate) mod error;
pub(crate) mod hold;
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

use tokio::time::Instant;

pub(crate) use self::enter::{look_for_hold, prove_held, prove_stopping};
pub(crate) use self::sys::{SERVED, allow_tracer};
pub(crate) use self::trace::HeldProof;
pub(crate) use gantry_types::status::ExitStatus;

/// How a process ended, from what `waitpid` gave; `None` for one that has only stopped or gone on.
pub(crate) fn parse_end(status: i32) -> Option<ExitStatus> {
    (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)).then(|| ExitStatus::from_wait_status(status))
}

/// Kills what processes of ours have left behind: the agent is a subreaper, so these are its children that it did not start itself.
/// Waits until they are gone, a bounded time.
pub(crate) async fn end_orphans() {
    const ROUNDS: u32 = 50;
    for _ in 0..ROUNDS {
        let orphans = procfs::read_own_children().unwrap_or_default();
        if orphans.is_empty() {
            return;
        }
        let mut pidfds = Vec::new();
        for pid in orphans {
            // It may have ended by itself meanwhile; as long as nobody waits for it the pid is its own.
            drop(sys::kill(pid, libc::SIGKILL));
            if let Ok(pidfd) = sys::pidfd_open(pid) {
                pidfds.push((pid, pidfd));
            }
        }
        for (pid, pidfd) in pidfds {
            use std::os::fd::AsFd;
            const ENDS_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
            // A process that the kernel holds in a system call ends later, as init's child.
            drop(tokio::time::timeout(ENDS_WITHIN, sys::pidfd_ended(pidfd.as_fd())).await);
            drop(sys::wait(pid, libc::WNOHANG));
        }
    }
}

/// A process that cannot be mistaken for a later one of the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pinned {
    /// Its pid.
    pub(crate) pid: i32,
    /// Clock ticks from boot to its start, field 22 of `/proc/PID/stat`.
    pub(crate) start_time: u64,
}

impl Pinned {
    /// Pins a process that is there now.
    ///
    /// # Errors
    /// Not found when there is no such process.
    pub(crate) fn now(pid: i32) -> std::io::Result<Self> {
        Ok(Self { pid, start_time: procfs::read_stat(pid)?.start_time })
    }

    /// Whether this very process is still there; one that ended and was not collected is.
    pub(crate) fn is_there(&self) -> bool {
        procfs::read_stat(self.pid).is_ok_and(|stat| stat.start_time == self.start_time)
    }
}

/// Time limit for processes to stop. One that waits for a device or a file system stops later.
const STOPPED_WITHIN: Duration = Duration::from_secs(1);

/// Waits until processes that SIGSTOP was sent to have stopped or ended: a process that has no processor takes it later. Gives up after
/// [`STOPPED_WITHIN`].
pub(crate) async fn stopped(mut processes: Vec<Pinned>) {
    let deadline = Instant::now() + STOPPED_WITHIN;
    loop {
        processes.retain(|process| {
            let stat = procfs::read_stat(process.pid);
            stat.is_ok_and(|stat| {
                stat.start_time == process.start_time && !matches!(stat.state, 'T' | 't' | 'Z' | 'X')
            })
        });
        if processes.is_empty() || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
