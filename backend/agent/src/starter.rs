//! Whether whoever started this agent is still there, as long as nobody else could tell.
//!
//! Once an agent has its place, the end of a link tells it that it is alone. Before, it tries to reach a frontend that may be gone, and would
//! go on trying for as long as its patience lasts. Its starter reads what it writes on standard error, so the end of that pipe, or socket, tells.

use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;

/// Waits until nobody reads our standard error any more; of an `attached` starter also until our standard input ends, which it keeps open. Waits for ever
/// where that cannot be seen.
pub(crate) async fn gone(attached: bool) {
    tokio::select! {
        () = unread() => {}
        () = input_ended(), if attached => {}
    }
}

/// Waits for the end of standard input. What comes there before is dropped.
async fn input_ended() {
    let (sender, ended) = tokio::sync::oneshot::channel();
    // A read cannot be taken back: the thread waits on when nobody asks any more, and ends with the agent.
    let reading = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        // Whatever ends it, it has ended.
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        sender.send(()).ok();
    });
    if reading.is_err() || ended.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn unread() {
    let seen = match watch() {
        // Nothing is written through it, so it may stay a pipe that blocks. An error is ready as soon as there is no reader.
        Ok(pipe) => pipe.ready(Interest::ERROR).await.map(drop),
        Err(_) => socket_closed().await,
    };
    if seen.is_err() {
        std::future::pending::<()>().await;
    }
}

/// As [`unread`], where standard error is a socket, as some starters on other machines have it: its other end is closed with them.
async fn socket_closed() -> io::Result<()> {
    let file = File::from(stderr().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = StdUnixStream::from(OwnedFd::from(file));
    // Standard error itself does not block from now on: the few words that go there find room.
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    while !socket.ready(Interest::READABLE).await?.is_read_closed() {
        // Nobody writes to it; should somebody, that is not the end.
        drop(socket.try_read(&mut [0; 64]));
    }
    Ok(())
}

fn watch() -> io::Result<Sender> {
    let file = File::from(stderr().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Sender::from_file_unchecked(file)
}
