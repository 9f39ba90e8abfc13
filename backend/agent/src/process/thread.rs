//! The thread "ranks": the parent and tracer of every rank that this agent starts.
//!
//! It is one thread for two reasons in the kernel. Ptrace requests must come from the thread that seized. PDEATHSIG is
//! sent when the *thread* that forked ends. So the thread lives as long as its handle.
//!
//! During a rank's start only this thread waits for it. When [`RanksThread::start`] returns, the rank is handed over:
//! this thread does not touch it again, and the caller waits for it, by pid.

use std::cell::OnceCell;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::SigSet;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::batch::Batch;
use super::cancel::{COLLECT_AT_MOST, Cancellable, GiveUpOnDrop, given_up};
use super::enter;
use super::error::StartError;
use super::hold::{Hold, StartFailure, StartedRank, end_started, start_ranks};
use super::spawn::ProcessSpec;
use super::trace::HeldProof;

/// The handle of the thread, which starts with its first job. Dropping the handle ends the thread, and with it all ranks
/// that are to die with their parent. Dropping does not wait for that; [`RanksThread::close`] does.
#[derive(Debug, Default)]
pub(crate) struct RanksThread(OnceCell<(Jobs, JoinHandle<()>)>);

type Job = Box<dyn FnOnce() + Send>;

/// The jobs of the thread, in order.
#[derive(Debug, Clone)]
struct Jobs(mpsc::Sender<Job>);

impl Jobs {
    /// Has the thread work at the batch.
    fn ask<T: Send + 'static>(
        &self,
        batch: GiveUpOnDrop,
        work: impl FnOnce(&Batch) -> T + Send + 'static,
    ) -> Cancellable<T> {
        let (reply, result) = oneshot::channel();
        let shared = Arc::clone(&batch.0);
        // If the thread has ended, the reply is dropped with the job. If the caller is gone, the result is dropped.
        drop(self.0.send(Box::new(move || drop(reply.send(work(&shared))))));
        Cancellable { batch, result }
    }
}

impl RanksThread {
    /// Starts the thread, unless it runs.
    fn jobs(&self) -> Result<&Jobs, StartFailure> {
        if let Some((jobs, _)) = self.0.get() {
            return Ok(jobs);
        }
        let (jobs, inbox) = mpsc::channel();
        let thread = Builder::new().name("ranks".to_owned()).spawn(move || serve(&inbox));
        let thread =
            thread.map_err(|source| StartFailure { index: 0, error: StartError::Fork { source } })?;
        Ok(&self.0.get_or_init(|| (Jobs(jobs), thread)).0)
    }

    /// Starts a batch of ranks: see [`start_ranks`]. Waits until all of them are held (or run), at most until
    /// `deadline`. If the future is dropped before, the batch is killed.
    ///
    /// # Errors
    /// The first rank that failed; [`StartError::GivenUp`] after `deadline`.
    pub(crate) async fn start(
        &self,
        specs: Vec<ProcessSpec>,
        hold: Hold,
        deadline: Instant,
    ) -> Result<Vec<StartedRank>, StartFailure> {
        let first = specs.first().map(|spec| std::ffi::OsStr::from_bytes(spec.program.as_bytes()));
        let program = first.map(PathBuf::from).unwrap_or_default();
        let gone = || StartFailure { index: 0, error: StartError::GivenUp { program } };
        let jobs = self.jobs()?;
        let back = jobs.clone();
        let mut start = jobs.ask(GiveUpOnDrop::default(), move |batch| {
            let started = Some(start_ranks(specs, hold, batch)?);
            Ok(Unclaimed { started, back })
        });
        match start.wait(deadline).await {
            Some(Ok(mut unclaimed)) => unclaimed.started.take().ok_or_else(gone),
            Some(Err(failure)) => Err(failure),
            None => Err(gone()),
        }
    }

    /// Becomes the tracer of ranks that a launcher has started. They wait in our shim until they may execute their
    /// programs.
    ///
    /// # Errors
    /// The first that may not be traced. None of them is left then.
    pub(crate) async fn seize(&self, pids: Vec<i32>) -> Result<Seized, StartFailure> {
        let (jobs, all) = (self.jobs()?.clone(), pids.clone());
        let seize = jobs.ask(GiveUpOnDrop::default(), move |batch| enter::seize_all(&all, batch));
        seize.result.await.unwrap_or_else(|_| Err(given_up()))?;
        Ok(Seized { pids, batch: seize.batch, jobs })
    }

    /// Ends the thread and waits for it. Ranks that die with their parent are dying when this returns, but are not
    /// collected yet.
    ///
    /// Waits for [`COLLECT_AT_MOST`]. After it, the thread ends with this process: it waits for a process that even
    /// SIGKILL does not end.
    pub(crate) async fn close(self) {
        let Some((jobs, thread)) = self.0.into_inner() else { return };
        drop(jobs);
        // It has no result, and a panic on it has been printed.
        drop(timeout(COLLECT_AT_MOST, spawn_blocking(|| thread.join())).await);
    }
}

fn serve(inbox: &mpsc::Receiver<Job>) {
    // The agent's main thread handles signals. Without this, signals would interrupt the waits on this thread.
    SigSet::all().thread_block().ok();
    for job in inbox {
        job();
    }
}

/// A launcher's ranks that are traced and wait in our shim. They are ended if they do not become held.
#[derive(Debug)]
pub(crate) struct Seized {
    pids: Vec<i32>,
    batch: GiveUpOnDrop,
    jobs: Jobs,
}

impl Seized {
    /// Brings them to their first instruction, after they were told to go on. Waits until all are there, at most until
    /// `deadline`.
    ///
    /// # Errors
    /// The first that failed; [`StartError::GivenUp`] after `deadline`. None of them is left then.
    pub(crate) async fn hold(self, deadline: Instant) -> Result<Vec<HeldProof>, StartFailure> {
        let Self { pids, batch, jobs } = self;
        let mut hold = jobs.ask(batch, move |batch| enter::hold_all(&pids, batch));
        hold.wait(deadline).await.unwrap_or_else(|| Err(given_up()))
    }
}

/// Started ranks that the caller has not taken yet. Dropping this ends them, on the thread.
#[derive(Debug)]
struct Unclaimed {
    started: Option<Vec<StartedRank>>,
    back: Jobs,
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(ranks) = self.started.take() {
            let pids = ranks.iter().map(|rank| rank.process.pid).collect();
            // A thread that has ended has ended the ranks too.
            drop(self.back.0.send(Box::new(|| end_started(pids))));
        }
    }
}
