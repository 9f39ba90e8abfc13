//! Starts one process that is no rank: a tool's daemon.
//!
//! The starting thread may block on files. So other threads wait for it with a timeout.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use super::cancel::{Cancellable, GiveUpOnDrop};
use super::error::StartError;
use super::hold::{StartFailure, end_started, start_alone};
use super::spawn::ProcessSpec;

/// Result of a start: the pid, and what else the starting thread has made.
type Started<T, E> = Result<(i32, T), E>;

/// The starting thread's end of a start.
#[derive(Debug)]
pub(crate) struct Starter<T, E> {
    batch: Arc<Batch>,
    reply: oneshot::Sender<Started<T, E>>,
}

/// The waiting end of a start. Dropping it cancels the start and leaves no process.
#[derive(Debug)]
pub(crate) struct Pending<T, E> {
    program: PathBuf,
    start: Cancellable<Started<T, E>>,
}

/// The two ends of a start of `program`.
pub(crate) fn new_start<T, E>(program: PathBuf) -> (Starter<T, E>, Pending<T, E>) {
    let (reply, result) = oneshot::channel();
    let batch = GiveUpOnDrop::default();
    (
        Starter { batch: Arc::clone(&batch.0), reply },
        Pending { program, start: Cancellable { batch, result } },
    )
}

impl<T, E: From<StartFailure>> Starter<T, E> {
    /// Starts what `prepare` describes, and sends the result to the [`Pending`] end. Blocks until the process has
    /// executed its program.
    ///
    /// This thread becomes the parent. A process that dies with its parent ends when this thread ends.
    pub(crate) fn start(self, prepare: impl FnOnce() -> Result<(T, ProcessSpec), E>) {
        let started = prepare().and_then(|(more, spec)| Ok((start_alone(spec, &self.batch)?, more)));
        if let Err(Ok((pid, _))) = self.reply.send(started) {
            end_started(vec![pid]);
        }
    }
}

impl<T, E: From<StartFailure>> Pending<T, E> {
    /// The batch, by which another thread can cancel the start.
    pub(crate) fn batch(&self) -> Arc<Batch> {
        Arc::clone(&self.start.batch.0)
    }

    /// Waits for the process until `deadline`.
    ///
    /// # Errors
    /// Why it was not started; [`StartError::GivenUp`] when the start was cancelled, or was not over by then.
    pub(crate) async fn wait(mut self, deadline: Instant) -> Started<T, E> {
        self.start.wait(deadline).await.unwrap_or_else(|| {
            let error = StartError::GivenUp { program: std::mem::take(&mut self.program) };
            Err(StartFailure { index: 0, error }.into())
        })
    }
}

impl<T, E> Drop for Pending<T, E> {
    fn drop(&mut self) {
        self.start.batch.0.give_up();
        self.start.result.close();
        if let Ok(Ok((pid, _))) = self.start.result.try_recv() {
            end_started(vec![pid]);
        }
    }
}
