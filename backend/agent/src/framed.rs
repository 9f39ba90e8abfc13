//! Reads messages in frames from the processes of this node.

use std::io;

use gantry_shared::wire::frame::FrameBuffer;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A stream of messages. Bounds the bytes of an incomplete one.
#[derive(Debug)]
pub(crate) struct Framed<S> {
    pub(crate) stream: S,
    /// Bytes that have arrived and that nobody has taken.
    pub(crate) rest: FrameBuffer,
    chunk: Box<[u8]>,
    limits: Limits,
}

/// The limits of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes per read.
    pub(crate) read: usize,
    /// The most bytes of an incomplete message that may wait for the next read.
    pub(crate) pending: usize,
    /// What the peer does when it exceeds that.
    pub(crate) exceeded: &'static str,
}

impl<S: AsyncRead + Unpin> Framed<S> {
    /// `rest` holds the bytes that were read earlier.
    pub(crate) fn new(stream: S, rest: FrameBuffer, limits: Limits) -> Self {
        Self { stream, rest, chunk: vec![0; limits.read].into(), limits }
    }

    /// The next message. None: the peer has closed its end. A caller may drop the future and call again.
    ///
    /// # Errors
    /// `InvalidData` for a frame that is invalid or too long, or else the socket's error.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.rest.next_message().map_err(invalid)? {
                return Ok(Some(message));
            }
            if self.rest.pending_bytes() > self.limits.pending {
                return Err(invalid(self.limits.exceeded));
            }
            match self.stream.read(&mut self.chunk).await? {
                0 => return Ok(None),
                count => self.rest.push(&self.chunk[..count]).map_err(invalid)?,
            }
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
