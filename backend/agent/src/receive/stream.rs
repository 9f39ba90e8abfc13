//! Reads the pieces of a bulk stream as one stream of bytes.

use std::io::{self, Read};
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
}

impl Read for Pieces {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Err(why) = self.cut.check() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
            }
            if let Some(piece) = &self.current {
                let read = (&piece.plain[self.taken..]).read(to)?;
                self.taken += read;
                if read > 0 || to.is_empty() {
                    return Ok(read);
                }
                self.ended |= piece.last;
                // Makes room for the next piece.
                self.current = None;
            }
            if self.ended {
                return Ok(0);
            }
            // This waits as long as the sender does. The overlay ends each stream for sure, and the agent drops the
            // other end when it leaves.
            let piece = self.coming.recv().map_err(|_| {
                self.cut.check().err().map_or_else(
                    || io::Error::new(io::ErrorKind::ConnectionReset, "the sender has stopped"),
                    |why| io::Error::new(io::ErrorKind::ConnectionAborted, why),
                )
            })?;
            (self.current, self.taken) = (Some(piece), 0);
        }
    }
}
