//! The thread "ranks": the parent and tracer of every rank that this agent starts.
//!
//! It is one thread for two reasons in the kernel. Ptrace requests must come from the thread that seized. PDEATHSIG is
//! sent when the *thread* that forked ends. So the thread lives as long as its handle.
//!
//! During a rank's start only this thread waits for it. When [`RanksThread::start`] returns, the rank is handed over:
//! this thread does not touch it again, and the caller waits for it, by pid.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Batch;
use super::enter;
use super::error::StartError;
use super::hold::{Hold, StartFailure, StartedRank, end_started, start_ranks};
use super::spawn::ProcessSpec;
use super::trace::HeldProof;

/// Time limit for a killed batch to be collected. After it, the start returns without a confirmed end.
pub(super) const COLLECT_AT_MOST: Duration = Duration::from_secs(2);

/// The handle of the thread. Dropping it ends the thread, and with it all ranks that are to die with their parent.
/// Dropping does not wait for that; [`RanksThread::close`] does.
#[derive(Debug)]
pub(crate) struct RanksThread {
    requests: mpsc::Sender<Request>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Request {
    Start {
        specs: Vec<ProcessSpec>,
        hold: Hold,
        batch: Arc<Batch>,
        reply: oneshot::Sender<Result<Unclaimed, StartFailure>>,
        /// Sends the ranks back for their end, if the caller does not take them.
        back: mpsc::Sender<Request>,
    },
    /// Becomes the tracer of ranks that a launcher has started.
    Seize {
        pids: Vec<i32>,
        batch: Arc<Batch>,
        reply: oneshot::Sender<Result<(), StartFailure>>,
    },
    /// Brings seized ranks to their first instruction.
    Hold {
        pids: Vec<i32>,
        batch: Arc<Batch>,
        reply: oneshot::Sender<Result<Vec<HeldProof>, StartFailure>>,
    },
    End(Vec<i32>),
}

impl RanksThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn spawn() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let thread = Builder::new().name("ranks".to_owned()).spawn(move || serve(&inbox))?;
        Ok(Self { requests, thread })
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
        let batch = GiveUpOnDrop(Arc::default());
        let (reply, mut answer) = oneshot::channel();
        let gone = || StartFailure { index: 0, error: StartError::GivenUp { program } };
        let back = self.requests.clone();
        let request = Request::Start { specs, hold, batch: Arc::clone(&batch.0), reply, back };
        if self.requests.send(request).is_err() {
            return Err(gone());
        }
        let answer = match timeout_at(deadline, &mut answer).await {
            Ok(answer) => answer.ok(),
            Err(_elapsed) => {
                batch.0.give_up();
                timeout(COLLECT_AT_MOST, answer).await.ok().and_then(Result::ok)
            }
        };
        match answer {
            Some(Ok(started)) => started.claim().ok_or_else(gone),
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
        let batch = GiveUpOnDrop(Arc::default());
        let (reply, answer) = oneshot::channel();
        let request = Request::Seize { pids: pids.clone(), batch: Arc::clone(&batch.0), reply };
        // If the thread has ended, the reply is dropped with the request.
        drop(self.requests.send(request));
        answer.await.unwrap_or_else(|_| Err(given_up()))?;
        Ok(Seized { pids, batch, requests: self.requests.clone() })
    }

    /// Ends the thread and waits for it. Ranks that die with their parent are dying when this returns, but are not
    /// collected yet.
    ///
    /// Waits for [`COLLECT_AT_MOST`]. After it, the thread ends with this process: it waits for a process that even
    /// SIGKILL does not end.
    pub(crate) async fn close(self) {
        drop(self.requests);
        // It has no result, and a panic on it has been printed.
        drop(timeout(COLLECT_AT_MOST, spawn_blocking(|| self.thread.join())).await);
    }
}

fn serve(inbox: &mpsc::Receiver<Request>) {
    // The agent's main thread handles signals. Without this, signals would interrupt the waits on this thread.
    SigSet::all().thread_block().ok();
    for request in inbox {
        match request {
            Request::Start { specs, hold, batch, reply, back } => {
                let started = start_ranks(specs, hold, &batch);
                // If the caller is gone, the dropped answer ends the ranks.
                drop(reply.send(started.map(|ranks| {
                    let pids = ranks.iter().map(|rank| rank.process.pid).collect();
                    Unclaimed { started: Some(ranks), pids, back }
                })));
            }
            Request::Seize { pids, batch, reply } => drop(reply.send(enter::seize_all(&pids, &batch))),
            Request::Hold { pids, batch, reply } => {
                // If the caller is gone, its cancelled batch has ended the ranks or will.
                drop(reply.send(enter::hold_all(&pids, &batch)));
            }
            Request::End(pids) => end_started(pids),
        }
    }
}

/// A launcher's ranks that are traced and wait in our shim. They are ended if they do not become held.
#[derive(Debug)]
pub(crate) struct Seized {
    pids: Vec<i32>,
    batch: GiveUpOnDrop,
    requests: mpsc::Sender<Request>,
}

impl Seized {
    /// Brings them to their first instruction, after they were told to go on. Waits until all are there, at most until
    /// `deadline`.
    ///
    /// # Errors
    /// The first that failed; [`StartError::GivenUp`] after `deadline`. None of them is left then.
    pub(crate) async fn hold(self, deadline: Instant) -> Result<Vec<HeldProof>, StartFailure> {
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Hold { pids: self.pids, batch: Arc::clone(&self.batch.0), reply };
        drop(self.requests.send(request));
        match timeout_at(deadline, &mut answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(given_up())),
            Err(_elapsed) => {
                self.batch.0.give_up();
                drop(timeout(COLLECT_AT_MOST, answer).await);
                Err(given_up())
            }
        }
    }
}

pub(super) fn given_up() -> StartFailure {
    StartFailure { index: 0, error: StartError::GivenUp { program: PathBuf::from("the ranks of this node") } }
}

/// Started ranks that the caller has not taken yet. Dropping this ends them.
#[derive(Debug)]
struct Unclaimed {
    started: Option<Vec<StartedRank>>,
    pids: Vec<i32>,
    back: mpsc::Sender<Request>,
}

impl Unclaimed {
    fn claim(mut self) -> Option<Vec<StartedRank>> {
        self.pids.clear();
        self.started.take()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let pids = std::mem::take(&mut self.pids);
        if !pids.is_empty() {
            // A thread that has ended has ended the ranks too.
            drop(self.back.send(Request::End(pids)));
        }
    }
}

#[derive(Debug)]
pub(super) struct GiveUpOnDrop(pub(super) Arc<Batch>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
