//! Bulk data, sealed once: the root seals each chunk with a key that every agent can derive, and agents forward the
//! chunk unchanged. With a link's own sealing, each agent would open once and seal for each of its children.
//!
//! Every holder of the app's secret can seal. So a chunk proves that it comes from the app, as a link does, but not
//! from which member. The seal includes the chunk's place in its stream: every opener detects a chunk that was
//! altered, left out, repeated or moved, regardless of the agents between.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, UnboundKey};
use zeroize::Zeroizing;

use crate::limits::MAX_BULK_CHUNK_BYTES;
use crate::primitives::build_nonce;
use gantry_shared::secret::{Secret, SecretError, fill_random};

/// Bytes that the seal adds.
pub const SEAL_BYTES: usize = 16;
/// Bytes in front of the sealed bytes: stream, sequence, flags.
pub const HEADER_BYTES: usize = 17;
/// The most bytes of an encoded chunk.
pub const MAX_ENCODED_BYTES: usize = HEADER_BYTES + MAX_BULK_CHUNK_BYTES + SEAL_BYTES;

const FLAG_LAST: u8 = 1;
const CONTEXT: &str = "gantry 2025 bulk stream key v1";

/// Why sealing or opening bulk data failed. All but [`BulkError::Random`] end the stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The system gave no random stream number.
    #[error("start a bulk stream")]
    Random(#[source] SecretError),
    /// The chunk is larger than its limit.
    #[error("handle bulk data of {bytes} bytes where {limit} are allowed")]
    Oversized {
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The chunk is of another stream.
    #[error("open a chunk of stream {got:016x} as one of stream {expected:016x}")]
    OtherStream {
        /// The stream of the opener.
        expected: u64,
        /// The stream of the chunk.
        got: u64,
    },
    /// A chunk is missing, came twice or came early.
    #[error("open chunk {got} of a bulk stream where chunk {expected} is next")]
    OutOfOrder {
        /// The sequence number that is next.
        expected: u64,
        /// The sequence number that came.
        got: u64,
    },
    /// The chunk was not sealed with this app's secret, or was altered since.
    #[error("open a chunk: its seal is broken")]
    BrokenSeal,
    /// The last chunk was already sealed or opened.
    #[error("go on with a bulk stream after its last chunk")]
    AfterEnd,
    /// The bytes are not an encoded chunk.
    #[error("read a bulk chunk: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
}

/// The key of one bulk stream of one app. Wiped when dropped.
struct BulkKey {
    key: Zeroizing<[u8; 32]>,
    stream: u64,
}

impl BulkKey {
    /// The key of the stream with this number. It opens; only a [`BulkSealer`], which picks its own number, seals.
    fn derive(secret: &Secret, stream: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(secret.expose()).update(&stream.to_be_bytes());
        let mut key = Zeroizing::new([0; 32]);
        hasher.finalize_xof().fill(key.as_mut_slice());
        Self { key, stream }
    }

    /// Fails for a key of another length alone.
    fn cipher(&self) -> Result<LessSafeKey, BulkError> {
        let key = UnboundKey::new(&AES_256_GCM, self.key.as_slice());
        key.map(LessSafeKey::new).map_err(|_| BulkError::BrokenSeal)
    }
}

impl fmt::Debug for BulkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkKey").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// One sealed piece of a bulk stream. A clone shares the bytes, so it can wait in 64 queues at the cost of one.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedChunk {
    stream: u64,
    sequence: u64,
    last: bool,
    bytes: Arc<Vec<u8>>,
}

impl SealedChunk {
    /// The stream's number.
    #[must_use]
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The chunk's place in the stream, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the stream ends with this chunk. As with the other numbers, this is only a claim until the chunk is
    /// opened.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Bytes of the encoding.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.bytes.len()
    }

    /// The header: stream and sequence as 64-bit big-endian numbers, and a byte of flags. The sealed bytes follow it.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        build_header(self.stream, self.sequence, self.last)
    }

    /// The sealed bytes.
    #[must_use]
    pub fn sealed(&self) -> &[u8] {
        &self.bytes
    }

    /// The chunk of a header and its sealed bytes. Does not check the seal.
    ///
    /// # Errors
    /// [`BulkError::Malformed`], [`BulkError::Oversized`].
    pub fn build(header: [u8; HEADER_BYTES], sealed: Vec<u8>) -> Result<Self, BulkError> {
        if sealed.len() > MAX_BULK_CHUNK_BYTES + SEAL_BYTES {
            return Err(oversized(sealed.len(), MAX_BULK_CHUNK_BYTES + SEAL_BYTES));
        }
        if sealed.len() < SEAL_BYTES {
            return Err(BulkError::Malformed { what: "it is too short" });
        }
        let [stream @ .., _, _, _, _, _, _, _, _, _] = header;
        let [_, _, _, _, _, _, _, _, sequence @ .., flags] = header;
        if flags & !FLAG_LAST != 0 {
            return Err(BulkError::Malformed { what: "it has unknown flags" });
        }
        let (stream, sequence) = (u64::from_be_bytes(stream), u64::from_be_bytes(sequence));
        Ok(Self { stream, sequence, last: flags & FLAG_LAST != 0, bytes: Arc::new(sealed) })
    }
}

impl fmt::Debug for SealedChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, sequence, last, bytes } = self;
        write!(
            f,
            "SealedChunk({stream:016x} #{sequence}, {} bytes{})",
            bytes.len(),
            if *last { ", last" } else { "" }
        )
    }
}

fn build_header(stream: u64, sequence: u64, last: bool) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&stream.to_be_bytes());
    header[8..16].copy_from_slice(&sequence.to_be_bytes());
    header[16] = if last { FLAG_LAST } else { 0 };
    header
}

fn oversized(bytes: usize, limit: usize) -> BulkError {
    BulkError::Oversized { bytes: bytes as u64, limit: limit as u64 }
}

/// Seals one stream, at the root.
///
/// The stream's number is random. A number used twice under one secret, for instance by a restarted frontend, would
/// reuse key and nonces and reveal the contents. For the same reason only this type counts the stream's chunks.
#[derive(Debug)]
pub struct BulkSealer {
    key: BulkKey,
    next: u64,
    ended: bool,
}

impl BulkSealer {
    /// A new stream.
    ///
    /// # Errors
    /// [`BulkError::Random`].
    pub fn start(secret: &Secret) -> Result<Self, BulkError> {
        let mut stream = [0; 8];
        fill_random(&mut stream).map_err(|error| BulkError::Random(SecretError::Random(error)))?;
        Ok(Self { key: BulkKey::derive(secret, u64::from_be_bytes(stream)), next: 0, ended: false })
    }

    /// The stream's number, to announce to the openers.
    #[must_use]
    pub fn stream(&self) -> u64 {
        self.key.stream
    }

    /// Seals the next chunk, of at most [`MAX_BULK_CHUNK_BYTES`]. An empty chunk is allowed, so that a stream can end
    /// after its data.
    ///
    /// # Errors
    /// [`BulkError::Oversized`], [`BulkError::AfterEnd`].
    pub fn seal(&mut self, plain: &[u8], last: bool) -> Result<SealedChunk, BulkError> {
        if plain.len() > MAX_BULK_CHUNK_BYTES {
            return Err(oversized(plain.len(), MAX_BULK_CHUNK_BYTES));
        }
        if self.ended {
            return Err(BulkError::AfterEnd);
        }
        let (stream, sequence) = (self.key.stream, self.next);
        let aad = Aad::from(build_header(stream, sequence, last));
        let mut bytes = Vec::with_capacity(plain.len() + SEAL_BYTES);
        bytes.extend_from_slice(plain);
        let sealed = self.key.cipher()?.seal_in_place_append_tag(build_nonce(sequence), aad, &mut bytes);
        sealed.map_err(|_| BulkError::BrokenSeal)?;
        self.ended = last || sequence == u64::MAX;
        self.next = sequence.saturating_add(1);
        Ok(SealedChunk { stream, sequence, last, bytes: Arc::new(bytes) })
    }
}

/// Opens one stream at each agent: every chunk once, in order, up to the last. Consumers know how long it may be.
#[derive(Debug)]
pub struct BulkOpener {
    key: BulkKey,
    next: u64,
    ended: bool,
}

impl BulkOpener {
    /// An opener for the stream with this number.
    #[must_use]
    pub fn new(secret: &Secret, stream: u64) -> Self {
        Self { key: BulkKey::derive(secret, stream), next: 0, ended: false }
    }

    /// The plain bytes of the next chunk. A refused chunk does not change the opener. The last clone of a chunk is
    /// opened without a copy.
    ///
    /// # Errors
    /// [`BulkError::OtherStream`], [`BulkError::AfterEnd`], [`BulkError::OutOfOrder`], [`BulkError::BrokenSeal`].
    pub fn open(&mut self, chunk: SealedChunk) -> Result<Vec<u8>, BulkError> {
        if chunk.stream != self.key.stream {
            return Err(BulkError::OtherStream { expected: self.key.stream, got: chunk.stream });
        }
        if self.ended {
            return Err(BulkError::AfterEnd);
        }
        if chunk.sequence != self.next {
            return Err(BulkError::OutOfOrder { expected: self.next, got: chunk.sequence });
        }
        let aad = Aad::from(build_header(chunk.stream, chunk.sequence, chunk.last));
        let mut plain = Arc::unwrap_or_clone(chunk.bytes);
        let opened = self.key.cipher()?.open_in_place(build_nonce(chunk.sequence), aad, &mut plain);
        let length = opened.map_err(|_| BulkError::BrokenSeal)?.len();
        plain.truncate(length);
        self.ended = chunk.last;
        self.next = self.next.saturating_add(1);
        Ok(plain)
    }

    /// Whether the last chunk was opened.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests;
