//! A link: messages and bulk chunks between two parts of one app, over any byte stream, after a proof of the secret.
//!
//! A link is split into a reader and a writer, each for one task. They share only the two keys. snow's
//! `TransportState` counts nonces for both directions in one value and so cannot be split. Its stateless sibling
//! leaves the counting to this module. That is safe here: each direction has its own key, each half uses one
//! direction only and cannot be cloned. The counter is private, rises by one with every record and is never reset.
//! Records are opened under the reader's own counter, so a record that is left out, repeated or moved does not open.
//!
//! Typical use of the halves (a root or an agent with up to 64 links):
//!
//! ```no_run
//! # use gantry_link::link::{Incoming, LinkReader, LinkWriter};
//! # use gantry_link::LinkError;
//! # use std::sync::Arc;
//! # async fn writer_task(mut writer: LinkWriter, mut queue: tokio::sync::mpsc::Receiver<Arc<[u8]>>) -> Result<(), LinkError> {
//! // One body, encoded once by `frame::encode_body`, waits in the queues of all links.
//! while let Some(body) = queue.recv().await {
//!     writer.send_body(&body)?;
//!     while !writer.wants_flush() {
//!         let Ok(body) = queue.try_recv() else { break };
//!         writer.send_body(&body)?;
//!     }
//!     writer.flush().await?;
//! }
//! writer.close().await
//! # }
//! # async fn reader_task(mut reader: LinkReader) -> Result<(), LinkError> {
//! while let Some(incoming) = reader.next().await? {
//!     match incoming {
//!         Incoming::Frame(body) => { /* decode it, or forward it with `send_body` */ }
//!         Incoming::Bulk(chunk) => { /* open it, and forward it with `send_bulk` */ }
//!         Incoming::Credit(places) => { /* so many chunks more may be sent */ }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use serde::Serialize;
use snow::StatelessTransportState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::bulk::{self, SealedChunk};
use super::error::{LinkError, Phase};
use super::outgoing::{Outgoing, PIECES};
use super::primitives::TAG_BYTES;
use super::record::{HEADER_BYTES, Kind, MAX_PIECE_BYTES, Meaning};
use super::record::{build_header, build_reason, parse_header, parse_reason};
use gantry_shared::wire::frame::{self, FrameBuffer, PREFIX_BYTES};

/// A batch that has grown to this many bytes should be flushed: larger ones save no more calls.
pub const BATCH_BYTES: usize = 256 * 1024;
/// How many bytes one read asks for.
const READ_BYTES: usize = 64 * 1024;
/// A writer keeps this much memory between batches.
const KEPT_BYTES: usize = 2 * BATCH_BYTES;

/// Any byte stream that a link can be made of: a TCP stream, a remote shell's channel,
/// `tokio::io::join(stdin, stdout)`.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A link whose handshake is done.
#[derive(Debug)]
pub struct Link {
    reader: LinkReader,
    writer: LinkWriter,
}

impl Link {
    /// `sent` and `received` count the records of each direction that the handshake used.
    pub(super) fn new<S: Stream>(
        stream: S,
        noise: StatelessTransportState,
        sent: u64,
        received: u64,
    ) -> Self {
        let noise = Arc::new(noise);
        let (read, write) = tokio::io::split(Box::new(stream) as Box<dyn Stream>);
        Self {
            reader: LinkReader {
                stream: read,
                noise: Arc::clone(&noise),
                nonce: received,
                raw: Vec::new(),
                taken: 0,
                arriving: None,
                after_chunk: false,
                plain: Vec::new(),
                frames: FrameBuffer::new(),
                state: ReaderState::Open,
            },
            writer: LinkWriter {
                stream: write,
                noise,
                nonce: sent,
                plain: vec![Meaning::Piece.code()],
                outgoing: Outgoing::default(),
                failed: false,
            },
        }
    }

    /// The two halves. The stream is closed when both are dropped.
    #[must_use]
    pub fn split(self) -> (LinkReader, LinkWriter) {
        (self.reader, self.writer)
    }
}

/// An item from a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The body of a frame, for [`frame::decode`] or, unread, for [`LinkWriter::send_body`].
    Frame(Vec<u8>),
    /// A bulk chunk, still sealed: its content is unproven until it is opened.
    Bulk(SealedChunk),
    /// The peer has this many more places for bulk chunks ([`Credit::earn`](super::credit::Credit::earn)).
    Credit(u32),
}

/// The reading half of a link.
pub struct LinkReader {
    stream: ReadHalf<Box<dyn Stream>>,
    noise: Arc<StatelessTransportState>,
    nonce: u64,
    /// Received bytes, of which the first `taken` are processed.
    raw: Vec<u8>,
    taken: usize,
    /// A chunk that has arrived in part. No other bytes wait then.
    arriving: Option<Arriving>,
    /// The last record was a chunk. Then the next one is probably a chunk, too.
    after_chunk: bool,
    plain: Vec<u8>,
    frames: FrameBuffer,
    state: ReaderState,
}

/// A bulk chunk whose sealed bytes are read to where they stay.
struct Arriving {
    header: [u8; bulk::HEADER_BYTES],
    sealed: Vec<u8>,
    /// Bytes that are still to come.
    left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    Open,
    Ended,
    Failed,
}

impl LinkReader {
    /// The next message or chunk, in the order in which the peer sent them; `None` after the peer's goodbye, and then
    /// always.
    ///
    /// Waits while the peer sends nothing. It is *cancel-safe*: it waits only in a read that adds to bytes kept in
    /// `self`. So it can be used in a `select!` and dropped at any time without loss.
    ///
    /// # Errors
    /// [`LinkError::Cut`] when the stream ends without a goodbye, [`LinkError::Refused`] with the peer's reason,
    /// [`LinkError::Oversized`] and [`LinkError::Malformed`] for what the peer must not send (tell it by
    /// [`LinkWriter::refuse`]), [`LinkError::Io`]; [`LinkError::Failed`] at every call after one of these.
    pub async fn next(&mut self) -> Result<Option<Incoming>, LinkError> {
        match self.state {
            ReaderState::Open => {}
            ReaderState::Ended => return Ok(None),
            ReaderState::Failed => return Err(LinkError::Failed),
        }
        let next = self.next_open().await;
        match &next {
            Ok(Some(_)) => {}
            Ok(None) => self.state = ReaderState::Ended,
            Err(_) => self.state = ReaderState::Failed,
        }
        next
    }

    async fn next_open(&mut self) -> Result<Option<Incoming>, LinkError> {
        loop {
            if let Some(body) = self.frames.pop().map_err(|error| LinkError::received(&error))? {
                return Ok(Some(Incoming::Frame(body)));
            }
            match self.take_record()? {
                Taken::Nothing => self.read_more().await?,
                Taken::Piece => {}
                Taken::Bulk(chunk) => return Ok(Some(Incoming::Bulk(chunk))),
                Taken::Credit(places) => return Ok(Some(Incoming::Credit(places))),
                Taken::Goodbye if self.frames.is_empty() => return Ok(None),
                Taken::Goodbye => return Err(malformed("the peer closed the link inside a frame")),
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), LinkError> {
        let read = match &mut self.arriving {
            Some(Arriving { sealed, left, .. }) => {
                let read = (&mut self.stream).take(*left as u64).read_buf(sealed).await;
                *left = left.saturating_sub(*read.as_ref().unwrap_or(&0));
                read
            }
            None => {
                self.raw.drain(..self.taken);
                self.taken = 0;
                // What is read here of the next chunk is copied later, so only its headers are read.
                let most = if self.after_chunk { HEADER_BYTES + bulk::HEADER_BYTES } else { READ_BYTES };
                self.after_chunk = false;
                self.raw.reserve(most);
                (&mut self.stream).take(most as u64).read_buf(&mut self.raw).await
            }
        };
        match read {
            Ok(0) => Err(LinkError::Cut { phase: Phase::Open, source: None }),
            Ok(_) => Ok(()),
            Err(error) => Err(LinkError::io(Phase::Open, error)),
        }
    }

    /// Takes the next record out of the received bytes, if it is complete.
    fn take_record(&mut self) -> Result<Taken, LinkError> {
        if self.arriving.is_some() {
            return self.take_chunk();
        }
        let Some((header, rest)) = self.raw[self.taken..].split_first_chunk() else {
            return Ok(Taken::Nothing);
        };
        let (kind, length) = parse_header(*header, Phase::Open)?;
        if kind == Kind::Bulk {
            let Some(bytes) = length.checked_sub(bulk::HEADER_BYTES) else {
                return Err(malformed("a bulk chunk is too short"));
            };
            let Some((header, rest)) = rest.split_first_chunk() else { return Ok(Taken::Nothing) };
            let here = &rest[..rest.len().min(bytes)];
            let mut sealed = Vec::with_capacity(bytes);
            sealed.extend_from_slice(here);
            self.taken += HEADER_BYTES + bulk::HEADER_BYTES + here.len();
            self.arriving = Some(Arriving { header: *header, sealed, left: bytes - here.len() });
            return self.take_chunk();
        }
        let Some(body) = rest.get(..length) else { return Ok(Taken::Nothing) };
        self.taken += HEADER_BYTES + length;
        match kind {
            Kind::Noise => {
                self.plain.resize(length, 0);
                let opened = self.noise.read_message(self.nonce, body, &mut self.plain);
                let opened =
                    opened.map_err(|_| malformed("a record was altered, repeated, left out or reordered"))?;
                self.nonce += 1;
                self.take_plain(opened)
            }
            Kind::Bulk | Kind::Handshake | Kind::Refusal => {
                Err(malformed("a record belongs in the handshake"))
            }
        }
    }

    /// The chunk that is arriving, if it is complete.
    fn take_chunk(&mut self) -> Result<Taken, LinkError> {
        match self.arriving.take_if(|arriving| arriving.left == 0) {
            None => Ok(Taken::Nothing),
            Some(Arriving { header, sealed, .. }) => {
                self.after_chunk = true;
                let chunk = SealedChunk::build(header, sealed);
                chunk.map(Taken::Bulk).map_err(|error| LinkError::bulk(&error))
            }
        }
    }

    fn take_plain(&mut self, length: usize) -> Result<Taken, LinkError> {
        let Some((code, content)) = self.plain[..length].split_first() else {
            return Err(malformed("a record is empty"));
        };
        match Meaning::parse(*code) {
            Some(Meaning::Piece) => {
                self.frames.push(content).map_err(|error| LinkError::received(&error))?;
                Ok(Taken::Piece)
            }
            Some(Meaning::Goodbye) => Ok(Taken::Goodbye),
            Some(Meaning::Refusal) => {
                Err(LinkError::Refused { phase: Phase::Open, reason: parse_reason(content) })
            }
            Some(Meaning::Credit) => match content.try_into() {
                Ok(places) => Ok(Taken::Credit(u32::from_be_bytes(places))),
                Err(_) => Err(malformed("a credit is not a number")),
            },
            Some(Meaning::Confirm) | None => Err(malformed("a record has no meaning here")),
        }
    }
}

enum Taken {
    /// No complete record is there.
    Nothing,
    Piece,
    Bulk(SealedChunk),
    Credit(u32),
    Goodbye,
}

fn malformed(what: &'static str) -> LinkError {
    LinkError::Malformed { phase: Phase::Open, what }
}

/// The writing half of a link.
///
/// Sends are collected, and [`LinkWriter::flush`] writes them. If this is dropped without [`LinkWriter::close`], the
/// peer sees a cut.
pub struct LinkWriter {
    stream: WriteHalf<Box<dyn Stream>>,
    noise: Arc<StatelessTransportState>,
    nonce: u64,
    /// One byte of meaning, and the frames that are not yet sealed: many small ones become one record.
    plain: Vec<u8>,
    outgoing: Outgoing,
    failed: bool,
}

impl LinkWriter {
    /// Adds a message to the batch. Does not wait.
    ///
    /// # Errors
    /// [`LinkError::Oversized`] and [`LinkError::Encode`], after which the link goes on without this message;
    /// [`LinkError::Failed`].
    pub fn send<T: Serialize + ?Sized>(&mut self, message: &T) -> Result<(), LinkError> {
        self.check_open()?;
        frame::encode_onto(message, &mut self.plain).map_err(LinkError::sending)?;
        self.seal_pieces(MAX_PIECE_BYTES)
    }

    /// Adds a frame whose body is already encoded ([`frame::encode_body`]), or came on another link. Does not wait.
    ///
    /// # Errors
    /// As [`LinkWriter::send`].
    pub fn send_body(&mut self, body: &[u8]) -> Result<(), LinkError> {
        self.check_open()?;
        let prefix = frame::build_prefix(body.len()).map_err(LinkError::sending)?;
        self.plain.reserve(PREFIX_BYTES + body.len());
        self.plain.extend_from_slice(&prefix);
        self.plain.extend_from_slice(body);
        self.seal_pieces(MAX_PIECE_BYTES)
    }

    /// Adds a bulk chunk to the batch, after earlier sends. Does not wait.
    ///
    /// # Errors
    /// [`LinkError::Failed`].
    pub fn send_bulk(&mut self, chunk: SealedChunk) -> Result<(), LinkError> {
        self.check_open()?;
        let header = build_header(Kind::Bulk, chunk.encoded_bytes())?;
        self.seal_pieces(1)?;
        let place = self.outgoing.append(HEADER_BYTES + bulk::HEADER_BYTES);
        let (record, of_chunk) = place.split_at_mut(HEADER_BYTES);
        record.copy_from_slice(&header);
        of_chunk.copy_from_slice(&chunk.header());
        self.outgoing.append_chunk(chunk);
        Ok(())
    }

    /// Adds a credit for bulk chunks to the batch. It may overtake frames that were added before it. Does not wait.
    ///
    /// # Errors
    /// [`LinkError::Failed`].
    pub fn send_credit(&mut self, places: u32) -> Result<(), LinkError> {
        self.check_open()?;
        self.seal_last(Meaning::Credit, &places.to_be_bytes())
    }

    /// Whether the batch has [`BATCH_BYTES`] or more. The batch itself has no limit, so its producer must check this.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.buffered_bytes() >= BATCH_BYTES
    }

    /// Bytes that were sent but not written yet.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.plain.len() - 1 + self.outgoing.len()
    }

    /// Writes the batch, in one call if the stream accepts it.
    ///
    /// Waits while the peer reads nothing. It is *cancel-safe*: its progress is kept in `self`, and the next flush
    /// continues there. So a timeout can surround it.
    ///
    /// # Errors
    /// [`LinkError::Cut`], [`LinkError::Io`]; [`LinkError::Failed`] after one of these.
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        self.check_open()?;
        self.seal_pieces(1)?;
        self.write_sealed(Phase::Open).await
    }

    /// Writes the rest and the goodbye, and ends this direction of the stream. The other continues until the peer's
    /// goodbye.
    ///
    /// Waits as [`LinkWriter::flush`] does. Keep the reader and read it to its end: if a stream is dropped with unread
    /// bytes, TCP resets it, and an unacknowledged goodbye is not sent again.
    ///
    /// # Errors
    /// As [`LinkWriter::flush`]. When it fails or is dropped half-way, the peer sees a cut.
    pub async fn close(self) -> Result<(), LinkError> {
        self.finish(Meaning::Goodbye, &[]).await
    }

    /// As [`LinkWriter::close`], but with a reason: the peer's reader ends with [`LinkError::Refused`] and the first
    /// [`MAX_REASON_BYTES`](crate::limits::MAX_REASON_BYTES) of `reason`.
    ///
    /// # Errors
    /// As [`LinkWriter::close`].
    pub async fn refuse(self, reason: &str) -> Result<(), LinkError> {
        self.finish(Meaning::Refusal, build_reason(reason)).await
    }

    async fn finish(mut self, meaning: Meaning, content: &[u8]) -> Result<(), LinkError> {
        self.check_open()?;
        self.seal_pieces(1)?;
        self.seal_last(meaning, content)?;
        self.write_sealed(Phase::Close).await?;
        self.stream.shutdown().await.map_err(|error| LinkError::io(Phase::Close, error))
    }

    fn check_open(&self) -> Result<(), LinkError> {
        if self.failed { Err(LinkError::Failed) } else { Ok(()) }
    }

    /// Seals the frames of the batch into records until fewer than `rest` bytes are left.
    fn seal_pieces(&mut self, rest: usize) -> Result<(), LinkError> {
        let mut plain = std::mem::take(&mut self.plain);
        let mut done = 0;
        // The byte before a piece is the meaning, or belongs to a piece that is sealed already.
        while plain.len() - 1 - done >= rest {
            let end = (plain.len() - 1).min(done + MAX_PIECE_BYTES);
            plain[done] = Meaning::Piece.code();
            if let Err(error) = self.seal(&plain[done..=end]) {
                self.plain = plain;
                return Err(error);
            }
            done = end;
        }
        plain.drain(..done);
        plain[0] = Meaning::Piece.code();
        plain.shrink_to(KEPT_BYTES);
        self.plain = plain;
        Ok(())
    }

    fn seal_last(&mut self, meaning: Meaning, content: &[u8]) -> Result<(), LinkError> {
        self.seal(&[&[meaning.code()], content].concat())
    }

    /// Seals a meaning and its content into a record.
    fn seal(&mut self, plain: &[u8]) -> Result<(), LinkError> {
        let header = build_header(Kind::Noise, plain.len() + TAG_BYTES)?;
        let place = self.outgoing.append(HEADER_BYTES + plain.len() + TAG_BYTES);
        let (record, body) = place.split_at_mut(HEADER_BYTES);
        record.copy_from_slice(&header);
        let sealed = self.noise.write_message(self.nonce, plain, body);
        // Sealing fails only when the counter is at its end. Then the link is over, and the batch with it.
        let is_sealed = sealed.is_ok_and(|length| length == plain.len() + TAG_BYTES);
        self.failed |= !is_sealed;
        self.nonce = self.nonce.saturating_add(1);
        if is_sealed { Ok(()) } else { Err(LinkError::Failed) }
    }

    async fn write_sealed(&mut self, phase: Phase) -> Result<(), LinkError> {
        let written = self.write_rest().await;
        self.failed |= written.is_err();
        written.map_err(|error| LinkError::io(phase, error))
    }

    async fn write_rest(&mut self) -> io::Result<()> {
        while self.outgoing.len() > 0 {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.outgoing.fill(&mut slices);
            match self.stream.write_vectored(&slices[..count]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.outgoing.advance(written, KEPT_BYTES),
            }
        }
        self.stream.flush().await
    }
}

impl fmt::Debug for LinkReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkReader")
            .field("records", &self.nonce)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LinkWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffered = self.buffered_bytes();
        f.debug_struct("LinkWriter")
            .field("records", &self.nonce)
            .field("buffered", &buffered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
