//! The queue of a rank: whole frames, in order.

use std::collections::VecDeque;

use gantry_shared::wire::flow::{Outflow, Word};
use gantry_shared::wire::runtime::LINK_WINDOW_BYTES;
use gantry_types::id::NodeId;

use crate::coallocation::state::SubjobId;

/// When a mailbox holds this many bytes, its senders get no more credit.
pub(super) const ROOM_BYTES: usize = 1024 * 1024;

/// The most bytes for a rank in one order.
const ORDER_BYTES: usize = 128 * 1024;

/// A link, by its agent's number for it.
pub(super) type LinkId = (NodeId, u32);

/// A rank's mailbox.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// The link, and what it may be sent.
    link: Option<(LinkId, Outflow)>,
    queue: VecDeque<Vec<u8>>,
    /// Bytes in the queue.
    queued: usize,
    /// Bytes received from senders. They get the credit back when the mailbox has room.
    pub(super) owed: Vec<(SubjobId, LinkId, usize)>,
    /// How many entries of the list of ended ranks this rank has been told.
    pub(super) seen: usize,
}

impl Mailbox {
    pub(super) fn link(&self) -> Option<LinkId> {
        self.link.map(|(link, _)| link)
    }

    /// A process of the rank has opened a link. Returns the frames that were queued before.
    pub(super) fn open(&mut self, link: LinkId) -> VecDeque<Vec<u8>> {
        self.queued = 0;
        self.link = Some((link, Outflow::new(LINK_WINDOW_BYTES, 0)));
        std::mem::take(&mut self.queue)
    }

    /// The process has closed its link. Queued frames were for that process, so they are dropped; a later process
    /// starts with a whole frame.
    pub(super) fn close(&mut self) {
        (self.link, self.queued, self.seen) = (None, 0, 0);
        self.queue.clear();
    }

    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.queued += frame.len();
        self.queue.push_back(frame);
    }

    /// The rank grants this many more bytes.
    pub(super) fn widen(&mut self, bytes: u32) {
        if let Some((_, outflow)) = &mut self.link {
            outflow.earn(bytes);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.queued >= ROOM_BYTES
    }

    /// The next data for the link, if the credit allows any. Every frame fits: it is much smaller than the credit that
    /// the rank's agent leaves after what it keeps back.
    pub(super) fn next(&mut self) -> Option<(LinkId, Word)> {
        let (link, outflow) = self.link.as_mut()?;
        let window = outflow.fits(ORDER_BYTES);
        let mut bytes = Vec::new();
        while let Some(frame) = self.queue.front()
            && bytes.len() + frame.len() <= window
        {
            self.queued -= frame.len();
            bytes.extend_from_slice(frame);
            self.queue.pop_front();
        }
        if bytes.is_empty() {
            return None;
        }
        outflow.send(bytes.len());
        Some((*link, Word::data(bytes)))
    }
}
