//! What waits for a rank, in its order: whole frames.

use std::collections::VecDeque;

use gantry_shared::wire::flow::Word;
use gantry_shared::wire::runtime::LINK_WINDOW_BYTES;
use gantry_types::id::NodeId;

use crate::coallocation::state::SubjobId;

/// What a mailbox takes before its senders are held back.
pub(super) const ROOM_BYTES: usize = 1024 * 1024;

/// The most bytes for a rank in one order.
const ORDER_BYTES: usize = 128 * 1024;

/// A link, by its agent's count.
pub(super) type LinkId = (NodeId, u32);

/// A rank's place.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    link: Option<LinkId>,
    /// How much more the link takes.
    window: u32,
    queue: VecDeque<Vec<u8>>,
    /// Bytes in there.
    queued: usize,
    /// What came of senders, and counts as taken when there is room.
    pub(super) owed: Vec<(SubjobId, LinkId, usize)>,
    /// How many of the ranks that have ended it was told of.
    pub(super) seen: usize,
}

impl Mailbox {
    pub(super) fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// A process of the rank has a link from now on. Gives what has waited for it.
    pub(super) fn open(&mut self, link: LinkId) -> VecDeque<Vec<u8>> {
        (self.link, self.window, self.queued) = (Some(link), LINK_WINDOW_BYTES, 0);
        std::mem::take(&mut self.queue)
    }

    /// That process has none any more. What has waited was for it: what comes for a later one is whole.
    pub(super) fn close(&mut self) {
        (self.link, self.window, self.queued, self.seen) = (None, 0, 0, 0);
        self.queue.clear();
    }

    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.queued += frame.len();
        self.queue.push_back(frame);
    }

    /// The rank takes so much more.
    pub(super) fn widen(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes);
    }

    pub(super) fn is_full(&self) -> bool {
        self.queued >= ROOM_BYTES
    }

    /// What may go to its link now. A frame is much smaller than what the rank's agent keeps back of its credit leaves.
    pub(super) fn next(&mut self) -> Option<(LinkId, Word)> {
        let link = self.link?;
        let window = usize::try_from(self.window).unwrap_or(ORDER_BYTES).min(ORDER_BYTES);
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
        self.window -= u32::try_from(bytes.len()).unwrap_or(self.window);
        Some((link, Word::data(bytes)))
    }
}
