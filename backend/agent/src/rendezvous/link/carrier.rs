//! How far each direction of a rank's link is. Nothing in here waits.

use gantry_shared::wire::message::Blob;
use gantry_shared::wire::owed::Owed;
use gantry_shared::wire::rendezvous::LinkWord;
use gantry_shared::wire::runtime::{LAST_WORDS_BYTES, LINK_WINDOW_BYTES};
use gantry_shared::wire::window::Receiver;

/// The most bytes that are taken at a time.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;

/// A link.
pub(super) struct Carrier<'a> {
    link: u32,
    up: &'a (dyn Fn(LinkWord) + Sync),
    /// What the rank has said and is not on its way yet: of one read at most.
    said: Vec<u8>,
    /// How much the frontend takes; none: it has not answered yet.
    credit: Option<u32>,
    /// The rank has ended, and all of what it has written goes; so many bytes of it are still read.
    last_words: Option<usize>,
    /// How much the frontend may send.
    window: Receiver,
    /// What the frontend is to be given back.
    owed: Owed,
    /// The rank says nothing more.
    ended: bool,
    /// For the rank.
    out: Vec<u8>,
    /// The rank reads no more, and may have written something all the same that is still to come.
    deaf: bool,
    /// The frontend wants no more of it.
    closed: bool,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(link: u32, up: &'a (dyn Fn(LinkWord) + Sync)) -> Self {
        Self {
            link,
            up,
            said: Vec::new(),
            credit: None,
            last_words: None,
            window: Receiver::new(LINK_WINDOW_BYTES),
            owed: Owed::of(LINK_WINDOW_BYTES),
            ended: false,
            out: Vec::new(),
            deaf: false,
            closed: false,
        }
    }

    /// Whether more of the rank may come.
    pub(super) fn wants_bytes(&self) -> bool {
        !self.ended && self.credit.is_some() && self.said.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_done(&self) -> bool {
        (self.ended && self.said.is_empty()) || (self.closed && self.out.is_empty())
    }

    /// The rank says something.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        if let Some(left) = &mut self.last_words {
            *left = left.saturating_sub(bytes.len());
            // Somebody else may have the rank's connection, and write for ever.
            self.ended |= *left == 0;
        }
        self.send();
    }

    /// The rank says nothing more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// What the rank is to be told.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// The rank has taken so much of it.
    pub(super) fn written(&mut self, count: usize) {
        self.out.drain(..count);
        if let Some(back) = self.owed.take(u32::try_from(count).unwrap_or(u32::MAX)) {
            self.window.grant(back);
            (self.up)(LinkWord::Credit(back));
        }
    }

    /// The rank reads no more.
    pub(super) fn deafen(&mut self) {
        self.deaf = true;
        self.out.clear();
    }

    /// The frontend says something of this link.
    pub(super) fn hear(&mut self, word: LinkWord) {
        match word {
            LinkWord::Bytes(_) if self.deaf => {}
            LinkWord::Bytes(Blob(bytes)) => {
                if let Err(overrun) = self.window.take(u32::try_from(bytes.len()).unwrap_or(u32::MAX)) {
                    tracing::warn!(link = self.link, %overrun, "the frontend overran a rank's link, which is closed");
                    self.closed = true;
                    return;
                }
                self.out.extend_from_slice(&bytes);
            }
            LinkWord::Credit(more) => self.credit = Some(self.credit.unwrap_or(0).saturating_add(more)),
            LinkWord::LastWords => {
                self.credit.get_or_insert(0);
                self.last_words.get_or_insert(LAST_WORDS_BYTES as usize);
            }
            LinkWord::Close | LinkWord::Open(_) => self.closed = true,
        }
        self.send();
    }

    /// Sends what the rank has said as far as the credit goes; last words go without.
    fn send(&mut self) {
        while let Some(credit) = self.credit.filter(|_| !self.said.is_empty()) {
            let most = match self.last_words {
                Some(_) => CHUNK_BYTES,
                None if credit == 0 => return,
                None => usize::try_from(credit).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES),
            };
            let bytes: Vec<u8> = self.said.drain(..self.said.len().min(most)).collect();
            self.credit = Some(credit.saturating_sub(u32::try_from(bytes.len()).unwrap_or(credit)));
            (self.up)(LinkWord::Bytes(Blob(bytes)));
        }
    }
}
