//! State of both directions of a rank's link. Nothing in here waits.

use gantry_shared::wire::flow::{FlowId, Inflow, Outflow, Word};
use gantry_shared::wire::runtime::LAST_WORDS_BYTES;

/// The most bytes of one read or one word.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// A link.
pub(super) struct Carrier<'a> {
    up: &'a (dyn Fn(Word) + Sync),
    /// Bytes from the rank that were not sent yet: of one read at most.
    said: Vec<u8>,
    /// Credit from the frontend.
    outflow: Outflow,
    /// The frontend has accepted the link.
    answered: bool,
    /// The rank has ended, and its remaining output goes without credit. At most so many bytes of it are still read.
    last_words: Option<usize>,
    /// Window for the frontend.
    inflow: Inflow,
    /// The rank sends nothing more.
    ended: bool,
    /// Bytes for the rank.
    out: Vec<u8>,
    /// The rank reads no more. Bytes that it has written may still arrive.
    deaf: bool,
    /// The frontend has closed the link.
    closed: bool,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(link: u32, up: &'a (dyn Fn(Word) + Sync)) -> Self {
        Self {
            up,
            said: Vec::new(),
            outflow: Outflow::up(FlowId::Link(link)),
            answered: false,
            last_words: None,
            inflow: Inflow::down(FlowId::Link(link)),
            ended: false,
            out: Vec::new(),
            deaf: false,
            closed: false,
        }
    }

    /// Whether to read from the rank.
    pub(super) fn wants_bytes(&self) -> bool {
        !self.ended && self.answered && self.said.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the link is finished.
    pub(super) fn is_done(&self) -> bool {
        (self.ended && self.said.is_empty()) || (self.closed && self.out.is_empty())
    }

    /// Takes bytes from the rank.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        if let Some(left) = &mut self.last_words {
            *left = left.saturating_sub(bytes.len());
            // Another process may have the rank's connection, and write for ever.
            self.ended |= *left == 0;
        }
        self.send();
    }

    /// The rank sends nothing more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Bytes that are to be written to the rank.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// The rank has taken that many of them.
    pub(super) fn written(&mut self, count: usize) {
        self.out.drain(..count);
        if let Some(back) = self.inflow.take(count) {
            (self.up)(Word::Credit(back));
        }
    }

    /// The rank reads no more.
    pub(super) fn deafen(&mut self) {
        self.deaf = true;
        self.out.clear();
    }

    /// Takes a word from the frontend.
    pub(super) fn hear(&mut self, word: Word) {
        match word {
            Word::Data { .. } if self.deaf => {}
            Word::Data { bytes, .. } => {
                // The frontend has overrun it.
                if self.inflow.arrive(bytes.0.len()).is_err() {
                    self.closed = true;
                    return;
                }
                self.out.extend_from_slice(&bytes.0);
            }
            Word::Credit(more) => {
                self.outflow.earn(more);
                self.answered = true;
            }
            Word::Drain => {
                self.answered = true;
                self.last_words.get_or_insert(LAST_WORDS_BYTES as usize);
            }
            Word::End | Word::Open(_) => self.closed = true,
        }
        self.send();
    }

    /// Sends the rank's bytes as long as the credit lasts. After [`Word::Drain`] they need no credit.
    fn send(&mut self) {
        loop {
            let most = self.said.len().min(CHUNK_BYTES);
            let bytes = if self.last_words.is_some() { most } else { self.outflow.fits(most) };
            if bytes == 0 {
                return;
            }
            self.outflow.send(bytes);
            (self.up)(Word::data(self.said.drain(..bytes).collect()));
        }
    }
}
