//! Reads the pieces of a bulk stream as one stream of bytes.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::Receiver;

use super::Cut;
use crate::overlay::Piece;

/// Blocks for each piece. Ends with the stream's last piece, or with an error when the stream is cut off before.
#[derive(Debug)]
pub(super) struct Pieces {
    coming: Receiver<Piece>,
    cut: Cut,
    current: Option<Piece>,
    taken: usize,
    ended: bool,
}

impl Pieces {
    pub(super) fn new(coming: Receiver<Piece>, cut: Cut) -> Self {
        Self { coming, cut, current: None, taken: 0, ended: false }
    }

    fn check(&self) -> io::Result<()> {
        self.cut.check().map_err(|why| io::Error::new(io::ErrorKind::ConnectionAborted, why))
    }
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            self.check()?;
            match &self.current {
                Some(piece) if self.taken < piece.plain.len() => break,
                Some(piece) => {
                    self.ended |= piece.last;
                    // Makes room for the next piece.
                    self.current = None;
                }
                None if self.ended => break,
                // This waits as long as the sender does. The overlay ends each stream for sure, and the agent drops the
                // other end when it leaves.
                None => {
                    let Ok(piece) = self.coming.recv() else {
                        self.check()?;
                        return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the sender has stopped"));
                    };
                    (self.current, self.taken) = (Some(piece), 0);
                }
            }
        }
        Ok(self.current.as_ref().map_or(&[], |piece| &piece.plain[self.taken..]))
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

impl Read for Pieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}
