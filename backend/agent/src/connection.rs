//! Standard input and output as one stream of bytes: the connection to the process that has started this agent.
//!
//! It stays open as long as the agent runs. If the agent cannot dial the frontend, the connection is its link. Until
//! then nothing arrives on it but its end.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::unistd::{dup2_stdin, dup2_stdout};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Standard input and output.
pub(crate) struct Connection {
    input: Box<dyn AsyncRead + Send + Unpin>,
    /// None: shut down.
    output: Option<Box<dyn AsyncWrite + Send + Unpin>>,
}

impl Connection {
    /// Takes both over. They no longer block, and other code in this process finds `/dev/null` in their place.
    ///
    /// # Errors
    /// They are neither pipes nor sockets.
    pub(crate) fn take_stdio() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        let input: Box<dyn AsyncRead + Send + Unpin> = match is_socket(&input)? {
            true => Box::new(to_socket(input)?),
            false => Box::new(pipe::Receiver::from_owned_fd(input)?),
        };
        let output: Box<dyn AsyncWrite + Send + Unpin> = match is_socket(&output)? {
            true => Box::new(to_socket(output)?),
            false => Box::new(pipe::Sender::from_owned_fd(output)?),
        };
        // Otherwise the process's own descriptors would keep them open after a shutdown.
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&nowhere)?;
        dup2_stdout(&nowhere)?;
        Ok(Self { input, output: Some(output) })
    }

    /// Waits until the other side is gone, or sends something unexpected.
    pub(crate) async fn ended(&mut self) {
        drop(self.input.read(&mut [0]).await);
    }
}

fn is_socket(end: &OwnedFd) -> io::Result<bool> {
    Ok(File::from(end.try_clone()?).metadata()?.file_type().is_socket())
}

fn to_socket(end: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(end);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_shut_down", &self.output.is_none()).finish_non_exhaustive()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.output {
            Some(output) => Pin::new(output).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.output {
            Some(output) => Pin::new(output).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(output) = &mut self.output {
            let shut = ready!(Pin::new(output).poll_shutdown(context));
            // A pipe ends when it is closed.
            self.output = None;
            return Poll::Ready(shut);
        }
        Poll::Ready(Ok(()))
    }
}
