//! Whether whoever started this agent is still there, as long as nobody else could tell.
//!
//! Once an agent has its place, the end of a link tells it that it is alone. Before, it tries to reach a frontend that may be gone, and would
//! go on trying for as long as its patience lasts. Its starter reads what it writes on standard error, so the end of that pipe tells.

use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

/// Waits until nobody reads our standard error any more. Waits for ever where that cannot be seen, because it is no pipe.
pub(crate) async fn gone() {
    let Ok(pipe) = watch() else { return std::future::pending().await };
    // Nothing is written through it, so it may stay a pipe that blocks. An error is ready as soon as there is no reader.
    if pipe.ready(Interest::ERROR).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn watch() -> io::Result<Sender> {
    let file = File::from(stderr().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Sender::from_file_unchecked(file)
}
