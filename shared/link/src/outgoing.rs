//! What a link has to write: records, and bulk chunks between them. A chunk is written from where it lies.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::bulk::SealedChunk;

/// The most pieces that one call writes: the chunks of a batch, and the records around each.
pub(super) const PIECES: usize = 8;

#[derive(Debug)]
enum Piece {
    Records(Vec<u8>),
    Chunk(SealedChunk),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Records(records) => records,
            Self::Chunk(chunk) => chunk.sealed(),
        }
    }
}

/// The bytes of a link that are not yet written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are written.
    written: usize,
    /// Bytes that are left.
    bytes: usize,
    /// An empty buffer for the next records.
    spare: Vec<u8>,
}

impl Outgoing {
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Appends that many bytes, for a record to be written into.
    pub(super) fn append(&mut self, bytes: usize) -> &mut [u8] {
        if !matches!(self.pieces.back(), Some(Piece::Records(_))) {
            self.pieces.push_back(Piece::Records(std::mem::take(&mut self.spare)));
        }
        self.bytes += bytes;
        match self.pieces.back_mut() {
            Some(Piece::Records(records)) => {
                let start = records.len();
                records.resize(start + bytes, 0);
                &mut records[start..]
            }
            _ => &mut [],
        }
    }

    /// Appends the sealed bytes of a chunk.
    pub(super) fn append_chunk(&mut self, chunk: SealedChunk) {
        self.bytes += chunk.sealed().len();
        self.pieces.push_back(Piece::Chunk(chunk));
    }

    /// Points the slices to the next bytes, and returns how many slices there are.
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let skipped = if count == 0 { self.written } else { 0 };
            *slice = IoSlice::new(&piece.bytes()[skipped..]);
            count += 1;
        }
        count
    }

    /// Counts bytes as written. When all are, keeps a buffer of at most `kept` bytes.
    pub(super) fn advance(&mut self, bytes: usize, kept: usize) {
        self.bytes -= bytes;
        self.written += bytes;
        while let Some(piece) = self.pieces.front() {
            let length = piece.bytes().len();
            if self.written < length {
                return;
            }
            self.written -= length;
            if let Some(Piece::Records(mut records)) = self.pieces.pop_front() {
                records.clear();
                records.shrink_to(kept);
                self.spare = records;
            }
        }
    }
}
