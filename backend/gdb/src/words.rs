//! All input and output of a gdb, as far as there is room. `raw` shows it.

use std::collections::VecDeque;

use gantry_gdb::answer::{MAX_PIECE_BYTES, Words as Piece};

/// The most bytes of one gdb that are kept.
const MAX_BYTES: usize = 1 << 20;

/// The most recent input and output.
#[derive(Debug, Default)]
pub(crate) struct Words {
    kept: VecDeque<u8>,
    /// Number of bytes that were dropped.
    forgotten: u64,
}

impl Words {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let more = self.kept.len().saturating_sub(MAX_BYTES);
        self.kept.drain(..more);
        self.forgotten += more as u64;
    }

    /// The bytes from an offset on, at most one piece.
    pub(crate) fn piece(&self, from: u64) -> Piece {
        let end = self.forgotten + self.kept.len() as u64;
        let from = from.clamp(self.forgotten, end);
        let skipped = usize::try_from(from - self.forgotten).unwrap_or(usize::MAX);
        Piece { from, end, text: self.kept.iter().skip(skipped).take(MAX_PIECE_BYTES).copied().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole_and_the_beginning_is_forgotten_first() {
        let mut words = Words::default();
        words.push(b"abc");
        words.push(b"def");
        assert_eq!(words.piece(2), Piece { from: 2, end: 6, text: b"cdef".to_vec() });
        assert_eq!(words.piece(9), Piece { from: 6, end: 6, text: Vec::new() });
        words.push(&vec![b'x'; MAX_BYTES]);
        let first = words.piece(0);
        assert_eq!((first.from, first.end, first.text.len()), (6, 6 + MAX_BYTES as u64, MAX_PIECE_BYTES));
        let next = words.piece(first.from + first.text.len() as u64);
        assert_eq!(next.from, 6 + MAX_PIECE_BYTES as u64);
    }
}
