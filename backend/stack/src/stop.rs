//! Stops one thread for an instant, and lets it continue unchanged.
//!
//! The thread is seized, so it gets no signal, and a group-stop stays as it is. A thread in an uninterruptible system
//! call cannot stop, and what has not stopped cannot be detached. So a thread of this process is the tracer for one
//! request only: when it ends, or this process dies, the kernel detaches all that it has seized, and drops their
//! pending stops.

use std::io;
use std::os::fd::AsFd;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use gantry_shared::ptrace;

use crate::refusal;

/// How long a thread may take to stop. A running thread takes microseconds, but it must get a processor first.
const PATIENCE: Duration = Duration::from_secs(10);

/// After this time, a thread in an uninterruptible system call is reported as such.
const IN_THE_KERNEL: Duration = Duration::from_millis(300);

/// How long to wait for one tracer of a thread. Another reader of stacks, and an agent that holds ranks, let go within
/// milliseconds; a debugger stays.
const TRACED: Duration = Duration::from_millis(300);

/// How long to wait for tracers that take turns, as several readers of stacks do on a busy machine.
const TURNS: Duration = Duration::from_secs(5);

/// How often a refused thread without a tracer is asked again. Its tracer may have let go of it just then.
const ATTEMPTS: u32 = 10;

/// The event of a requested stop and of a group-stop. Source: ptrace(2).
const PTRACE_EVENT_STOP: i32 = 128;

/// How long one wait lasts: another thread of this process may have taken the signal.
const GLANCE: Duration = Duration::from_millis(5);

/// Stops threads.
#[derive(Debug)]
pub(crate) struct Stopper {
    /// SIGCHLD of the traced threads.
    signals: SignalFd,
    /// Threads that did not stop in time. As long as they are in such a system call, they are not waited for again.
    late: Vec<i32>,
}

/// Why a thread was not stopped.
#[derive(Debug)]
pub(crate) enum NotStopped {
    /// It has ended.
    Ended,
    /// Another process traces it, and did not let go. This is that process.
    Traced(i32),
    /// It may not be traced.
    Refused(io::Error),
    /// It is in an uninterruptible system call.
    Busy,
}

/// What became of a request to stop.
#[derive(Debug)]
enum Asked {
    /// The thread will stop.
    Stops,
    /// Another process traces it.
    TracedBy(i32),
}

/// A thread that another process traces.
#[derive(Debug)]
struct Traced {
    at: usize,
    /// The tracer, and since when it has been seen. Absent before the first request.
    by: Option<(i32, Instant)>,
}

impl Traced {
    /// Notes the tracer of the moment. Returns whether it is worth waiting for: it came a short time ago.
    fn may_end(&mut self, by: i32, started: Instant, now: Instant) -> bool {
        let since = self.by.filter(|(before, _)| *before == by).map_or(now, |(_, since)| since);
        self.by = Some((by, since));
        now.saturating_duration_since(since) < TRACED && now.saturating_duration_since(started) < TURNS
    }
}

/// A thread that is stopped until this is dropped.
#[derive(Debug)]
pub(crate) struct Stopped {
    thread: i32,
    /// A signal whose delivery was interrupted.
    signal: i32,
    /// The process was stopped before by a signal.
    pub(crate) before: bool,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Detaching fails only for a thread that was killed meanwhile.
        drop(ptrace::detach(self.thread, self.signal));
    }
}

impl Stopper {
    /// Receives the news of traced threads by SIGCHLD, which the calling thread blocks from now on.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn new() -> io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { signals: SignalFd::with_flags(&set, flags)?, late: Vec::new() })
    }

    /// Asks threads to stop, and hands each one out as soon as it has stopped. So no thread stays stopped because of
    /// another one. A thread has one tracer at a time: waits for another one to let go.
    ///
    /// # Errors
    /// This process may have no more threads.
    pub(crate) fn each(
        &mut self,
        threads: &[i32],
        take: impl FnMut(usize, Result<Stopped, NotStopped>) + Send,
    ) -> io::Result<()> {
        let tracer = Builder::new().name("tracer".to_owned());
        scope(|scope| tracer.spawn_scoped(scope, || self.trace(threads, take)).map(drop))
    }

    fn trace(&mut self, threads: &[i32], mut take: impl FnMut(usize, Result<Stopped, NotStopped>)) {
        self.late.retain(|thread| cannot_stop(*thread));
        let mut to_ask: Vec<Traced> = (0..threads.len()).map(|at| Traced { at, by: None }).collect();
        let mut asked: Vec<(usize, Instant)> = Vec::with_capacity(threads.len());
        let started = Instant::now();
        loop {
            to_ask.retain_mut(|it| {
                let why = match self.ask(threads[it.at]) {
                    Ok(Asked::Stops) => {
                        asked.push((it.at, Instant::now()));
                        return false;
                    }
                    Ok(Asked::TracedBy(tracer)) if it.may_end(tracer, started, Instant::now()) => {
                        return true;
                    }
                    Ok(Asked::TracedBy(tracer)) => NotStopped::Traced(tracer),
                    Err(why) => why,
                };
                take(it.at, Err(why));
                false
            });
            asked.retain(|(at, _)| match ptrace::wait(threads[*at], libc::__WALL | libc::WNOHANG) {
                Ok(Some(status)) if libc::WIFSTOPPED(status) => {
                    take(*at, Ok(Stopped::new(threads[*at], status)));
                    false
                }
                // The thread has ended, or is not traced any more.
                Ok(Some(_)) | Err(_) => {
                    take(*at, Err(NotStopped::Ended));
                    false
                }
                Ok(None) => true,
            });
            asked.retain(|(at, since)| {
                let (thread, waited) = (threads[*at], since.elapsed());
                let is_late = waited >= PATIENCE || (waited >= IN_THE_KERNEL && cannot_stop(thread));
                if is_late {
                    self.late.push(thread);
                    take(*at, Err(NotStopped::Busy));
                }
                !is_late
            });
            if asked.is_empty() && to_ask.is_empty() {
                return;
            }
            self.wait(GLANCE);
        }
    }

    /// Asks a thread to stop.
    fn ask(&self, thread: i32) -> Result<Asked, NotStopped> {
        if self.late.contains(&thread) {
            return Err(NotStopped::Busy);
        }
        let mut attempts = 1..=ATTEMPTS;
        let refused = loop {
            let Err(error) = ptrace::seize(thread, 0) else { break None };
            match (error.raw_os_error(), refusal::tracer_of(thread)) {
                (Some(libc::ESRCH), _) => return Err(NotStopped::Ended),
                (Some(libc::EPERM), Some(tracer)) => return Ok(Asked::TracedBy(tracer)),
                (Some(libc::EPERM), None) if attempts.next().is_some() => {}
                _ => break Some(error),
            }
        };
        if let Some(error) = refused {
            return Err(NotStopped::Refused(error));
        }
        // Interrupting fails for an ending thread; its status shows that later.
        drop(ptrace::interrupt(thread));
        Ok(Asked::Stops)
    }

    /// Waits for news of a traced thread, `left` at most.
    fn wait(&mut self, left: Duration) {
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut news = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        // A signal may stand for several threads, so all statuses are read afterwards.
        poll(&mut news, left).unwrap_or_default();
        while let Ok(Some(_)) = self.signals.read_signal() {}
    }
}

/// Whether a thread is in an uninterruptible system call. Source: proc_pid_stat(5).
fn cannot_stop(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

impl Stopped {
    fn new(thread: i32, status: i32) -> Self {
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        match event {
            // The requested stop reports SIGTRAP; a group-stop reports the signal that caused it.
            PTRACE_EVENT_STOP => Self { thread, signal: 0, before: signal != libc::SIGTRAP },
            // A signal was being delivered. Detaching delivers it.
            0 => Self { thread, signal, before: false },
            _ => Self { thread, signal: 0, before: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracers_that_take_turns_are_waited_for_and_one_that_stays_is_not() {
        let started = Instant::now();
        let mut traced = Traced { at: 0, by: None };
        let mut check = |millis, by, expected| {
            let now = started + Duration::from_millis(millis);
            assert_eq!(traced.may_end(by, started, now), expected, "after {millis} ms, tracer {by}");
        };
        check(0, 7, true);
        check(299, 7, true);
        check(300, 8, true);
        check(599, 8, true);
        check(600, 8, false);
        // They take turns for too long.
        check(4999, 7, true);
        check(5000, 8, false);
    }
}
