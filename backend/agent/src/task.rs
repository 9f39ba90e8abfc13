//! Tasks of the runtime. Their futures are in boxes: tokio's code for a task is then compiled once, not for each future.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// As [`tokio::spawn`].
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(in_box(work))
}

/// As [`tokio::task::spawn_local`].
pub(crate) fn spawn_local(work: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let work: Pin<Box<dyn Future<Output = ()>>> = Box::pin(work);
    tokio::task::spawn_local(work)
}

/// A future for a set of tasks.
pub(crate) fn in_box(
    work: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(work)
}
