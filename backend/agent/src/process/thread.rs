//! The thread "ranks": the parent and tracer of every rank that this agent starts.
//!
//! It is one thread for two reasons of the kernel's: ptrace requests must come from the thread that seized, and
//! PDEATHSIG is sent when the *thread* that forked ends. So it lives as long as its handle.
//!
//! A rank that is being started is waited for on this thread and nowhere else. Once [`RanksThread::start`] has
//! returned it, it is handed over: this thread does not touch it again and the caller waits for it, by pid.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Batch;
use super::enter;
use super::error::StartError;
use super::hold::{Hold, StartFailure, StartedRank, end_started, start_ranks};
use super::spawn::ProcessSpec;
use super::trace::HeldProof;

/// How long a killed batch may take to be collected, before its start returns without having seen it.
pub(super) const COLLECT_AT_MOST: Duration = Duration::from_secs(2);

/// The handle of the thread. Dropping it ends the thread, and with it all ranks that shall die with their
/// parent; it does not wait for that, [`RanksThread::close`] does.
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
        /// To send them back if nobody takes them.
        back: mpsc::Sender<Request>,
    },
    /// Becomes the tracer of ranks that a launcher has started.
    Seize {
        pids: Vec<i32>,
        batch: Arc<Batch>,
        reply: oneshot::Sender<Result<(), StartFailure>>,
    },
    /// Brings them to their first instruction.
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
    /// When the system gives no more threads.
    pub(crate) fn spawn() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let thread = Builder::new().name("ranks".to_owned()).spawn(move || serve(&inbox))?;
        Ok(Self { requests, thread })
    }

    /// Starts a batch of ranks: see [`start_ranks`]. Waits until all of them are held (or run), at most until
    /// `timeout`. If the future is dropped before, the batch is killed.
    ///
    /// # Errors
    /// The first rank that failed; [`StartError::GivenUp`] after `timeout`.
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

    /// Becomes the tracer of ranks that a launcher has started and that wait for the word to become their programs.
    ///
    /// # Errors
    /// The first that may not be traced. None of them is left then.
    pub(crate) async fn seize(&self, pids: Vec<i32>) -> Result<Seized, StartFailure> {
        let batch = GiveUpOnDrop(Arc::default());
        let (reply, answer) = oneshot::channel();
        let request = Request::Seize { pids: pids.clone(), batch: Arc::clone(&batch.0), reply };
        // A thread that is gone drops the reply.
        drop(self.requests.send(request));
        answer.await.unwrap_or_else(|_| Err(given_up()))?;
        Ok(Seized { pids, batch, requests: self.requests.clone() })
    }

    /// Ends the thread and waits for it. Ranks that shall die with their parent are dying when this returns;
    /// they have yet to be collected.
    pub(crate) fn close(self) {
        drop(self.requests);
        // It ends without a result, and a panic on it has been printed.
        drop(self.thread.join());
    }
}

fn serve(inbox: &mpsc::Receiver<Request>) {
    // The agent's signals are dealt with on its main thread. Without this, waiting here would only be
    // interrupted more often.
    if let Err(error) = SigSet::all().thread_block() {
        tracing::debug!(%error, "the thread \"ranks\" takes signals");
    }
    for request in inbox {
        match request {
            Request::Start { specs, hold, batch, reply, back } => {
                let started = start_ranks(specs, hold, &batch);
                // If nobody takes them, the answer is dropped, and that ends them.
                drop(reply.send(started.map(|ranks| {
                    let pids = ranks.iter().map(|rank| rank.process.pid).collect();
                    Unclaimed { started: Some(ranks), pids, back }
                })));
            }
            Request::Seize { pids, batch, reply } => drop(reply.send(enter::seize_all(&pids, &batch))),
            Request::Hold { pids, batch, reply } => {
                // If nobody takes the proofs, giving up what was traced has ended the ranks or will.
                drop(reply.send(enter::hold_all(&pids, &batch)));
            }
            Request::End(pids) => end_started(pids),
        }
    }
}

/// Ranks of a launcher that are traced and wait for the word. If they are not held they are ended.
#[derive(Debug)]
pub(crate) struct Seized {
    pids: Vec<i32>,
    batch: GiveUpOnDrop,
    requests: mpsc::Sender<Request>,
}

impl Seized {
    /// Brings them to their first instruction, once they were told to go on. Waits until all are there, at most until `timeout`.
    ///
    /// # Errors
    /// The first that failed; [`StartError::GivenUp`] after `timeout`. None of them is left then.
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

/// What was started and nobody has taken yet. If nobody does, it is ended.
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
            // A thread that is gone has taken them along.
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
