//! Stops one thread for an instant, and lets it go as it was.
//!
//! A thread is seized, so it gets no signal and stays in its group-stop where it was in one. When this process dies, the kernel lets the thread go.
//! A thread that waits in the kernel uninterruptibly cannot stop: it is let go as soon as it can, or by the end of this process.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys;

/// How long a thread may take to stop. One that runs takes microseconds, but it must get a processor for that.
const PATIENCE: Duration = Duration::from_secs(10);

/// After that long it counts that a thread waits in the kernel uninterruptibly.
const IN_THE_KERNEL: Duration = Duration::from_millis(300);

/// The event of a stop that was asked for, and of a group-stop. Source: ptrace(2).
const PTRACE_EVENT_STOP: i32 = 128;

/// How long news is waited for at a time: another thread of this process may have taken its signal.
const GLANCE: Duration = Duration::from_millis(5);

/// Stops threads.
#[derive(Debug)]
pub(crate) struct Stopper {
    /// News of tracees.
    signals: SignalFd,
    /// Threads that did not stop in time. They are let go when they do.
    late: Vec<i32>,
}

/// Why a thread was not stopped.
#[derive(Debug)]
pub(crate) enum NotStopped {
    /// It has ended.
    Ended,
    /// It may not be traced.
    Refused(io::Error),
    /// It waits in the kernel, uninterruptibly.
    Busy,
}

/// A thread that stands still until this is dropped.
#[derive(Debug)]
pub(crate) struct Stopped {
    thread: i32,
    /// The signal that it was about to get.
    signal: i32,
    /// Somebody else has stopped its process before.
    pub(crate) before: bool,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It can only have been killed meanwhile.
        drop(sys::detach(self.thread, self.signal));
    }
}

impl Stopper {
    /// Hears of tracees by SIGCHLD, which this thread blocks from now on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new() -> io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { signals: SignalFd::with_flags(&set, flags)?, late: Vec::new() })
    }

    /// Asks some threads to stop, and gives each away as soon as it has: none stands still while another one is waited for.
    pub(crate) fn each(&mut self, threads: &[i32], mut take: impl FnMut(usize, Result<Stopped, NotStopped>)) {
        self.let_go_of_late_ones();
        let mut asked = Vec::with_capacity(threads.len());
        for (at, thread) in threads.iter().enumerate() {
            match self.ask(*thread) {
                Ok(()) => asked.push(at),
                Err(why) => take(at, Err(why)),
            }
        }
        let started = Instant::now();
        loop {
            asked.retain(|at| match sys::poll_status(threads[*at]) {
                Ok(Some(status)) if libc::WIFSTOPPED(status) => {
                    take(*at, Ok(Stopped::new(threads[*at], status)));
                    false
                }
                // It has ended, or belongs to nobody any more.
                Ok(Some(_)) | Err(_) => {
                    take(*at, Err(NotStopped::Ended));
                    false
                }
                Ok(None) => true,
            });
            let waited = started.elapsed();
            asked.retain(|at| {
                let thread = threads[*at];
                let is_late = waited >= PATIENCE || (waited >= IN_THE_KERNEL && cannot_stop(thread));
                if is_late {
                    self.late.push(thread);
                    take(*at, Err(NotStopped::Busy));
                }
                !is_late
            });
            if asked.is_empty() {
                return;
            }
            self.wait(GLANCE);
        }
    }

    fn ask(&self, thread: i32) -> Result<(), NotStopped> {
        if self.late.contains(&thread) {
            return Err(NotStopped::Busy);
        }
        sys::seize(thread).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => NotStopped::Ended,
            _ => NotStopped::Refused(error),
        })?;
        // It fails for a thread that ends, which is seen later.
        drop(sys::interrupt(thread));
        Ok(())
    }

    /// Until there is news of a tracee, or for that long.
    fn wait(&mut self, left: Duration) {
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut news = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        // A signal is no news: what there is is asked for after it.
        poll(&mut news, left).unwrap_or_default();
        while let Ok(Some(_)) = self.signals.read_signal() {}
    }

    fn let_go_of_late_ones(&mut self) {
        self.late.retain(|thread| match sys::poll_status(*thread) {
            Ok(Some(status)) if libc::WIFSTOPPED(status) => {
                drop(Stopped::new(*thread, status));
                false
            }
            Ok(None) => true,
            Ok(Some(_)) | Err(_) => false,
        });
    }
}

/// Whether a thread waits in the kernel until that is done with something. Source: proc_pid_stat(5).
fn cannot_stop(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

impl Stopped {
    fn new(thread: i32, status: i32) -> Self {
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        match event {
            // The stop that we have asked for says SIGTRAP; a group-stop the signal that has caused it.
            PTRACE_EVENT_STOP => Self { thread, signal: 0, before: signal != libc::SIGTRAP },
            // A signal was being delivered: it gets it.
            0 => Self { thread, signal, before: false },
            _ => Self { thread, signal: 0, before: false },
        }
    }
}
