//! Who waits for the processes that this agent owns, once they have started.
//!
//! It collects its own pids and never "any child": other parts of the process have children of their own, and threads that start
//! processes wait for those. The kernel is asked who has ended, without collecting it.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ExitStatus, parse_end, procfs, sys};

/// That an owned process has ended. Its pid may be another process's from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exited {
    /// Which one.
    pub(crate) pid: i32,
    /// How.
    pub(crate) status: ExitStatus,
}

/// The table of owned children. Lives on the agent's main thread, in its only runtime.
#[derive(Debug)]
pub(crate) struct Reaper {
    news: Signal,
    owned: BTreeSet<i32>,
    ended: VecDeque<Exited>,
    /// Owned since the table was last gone through: they may have ended before.
    fresh: Vec<i32>,
    /// Those that were waited for since [`Reaper::take_collected`] was last asked.
    collected: Vec<i32>,
    /// Whether something may have ended since the table was last gone through.
    look: bool,
    orphans: bool,
}

impl Reaper {
    /// Begins to listen for SIGCHLD. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// When the signal cannot be listened for.
    pub(crate) fn new() -> io::Result<Self> {
        let news = signal(SignalKind::child())?;
        Ok(Self {
            news,
            owned: BTreeSet::new(),
            ended: VecDeque::new(),
            fresh: Vec::new(),
            collected: Vec::new(),
            look: false,
            orphans: false,
        })
    }

    /// Makes this process the one that orphans of its descendants come to, and collects them.
    ///
    /// From here on a child of the *main thread* must be known to [`Reaper::own`] before the next `await`, or
    /// it may be collected as an orphan. Children of other threads are safe.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn adopt_orphans(&mut self) -> io::Result<()> {
        nix::sys::prctl::set_child_subreaper(true)?;
        self.orphans = true;
        Ok(())
    }

    /// Takes over the waiting for a child of ours, which may have ended already.
    pub(crate) fn own(&mut self, pid: i32) {
        self.owned.insert(pid);
        self.fresh.push(pid);
    }

    /// Whether `pid` is owned and not collected: as long as it is, it means no other process.
    pub(crate) fn owns(&self, pid: i32) -> bool {
        self.owned.contains(&pid)
    }

    /// Processes that have been waited for since this was last asked. [`Reaper::next`] tells of each of them, sooner or later.
    pub(crate) fn take_collected(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.collected)
    }

    /// Waits until an owned process ends. That one stops or goes on is not told. Can be dropped and called
    /// again without losing one.
    pub(crate) async fn next(&mut self) -> Exited {
        loop {
            for pid in std::mem::take(&mut self.fresh) {
                self.collect_owned(pid);
            }
            if std::mem::take(&mut self.look) {
                self.collect();
            }
            if let Some(exited) = self.ended.pop_front() {
                return exited;
            }
            if self.news.recv().await.is_none() {
                // The runtime is ending.
                std::future::pending::<()>().await;
            }
            self.look = true;
        }
    }

    fn collect(&mut self) {
        // The kernel names one that has ended. To ask for each of many ranks at each one's end takes longer than the ends.
        while let Some(pid) = sys::peek_ended_child() {
            if !self.collect_owned(pid) {
                // An orphan, or a child that another thread waits for. It hides the others.
                return self.collect_all();
            }
        }
    }

    /// False: it is not owned, or has not ended.
    fn collect_owned(&mut self, pid: i32) -> bool {
        let Some(exited) = self.owned.contains(&pid).then(|| collect(pid)).flatten() else { return false };
        self.owned.remove(&pid);
        self.collected.push(pid);
        self.ended.push_back(exited);
        true
    }

    fn collect_all(&mut self) {
        for pid in self.owned.clone() {
            self.collect_owned(pid);
        }
        if self.orphans {
            self.collect_orphans();
        }
    }

    fn collect_orphans(&self) {
        // Without CONFIG_PROC_CHILDREN they stay until we end, and do no harm.
        for pid in procfs::read_own_children().unwrap_or_default() {
            if !self.owns(pid) {
                drop(sys::wait(pid, libc::WNOHANG));
            }
        }
    }
}

/// Waits for a process if it has ended.
fn collect(pid: i32) -> Option<Exited> {
    match sys::wait(pid, libc::WNOHANG) {
        Ok(status) => status.and_then(parse_end).map(|status| Exited { pid, status }),
        // Not our child, or collected by somebody who should not: nobody can tell any more.
        Err(_) => Some(Exited { pid, status: ExitStatus::Unknown }),
    }
}
