//! Starts one process that is no rank: a tool's daemon.
//!
//! The starting thread may block on files. So other threads wait for it with a timeout.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Batch;
use super::error::StartError;
use super::hold::{StartFailure, end_started, start_alone};
use super::spawn::ProcessSpec;
use super::thread::COLLECT_AT_MOST;

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
    batch: Arc<Batch>,
    answer: oneshot::Receiver<Started<T, E>>,
}

/// The two ends of a start of `program`.
pub(crate) fn new_start<T, E>(program: PathBuf) -> (Starter<T, E>, Pending<T, E>) {
    let (reply, answer) = oneshot::channel();
    let batch = Arc::<Batch>::default();
    (Starter { batch: Arc::clone(&batch), reply }, Pending { program, batch, answer })
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
        Arc::clone(&self.batch)
    }

    /// Waits for the process until `deadline`.
    ///
    /// # Errors
    /// Why it was not started; [`StartError::GivenUp`] when the start was cancelled, or was not over by then.
    pub(crate) async fn wait(mut self, deadline: Instant) -> Started<T, E> {
        let answer = match timeout_at(deadline, &mut self.answer).await {
            Ok(answer) => answer.ok(),
            Err(_elapsed) => {
                self.batch.give_up();
                timeout(COLLECT_AT_MOST, &mut self.answer).await.ok().and_then(Result::ok)
            }
        };
        answer.unwrap_or_else(|| {
            let error = StartError::GivenUp { program: std::mem::take(&mut self.program) };
            Err(StartFailure { index: 0, error }.into())
        })
    }
}

impl<T, E> Drop for Pending<T, E> {
    fn drop(&mut self) {
        self.batch.give_up();
        self.answer.close();
        if let Ok(Ok((pid, _))) = self.answer.try_recv() {
            end_started(vec![pid]);
        }
    }
}
