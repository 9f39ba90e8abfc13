//! Detects that the process that started this agent has ended, until a link can tell.
//!
//! Once an agent has its place, the end of a link tells it that it is alone. Before, the agent dials a frontend that
//! may be gone, and would retry until its timeout. Its starter reads the agent's standard error, so the end of that
//! pipe or socket shows that the starter is gone.

use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Sender;

/// Waits until our standard error has no reader any more.
///
/// An `attached` starter keeps our standard input open, so the end of that counts as well. Waits for ever if neither
/// can be observed.
pub(crate) async fn gone(attached: bool) {
    tokio::select! {
        () = unread() => {}
        () = input_ended(), if attached => {}
    }
}

/// Waits for the end of standard input. Drops all bytes before it.
async fn input_ended() {
    let (sender, ended) = tokio::sync::oneshot::channel();
    // A read cannot be cancelled: the thread waits on without a receiver, and ends with the agent.
    let reading = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        // An error is an end as well.
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        sender.send(()).ok();
    });
    if reading.is_err() || ended.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn unread() {
    let seen = match watch() {
        // The agent writes nothing through this descriptor, so the pipe may stay blocking. An error is ready as soon as
        // there is no reader.
        Ok(pipe) => pipe.ready(Interest::ERROR).await.map(drop),
        Err(_) => socket_closed().await,
    };
    if seen.is_err() {
        std::future::pending::<()>().await;
    }
}

/// As [`unread`], if standard error is a socket, as with some starters on other machines. Its other end closes with
/// the starter.
async fn socket_closed() -> io::Result<()> {
    let file = File::from(stderr().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = StdUnixStream::from(OwnedFd::from(file));
    // From now on standard error itself does not block. The few lines that the agent writes to it find room.
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    while !socket.ready(Interest::READABLE).await?.is_read_closed() {
        // No process should write to it. If one does, that is not the end.
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
