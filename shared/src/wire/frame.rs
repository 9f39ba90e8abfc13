//! Messages on a byte stream: a 32-bit big-endian length, then that many bytes of postcard.
//!
//! Everything here is free of input and output but the two helpers at the end. So links, the guard's socketpair and the
//! daemons' local sockets cut their streams the same way. A length prefix is a claim of the peer: memory grows with the
//! bytes that have arrived, never with the announced length.
//!
//! Wire types must not hold sequences of zero-sized values (`Vec<()>`): their length costs the sender nothing and the
//! receiver a loop.

use std::io::{self, Read, Write};

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes of a frame's body: 1 MiB.
///
/// The largest control message is one node's share of an answer: a proctable slice or a report of some ten thousand
/// ranks at less than 100 bytes each. Larger messages are data, and data goes as bulk chunks. An agent with 64 children
/// that all stop inside their largest frame holds 64 MiB, which a node can bear.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;

/// Bytes in the length prefix.
pub const PREFIX_BYTES: usize = 4;

/// The most bytes of a [`FrameBuffer`]: one whole frame, and as much again of the bytes that arrived with it.
pub const MAX_BUFFERED_BYTES: usize = 2 * (PREFIX_BYTES + MAX_FRAME_BYTES);

/// An empty buffer keeps this much memory for the next frames and frees the rest.
const KEPT_BYTES: usize = 128 * 1024;

/// Why a frame could not be made, cut out or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame is, or claims to be, larger than the limit. `bytes` is known if a prefix claimed it.
    #[error("handle a frame of more than {limit} bytes{}", .bytes.map(|n| format!(": {n}")).unwrap_or_default())]
    Oversized {
        /// The size that the prefix claimed, in bytes.
        bytes: Option<u64>,
        /// The limit, in bytes.
        limit: usize,
    },
    /// More bytes were pushed than a [`FrameBuffer`] holds before its complete frames were popped.
    #[error("buffer more than {limit} bytes of frames")]
    Overfull {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The value has no encoding.
    #[error("encode a frame")]
    Encode(#[source] postcard::Error),
    /// The bytes are not a value of the type.
    #[error("decode a frame")]
    Decode(#[source] postcard::Error),
    /// Bytes are left after the value.
    #[error("decode a frame: {bytes} bytes are left after the value")]
    Trailing {
        /// How many bytes are left.
        bytes: usize,
    },
    /// The stream ended inside a frame.
    #[error("read a frame: the stream ended inside it")]
    Cut,
    /// The stream failed.
    #[error("read or write a frame")]
    Io(#[source] io::Error),
}

/// The whole frame of `value`: length prefix and body.
///
/// # Errors
/// [`FrameError::Oversized`] as soon as the body passes [`MAX_FRAME_BYTES`]; [`FrameError::Encode`].
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = Vec::new();
    encode_onto(value, &mut frame)?;
    Ok(frame)
}

/// The body alone, without its prefix, to encode it once and send it on many links.
///
/// # Errors
/// As [`encode`].
pub fn encode_body<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FrameError> {
    let mut body = Vec::new();
    write_postcard(value, &mut body)?;
    Ok(body)
}

/// Appends the frame of `value` to `onto`. On an error `onto` is as it was.
///
/// # Errors
/// As [`encode`].
pub fn encode_onto<T: Serialize + ?Sized>(value: &T, onto: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = onto.len();
    onto.extend_from_slice(&[0; PREFIX_BYTES]);
    match write_postcard(value, onto).and_then(|()| build_prefix(onto.len() - start - PREFIX_BYTES)) {
        Ok(prefix) => {
            onto[start..start + PREFIX_BYTES].copy_from_slice(&prefix);
            Ok(())
        }
        Err(error) => {
            onto.truncate(start);
            Err(error)
        }
    }
}

/// The value of a frame's body (as [`FrameBuffer::pop`] and [`read_frame`] give it: without the prefix).
///
/// # Errors
/// [`FrameError::Decode`], [`FrameError::Oversized`], and [`FrameError::Trailing`] when the value does not fill the
/// body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    build_prefix(body.len())?;
    let (value, rest) = postcard::take_from_bytes(body).map_err(FrameError::Decode)?;
    if rest.is_empty() { Ok(value) } else { Err(FrameError::Trailing { bytes: rest.len() }) }
}

/// Decodes the beginning of a frame's body. `None` if it is not of that type.
#[must_use]
pub fn peek<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    postcard::take_from_bytes(body).ok().map(|(head, _)| head)
}

/// The length prefix of a body of `length` bytes.
///
/// # Errors
/// [`FrameError::Oversized`].
pub fn build_prefix(length: usize) -> Result<[u8; PREFIX_BYTES], FrameError> {
    match u32::try_from(length) {
        Ok(small) if length <= MAX_FRAME_BYTES => Ok(small.to_be_bytes()),
        _ => Err(FrameError::Oversized { bytes: u64::try_from(length).ok(), limit: MAX_FRAME_BYTES }),
    }
}

fn parse_prefix(prefix: [u8; PREFIX_BYTES]) -> Result<usize, FrameError> {
    let claimed = u32::from_be_bytes(prefix);
    match usize::try_from(claimed) {
        Ok(length) if length <= MAX_FRAME_BYTES => Ok(length),
        _ => Err(FrameError::Oversized { bytes: Some(claimed.into()), limit: MAX_FRAME_BYTES }),
    }
}

fn write_postcard<T: Serialize + ?Sized>(value: &T, onto: &mut Vec<u8>) -> Result<(), FrameError> {
    let room = MAX_FRAME_BYTES;
    postcard::serialize_with_flavor(value, Bounded { onto, room }).map_err(|error| match error {
        postcard::Error::SerializeBufferFull => FrameError::Oversized { bytes: None, limit: MAX_FRAME_BYTES },
        other => FrameError::Encode(other),
    })
}

/// The target of postcard. It reports "full" at the limit, so that a huge value is not built first and refused later.
struct Bounded<'a> {
    onto: &'a mut Vec<u8>,
    room: usize,
}

impl Flavor for Bounded<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.room = self.room.checked_sub(data.len()).ok_or(postcard::Error::SerializeBufferFull)?;
        self.onto.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.try_extend(&[data])
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Cuts frames out of bytes that arrive in pieces of any size.
///
/// Use it in turns: push the bytes of a read, pop until there is no frame, read again. Then it never holds more than
/// one unfinished frame and one read.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// An empty buffer that has allocated no memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes as they arrived.
    ///
    /// # Errors
    /// [`FrameError::Overfull`] when it would hold more than [`MAX_BUFFERED_BYTES`]; nothing was added then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        if self.pending_bytes() + bytes.len() > MAX_BUFFERED_BYTES {
            return Err(FrameError::Overfull { limit: MAX_BUFFERED_BYTES });
        }
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The body of the next complete frame; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// [`FrameError::Oversized`] when the prefix claims more than the limit. Every later call fails as well: the start
    /// of the next frame is lost.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((prefix, rest)) = self.bytes[self.start..].split_first_chunk() else { return Ok(None) };
        let Some(body) = rest.get(..parse_prefix(*prefix)?) else { return Ok(None) };
        let body = body.to_vec();
        self.start += PREFIX_BYTES + body.len();
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            self.start = 0;
        }
        Ok(Some(body))
    }

    /// The next complete frame, decoded; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// As [`FrameBuffer::pop`] and [`decode`].
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        self.pop()?.map(|body| decode(&body)).transpose()
    }

    /// Whether the buffer is empty: a stream that ends now ends between two frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0
    }

    /// Bytes that were pushed and not popped.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

/// The body of the next frame of a blocking stream, `None` if the stream ends between two frames.
///
/// Waits as long as `reader` does; use the socket's own read timeout as a limit. After any error the place in the
/// stream is lost: drop it.
///
/// # Errors
/// [`FrameError::Cut`], [`FrameError::Oversized`], [`FrameError::Io`].
pub fn read_frame(reader: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let Some(prefix) = read_prefix(reader)? else { return Ok(None) };
    let length = parse_prefix(prefix)?;
    let mut body = Vec::new();
    // `read_to_end` grows its buffer with the bytes that arrive.
    reader.by_ref().take(length as u64).read_to_end(&mut body).map_err(FrameError::Io)?;
    if body.len() == length { Ok(Some(body)) } else { Err(FrameError::Cut) }
}

fn read_prefix(reader: &mut impl Read) -> Result<Option<[u8; PREFIX_BYTES]>, FrameError> {
    let mut prefix = [0; PREFIX_BYTES];
    let mut filled = 0;
    while filled < PREFIX_BYTES {
        match reader.read(&mut prefix[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Cut),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(Some(prefix))
}

/// Writes the frame of `value` in one piece and flushes. Waits as long as `writer` does.
///
/// # Errors
/// As [`encode`], with nothing written; [`FrameError::Io`], after which the stream must be dropped.
pub fn write_frame<T: Serialize + ?Sized>(writer: &mut impl Write, value: &T) -> Result<(), FrameError> {
    let frame = encode(value)?;
    writer.write_all(&frame).and_then(|()| writer.flush()).map_err(FrameError::Io)
}

#[cfg(test)]
mod tests;
