//! The waiting end of work at a batch that another thread does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Batch;
use super::error::StartError;
use super::hold::StartFailure;

/// Time limit for a killed batch to be collected. After it, the wait ends without a confirmed end.
pub(super) const COLLECT_AT_MOST: Duration = Duration::from_secs(2);

/// A batch that is cancelled when this is dropped, unless it was handed over before.
#[derive(Debug, Default)]
pub(super) struct GiveUpOnDrop(pub(super) Arc<Batch>);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Work at a batch, and its result. Dropping this cancels the work.
#[derive(Debug)]
pub(super) struct Cancellable<T> {
    pub(super) batch: GiveUpOnDrop,
    pub(super) result: oneshot::Receiver<T>,
}

impl<T> Cancellable<T> {
    /// Waits for the result until `deadline`. Then cancels the work, and waits a little for the end of the batch. None:
    /// the work ended without a result, or has not ended.
    pub(super) async fn wait(&mut self, deadline: Instant) -> Option<T> {
        match timeout_at(deadline, &mut self.result).await {
            Ok(result) => result.ok(),
            Err(_elapsed) => {
                self.batch.0.give_up();
                timeout(COLLECT_AT_MOST, &mut self.result).await.ok()?.ok()
            }
        }
    }
}

pub(super) fn given_up() -> StartFailure {
    StartFailure { index: 0, error: StartError::GivenUp { program: PathBuf::from("the ranks of this node") } }
}
