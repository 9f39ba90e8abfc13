//! The processes of one start, which another thread can cancel.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::trace::EndWatch;
use super::{ExitStatus, parse_end, sys};

/// The pids of a batch that is being started. Another thread can cancel the start: the batch is then killed, and its
/// start fails.
///
/// A pid is in it only until the process is collected, or the batch is handed over.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    state: Mutex<BatchState>,
    /// A process that the kernel has started and whose pid its starter does not know yet; 0 for none. The kernel writes
    /// it.
    starting: AtomicI32,
}

#[derive(Debug, Default)]
struct BatchState {
    given_up: bool,
    handed_over: bool,
    pids: Vec<i32>,
}

impl Batch {
    /// A batch of processes that have started.
    pub(super) fn of(pids: Vec<i32>) -> Self {
        Self { state: Mutex::new(BatchState { pids, ..BatchState::default() }), ..Self::default() }
    }

    /// Cancels the start: kills the batch's processes and lets no more be started. Does not wait. A batch that was
    /// handed over is left alone.
    pub(crate) fn give_up(&self) {
        let mut state = self.lock();
        if state.handed_over {
            return;
        }
        state.given_up = true;
        for &pid in &state.pids {
            kill(pid);
        }
        match self.starting.load(Ordering::SeqCst) {
            0 => {}
            pid => kill(pid),
        }
    }

    /// Starts a process with `start`, which has the kernel write the pid to a place where [`Batch::give_up`] finds it.
    pub(super) fn starting<T>(
        &self,
        start: impl FnOnce(&AtomicI32) -> io::Result<(i32, T)>,
    ) -> io::Result<(i32, T)> {
        let started = start(&self.starting);
        let mut state = self.lock();
        self.starting.store(0, Ordering::SeqCst);
        let (pid, more) = started?;
        state.pids.push(pid);
        if state.given_up {
            kill(pid);
        }
        Ok((pid, more))
    }

    /// Whether the start was cancelled.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// Adds a child. False if the start was cancelled; the new child is then killed like the others.
    pub(super) fn add(&self, pid: i32) -> bool {
        let mut state = self.lock();
        state.pids.push(pid);
        if state.given_up {
            kill(pid);
        }
        !state.given_up
    }

    /// Takes out a pid that is no process any more.
    pub(super) fn forget(&self, pid: i32) {
        self.lock().pids.retain(|&other| other != pid);
    }

    /// Hands the batch over: from here on it cannot be cancelled. False if it was cancelled before.
    pub(super) fn hand_over(&self) -> bool {
        let mut state = self.lock();
        if !state.given_up {
            state.handed_over = true;
            state.pids.clear();
        }
        !state.given_up
    }

    /// Kills and collects all processes that are left.
    pub(super) fn end(&self) {
        self.give_up();
        loop {
            let Some(pid) = self.lock().pids.last().copied() else { break };
            if self.end_process(pid).is_none() {
                self.forget(pid);
            }
        }
    }

    /// Kills `pid` and collects it; skips the stops that it still reports. `None` if `pid` is neither our child nor our
    /// tracee.
    pub(super) fn end_process(&self, pid: i32) -> Option<ExitStatus> {
        kill(pid);
        loop {
            sys::wait_for_news(pid).ok()?;
            let status = self.collect(pid).ok()?;
            if let Some(ended) = status.and_then(parse_end) {
                return Some(ended);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndWatch for Batch {
    fn collect(&self, pid: i32) -> io::Result<Option<i32>> {
        let mut state = self.lock();
        let status = sys::wait(pid, libc::__WALL | libc::WUNTRACED | libc::WNOHANG)?;
        if status.is_some_and(|status| parse_end(status).is_some()) {
            state.pids.retain(|&other| other != pid);
        }
        Ok(status)
    }
}

fn kill(pid: i32) {
    // Fails only for a process that has ended.
    drop(sys::kill(pid, libc::SIGKILL));
}
