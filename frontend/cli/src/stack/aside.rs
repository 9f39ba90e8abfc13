//! Work on files. It hangs when a file system does, so a thread of its own does it: the command waits for a time, and
//! takes a late result when it is there.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a file system of this machine may take for its first answer.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// The result of such work.
#[derive(Debug)]
pub(crate) enum Aside<T> {
    Done(T),
    Late(JoinHandle<T>),
}

impl<T: Default> Aside<T> {
    /// Waits for the result, `time` at most.
    pub(crate) async fn wait(mut work: JoinHandle<T>, time: Duration) -> Self {
        match timeout(time, &mut work).await {
            Ok(result) => Self::Done(result.unwrap_or_default()),
            Err(_) => Self::Late(work),
        }
    }

    /// Takes a late result, if it is there by now.
    pub(crate) async fn take_result(&mut self) {
        if let Self::Late(work) = self
            && work.is_finished()
        {
            *self = Self::Done(work.await.unwrap_or_default());
        }
    }
}
