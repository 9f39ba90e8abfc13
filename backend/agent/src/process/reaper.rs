//! Waits for the processes that this agent owns, once they have started.
//!
//! The reaper collects its own pids and never "any child". Other parts of the agent have children of their own, and
//! threads that start processes wait for those. The reaper asks the kernel for a child that has ended, without
//! collecting it.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ExitStatus, parse_end, procfs, sys};

/// End of an owned process. Another process may have its pid from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exited {
    /// Pid of the process.
    pub(crate) pid: i32,
    /// How it ended.
    pub(crate) status: ExitStatus,
}

/// The table of owned children. Lives on the agent's main thread, in its only runtime.
#[derive(Debug)]
pub(crate) struct Reaper {
    news: Signal,
    owned: BTreeSet<i32>,
    ended: VecDeque<Exited>,
    /// Owned since the last pass over the table. They may have ended before that.
    fresh: Vec<i32>,
    /// Collected since the last call of [`Reaper::take_collected`].
    collected: Vec<i32>,
    /// Whether a child may have ended since the last pass over the table.
    look: bool,
    orphans: bool,
}

impl Reaper {
    /// Begins to listen for SIGCHLD. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// When the runtime cannot listen for the signal.
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

    /// Makes this process a subreaper: orphans of its descendants become its children. Collects them.
    ///
    /// From here on, register a child of the *main thread* with [`Reaper::own`] before the next `await`. Otherwise the
    /// reaper may collect it as an orphan. Children of other threads are safe.
    ///
    /// # Errors
    /// The kernel's error.
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

    /// Whether `pid` is owned and not collected. As long as it is, no other process has this pid.
    pub(crate) fn owns(&self, pid: i32) -> bool {
        self.owned.contains(&pid)
    }

    /// Processes that were collected since the last call. [`Reaper::next`] reports each of them, sooner or later.
    pub(crate) fn take_collected(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.collected)
    }

    /// Waits until an owned process ends. Stops and continues are not reported. Cancel safe: a later call reports what
    /// a dropped one did not.
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
        // The kernel names a child that has ended. At the end of each of many ranks, asking for every rank would take
        // longer than the ends themselves.
        while let Some(pid) = sys::peek_ended_child() {
            if !self.collect_owned(pid) {
                // This is an orphan, or a child that another thread waits for. It hides the others.
                return self.collect_all();
            }
        }
    }

    /// False if it is not owned, or has not ended.
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
        // Without CONFIG_PROC_CHILDREN they stay zombies until the agent ends. That does no harm.
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
        // Not our child, or collected elsewhere by mistake: the status is lost.
        Err(_) => Some(Exited { pid, status: ExitStatus::Unknown }),
    }
}
