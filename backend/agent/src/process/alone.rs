//! Starting one process that is no rank: a tool's daemon. The thread that starts it may wait for its files, and so others wait for that thread with a limit.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Batch;
use super::error::StartError;
use super::hold::{StartFailure, end_started, start_alone};
use super::spawn::ProcessSpec;
use super::thread::COLLECT_AT_MOST;

/// What comes of a start: the pid, and what else its starter has made.
type Started<T, E> = Result<(i32, T), E>;

/// A start, for the thread that does it.
#[derive(Debug)]
pub(crate) struct Starter<T, E> {
    batch: Arc<Batch>,
    reply: oneshot::Sender<Started<T, E>>,
}

/// A start, for whoever waits for it. Dropping it cancels the start: no process is left of it.
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
    /// Starts what `prepare` describes, and gives it to whoever waits. Blocks until the process is its program.
    ///
    /// This thread becomes the parent: its end is the end of a process that dies with its parent.
    pub(crate) fn start(self, prepare: impl FnOnce() -> Result<(T, ProcessSpec), E>) {
        let started = prepare().and_then(|(more, spec)| Ok((start_alone(spec, &self.batch)?, more)));
        if let Err(Ok((pid, _))) = self.reply.send(started) {
            end_started(vec![pid]);
        }
    }
}

impl<T, E: From<StartFailure>> Pending<T, E> {
    /// By what the start can be cancelled from elsewhere.
    pub(crate) fn batch(&self) -> Arc<Batch> {
        Arc::clone(&self.batch)
    }

    /// Waits for the process, at most until `deadline`.
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
