//! Holds a program that the launcher starts indirectly: behind a shell script, `env`, `numactl` or a container's
//! starter.
//!
//! The agent traces the rank and all its descendants through forks and execs, until one of them executes a program
//! whose path matches. That process is held and is the rank from then on. Once every rank is held, the agent detaches
//! from all others. A separate thread does all of it. Its tracees are all that it can wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use gantry_shared::glob::is_match;
use gantry_shared::wire::message::AdoptRanks;
use nix::unistd::gettid;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use super::cancel::{Cancellable, GiveUpOnDrop, given_up};
use super::enter::{explain, prove_held, prove_stopped, refused, waiting};
use super::error::{HoldFailure, StartError};
use super::hold::StartFailure;
use super::pauses::Pauses;
use super::trace::{self, EndWatch, HeldProof, Stop};
use super::{procfs, sys};

/// Most programs that an error message names when none matched.
const MOST_NAMED: usize = 8;

/// How long the report of the hold waits until the other processes are let go.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);

/// Which program is to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A shell pattern for paths: `*` is any text, `?` any character. A pattern without a slash matches the last part
    /// of a path.
    Path(String),
    /// The program behind a wrapper of that name: the first that a child of the wrapper executes. If the rank's first
    /// program has another name, that one.
    Behind(String),
}

/// A program that a traced process has executed.
struct Became<'a> {
    exe: &'a Path,
    /// Its command line.
    words: &'a [PathBuf],
    /// The process is not the one that the launcher started.
    is_child: bool,
    /// The launcher's process has executed a program before this one.
    is_later: bool,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self::Path(text.to_owned())
    }

    pub(crate) fn behind(wrapper: &str) -> Self {
        Self::Behind(wrapper.to_owned())
    }

    /// The pattern that an order asks for. `None` if the ranks are to be held as they are.
    pub(crate) fn of(order: &AdoptRanks) -> Option<Self> {
        let AdoptRanks { hold_at, wrapper, .. } = order;
        hold_at.as_deref().map(Self::new).or_else(|| wrapper.as_deref().map(Self::behind))
    }

    fn fits(&self, it: &Became<'_>) -> bool {
        match self {
            Self::Path(_) => self.matches(it.exe),
            Self::Behind(_) if it.is_child => true,
            Self::Behind(wrapper) => !it.is_later && !is_called(wrapper, it.exe, it.words),
        }
    }

    fn matches(&self, path: &Path) -> bool {
        let Self::Path(pattern) = self else { return false };
        let whole = path.as_os_str();
        let text = if pattern.contains('/') { whole } else { path.file_name().unwrap_or(whole) };
        is_match(pattern.as_bytes(), text.as_bytes())
    }

    /// The pattern as text for error messages.
    fn show(&self) -> String {
        match self {
            Self::Path(pattern) => pattern.clone(),
            Self::Behind(wrapper) => format!("a child of {wrapper}"),
        }
    }
}

/// Whether a process runs the program of that name, or an interpreter runs a script of that name.
pub(crate) fn is_called(name: &str, exe: &Path, words: &[PathBuf]) -> bool {
    let is = |path: &Path| path.file_name() == Some(OsStr::new(name));
    is(exe) || words.iter().take(2).any(|word| is(word))
}

/// Traced ranks that wait in our shim. They are ended if they do not become held.
#[derive(Debug)]
pub(crate) struct Follower(Cancellable<Result<Vec<(i32, HeldProof)>, StartFailure>>);

impl Follower {
    /// Seizes all of `pids` and, from then on, their descendants.
    ///
    /// # Errors
    /// The first that may not be traced. None of them is left then.
    pub(crate) async fn start(pids: Vec<i32>, pattern: Pattern) -> Result<Self, StartFailure> {
        Self::start_with(pids, pattern, Chase::seize).await
    }

    async fn start_with(
        pids: Vec<i32>,
        pattern: Pattern,
        seize: fn(&mut Chase) -> Result<(), StartFailure>,
    ) -> Result<Self, StartFailure> {
        let batch = GiveUpOnDrop::default();
        let (ready, seized) = oneshot::channel();
        let (told, result) = oneshot::channel();
        let shared = Arc::clone(&batch.0);
        let thread = Builder::new().name("follow".to_owned()).spawn(move || {
            let mut chase = Chase::new(&pids, pattern, shared);
            let started = seize(&mut chase);
            let failed = started.is_err();
            if ready.send(started).is_ok() && !failed {
                chase.run(told);
            }
        });
        thread.map_err(|source| StartFailure { index: 0, error: StartError::Fork { source } })?;
        seized.await.unwrap_or_else(|_| Err(given_up()))?;
        Ok(Self(Cancellable { batch, result }))
    }

    /// As [`Follower::start`], for ranks that are held at their first instruction. Ranks that match already stay held;
    /// the others go on from there.
    ///
    /// # Errors
    /// As [`Follower::start`]; or a rank is not held.
    pub(crate) async fn start_held(pids: Vec<i32>, pattern: Pattern) -> Result<Self, StartFailure> {
        Self::start_with(pids, pattern, Chase::seize_held).await
    }

    /// Waits until a program of every rank is held, at most until `deadline`. Returns the held processes in the order
    /// of the ranks.
    ///
    /// # Errors
    /// The first rank none of whose programs matches; [`StartError::GivenUp`] after `deadline`. None of them is left
    /// then.
    pub(crate) async fn hold(mut self, deadline: Instant) -> Result<Vec<(i32, HeldProof)>, StartFailure> {
        self.0.wait(deadline).await.unwrap_or_else(|| Err(given_up()))
    }
}

/// State of the tracing thread.
struct Chase {
    pattern: Pattern,
    ranks: Vec<Chased>,
    /// The found processes, and all in `traced`.
    batch: Arc<Batch>,
    /// Every traced thread, and the rank that it descends from.
    traced: BTreeMap<i32, usize>,
    /// Threads that stopped before their parent's fork event named their rank.
    strangers: BTreeSet<i32>,
}

struct Chased {
    pid: i32,
    found: Option<(i32, HeldProof)>,
    /// Programs that it has executed so far.
    became: Vec<PathBuf>,
}

impl Chase {
    fn new(pids: &[i32], pattern: Pattern, batch: Arc<Batch>) -> Self {
        let ranks = pids.iter().map(|&pid| Chased { pid, found: None, became: Vec::new() }).collect();
        Self { pattern, ranks, batch, traced: BTreeMap::new(), strangers: BTreeSet::new() }
    }

    fn seize(&mut self) -> Result<(), StartFailure> {
        (0..self.ranks.len()).try_for_each(|index| self.seize_one(index))
    }

    fn seize_one(&mut self, index: usize) -> Result<(), StartFailure> {
        let pid = self.ranks.get(index).map_or(0, |rank| rank.pid);
        if !self.batch.add(pid) {
            return Err(StartFailure { index, error: StartError::GivenUp { program: waiting(pid) } });
        }
        if let Err(source) = sys::trace_seize_all(pid) {
            // While the process is there: its program and its tracer are part of the message.
            let error = refused(pid, source);
            self.batch.give_up();
            return Err(StartFailure { index, error });
        }
        self.traced.insert(pid, index);
        Ok(())
    }

    /// Checks and traces all ranks before the first goes on.
    fn seize_held(&mut self) -> Result<(), StartFailure> {
        for index in 0..self.ranks.len() {
            let Some(rank) = self.ranks.get_mut(index) else { continue };
            let proof = prove_held(rank.pid).map_err(|error| {
                self.batch.give_up();
                StartFailure { index, error }
            })?;
            let (exe, words) = read_program(rank.pid);
            if self.pattern.fits(&Became { exe: &exe, words: &words, is_child: false, is_later: false }) {
                rank.found = Some((rank.pid, proof));
                // Add it to the batch: if another rank fails, this one is killed too.
                if !self.batch.add(rank.pid) {
                    return Err(StartFailure { index, error: StartError::GivenUp { program: exe } });
                }
            } else {
                rank.became.push(exe);
                self.seize_one(index)?;
            }
        }
        for &pid in self.traced.keys() {
            // A rank that has ended meanwhile is reported by the wait.
            drop(sys::kill(pid, libc::SIGCONT));
        }
        Ok(())
    }

    /// Tells when all ranks are held, or one cannot be. Then all that is still traced dies with this thread.
    fn run(mut self, told: oneshot::Sender<Result<Vec<(i32, HeldProof)>, StartFailure>>) {
        let result =
            self.hold().map_err(|failure| if self.batch.is_given_up() { given_up() } else { failure });
        match &result {
            Ok(_) => {
                self.let_go();
                if !self.batch.hand_over() {
                    return;
                }
            }
            Err(_) => self.batch.give_up(),
        }
        let all_held = result.is_ok();
        // If the receiver is gone, its owner has cancelled the start and so killed the ranks.
        drop(told.send(result));
        while all_held && let Ok(tid) = sys::wait_for_any(0) {
            self.detach(tid);
        }
    }

    fn hold(&mut self) -> Result<Vec<(i32, HeldProof)>, StartFailure> {
        while self.ranks.iter().any(|rank| rank.found.is_none()) {
            let tid = sys::wait_for_any(0)
                .map_err(|source| self.failed(0, HoldFailure::of("wait for it")(source)))?;
            let collected = self.batch.collect(tid);
            if self.batch.is_given_up() {
                return Err(given_up());
            }
            // Another thread may have killed it meanwhile. Then another report follows.
            if let Ok(Some(status)) = collected {
                self.take(tid, status)?;
            }
        }
        Ok(self.ranks.iter().filter_map(|rank| rank.found).collect())
    }

    fn take(&mut self, tid: i32, status: i32) -> Result<(), StartFailure> {
        let stop = trace::classify(status);
        let Some(&index) = self.traced.get(&tid) else {
            // The number of one that has ended is free: the next fork event may name another thread by it.
            match stop {
                Stop::Ended(_) => self.strangers.remove(&tid),
                _ => self.strangers.insert(tid),
            };
            return Ok(());
        };
        let went_on = match stop {
            Stop::Ended(_) => return self.ended(tid, index),
            Stop::Exec => return self.became(tid, index),
            Stop::Child => {
                if let Ok(child) = sys::trace_event(tid)
                    && ((self.strangers.remove(&child) && sys::trace_continue(child, 0).is_ok())
                        || is_ours(&procfs::read_status(child)))
                {
                    self.traced.insert(child, index);
                    self.batch.add(child);
                }
                sys::trace_continue(tid, 0)
            }
            Stop::Signal(signal) => sys::trace_continue(tid, signal),
            Stop::Group => sys::trace_listen(tid),
            Stop::Other => sys::trace_continue(tid, 0),
        };
        // A tracee that was killed in its stop cannot go on. The next wait reports its end.
        match went_on {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(self.failed(index, HoldFailure::of("let it go on")(error)))
            }
            _ => Ok(()),
        }
    }

    fn ended(&mut self, tid: i32, index: usize) -> Result<(), StartFailure> {
        self.traced.remove(&tid);
        let is_over = !self.traced.values().any(|rank| *rank == index);
        match self.ranks.get(index) {
            Some(rank) if is_over && rank.found.is_none() => {
                let mut became = rank.became.clone();
                became.truncate(MOST_NAMED);
                let error = StartError::NoneFits { pattern: self.pattern.show(), became };
                Err(StartFailure { index, error })
            }
            _ => Ok(()),
        }
    }

    /// Handles an exec event. `execve` has ended the other threads of the process, without an event for each.
    fn became(&mut self, pid: i32, index: usize) -> Result<(), StartFailure> {
        let former = sys::trace_event(pid).unwrap_or(pid);
        if former != pid {
            self.traced.remove(&former);
            self.batch.forget(former);
        }
        let (exe, words) = read_program(pid);
        let rank = self.ranks.get(index);
        let is_found = rank.is_some_and(|rank| rank.found.is_some());
        let it = Became {
            exe: &exe,
            words: &words,
            is_child: rank.is_some_and(|rank| rank.pid != pid),
            is_later: rank.is_some_and(|rank| !rank.became.is_empty()),
        };
        if is_found || !self.pattern.fits(&it) {
            if let Some(rank) = self.ranks.get_mut(index) {
                rank.became.push(exe);
            }
            return sys::trace_continue(pid, 0)
                .map_err(|source| self.failed(index, HoldFailure::of("let it go on")(source)));
        }
        let proof = trace::leave_stopped(pid).and_then(|place| prove_stopped(pid, place));
        let proof = proof.map_err(|failure| self.failed(index, failure))?;
        self.traced.remove(&pid);
        if let Some(rank) = self.ranks.get_mut(index) {
            rank.found = Some((pid, proof));
        }
        Ok(())
    }

    /// Detaches from all that is still traced. Only a stopped tracee can be detached. Some do not stop for a while: one
    /// that waits in `vfork` for its child stops when the child has executed its program.
    fn let_go(&self) {
        for &tid in &self.strangers {
            drop(sys::trace_detach(tid, 0));
        }
        for &tid in self.traced.keys() {
            drop(sys::trace_interrupt(tid));
        }
        let mut pauses = Pauses::until((Instant::now() + LET_GO_WITHIN).into_std());
        loop {
            match sys::wait_for_any(libc::WNOHANG) {
                Ok(0) if pauses.pause() => {}
                Ok(0) | Err(_) => return,
                Ok(tid) => self.detach(tid),
            }
        }
    }

    /// Detaches from a tracee that has stopped. If it has just made another, that one is a tracee too, and its own stop
    /// follows.
    fn detach(&self, tid: i32) {
        if let Ok(Some(status)) = self.batch.collect(tid) {
            let signal = match trace::classify(status) {
                Stop::Signal(signal) => signal,
                _ => 0,
            };
            // One that was killed in its stop needs no detach.
            drop(sys::trace_detach(tid, signal));
        }
    }

    fn failed(&self, index: usize, failure: HoldFailure) -> StartFailure {
        let pid = self.ranks.get(index).map_or(0, |rank| rank.pid);
        StartFailure { index, error: explain(failure, pid) }
    }
}

/// Whether this thread traces the one with that status. One whose end was reported has no tracer, even if its parent has
/// not collected it. Its number may be another's by now. If its status cannot be read, it must not stay stopped.
fn is_ours(status: &io::Result<procfs::Status>) -> bool {
    match status {
        Ok(status) => status.tracer == gettid().as_raw(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The program that a process runs, and its command line.
fn read_program(pid: i32) -> (PathBuf, Vec<PathBuf>) {
    (procfs::read_exe(pid).unwrap_or_default(), procfs::read_words(pid).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_wrapper_is_what_its_child_becomes() {
        let pattern = Pattern::behind("box");
        let check = |exe: &str, words: &[&str], is_child: bool, is_later: bool, expected: bool| {
            let words: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
            let it = Became { exe: Path::new(exe), words: &words, is_child, is_later };
            assert_eq!(pattern.fits(&it), expected, "{exe} {words:?} {is_child} {is_later}");
        };
        check("/bin/app", &["app"], false, false, true);
        check("/bin/box", &["box", "app"], false, false, false);
        check("/bin/sh", &["/bin/sh", "./box", "app"], false, false, false);
        check("/usr/libexec/starter", &["starter"], false, true, false);
        check("/bin/app", &["app"], true, true, true);
        check("/bin/sh", &["/bin/sh", "./script", "box"], false, false, true);
    }

    #[test]
    fn a_thread_that_has_ended_before_its_rank_was_known_is_forgotten() {
        const STOPPED: i32 = (libc::SIGSTOP << 8) | 0x7f;
        let mut chase = Chase::new(&[], Pattern::new("app"), Arc::default());
        for ended_after in [&[][..], &[STOPPED]] {
            for status in ended_after {
                chase.take(7, *status).unwrap();
                assert_eq!(chase.strangers, BTreeSet::from([7]));
            }
            chase.take(7, 0).unwrap();
            assert_eq!(chase.strangers, BTreeSet::new());
        }
    }

    #[test]
    fn a_process_is_followed_unless_it_is_gone_or_another_traces_it() {
        let own = std::process::id().cast_signed();
        let traced_by = |tracer: i32| Ok(procfs::Status { tracer, ..procfs::read_status(own).unwrap() });
        assert!(is_ours(&traced_by(gettid().as_raw())));
        assert!(!is_ours(&traced_by(0)) && !is_ours(&traced_by(1)));
        assert!(!is_ours(&procfs::read_status(i32::MAX)));
        assert!(is_ours(&Err(io::Error::from_raw_os_error(libc::EMFILE))));
    }

    #[test]
    fn patterns_are_for_paths_or_for_names() {
        let check = |pattern: &str, path: &str, expected: bool| {
            assert_eq!(Pattern::new(pattern).matches(Path::new(path)), expected, "{pattern} {path}");
        };
        check("app", "/opt/bin/app", true);
        check("app*", "/opt/bin/app-2", true);
        check("app", "/opt/bin/apps", false);
        check("*/bin/app", "/opt/bin/app", true);
        check("/bin/app", "/opt/bin/app", false);
        check("/opt/*/a?p", "/opt/x/bin/app", true);
        check("*", "/anything", true);
        check("", "/anything", false);
    }
}
