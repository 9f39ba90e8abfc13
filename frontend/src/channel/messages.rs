//! Messages that daemons send unasked, as the tool takes them.

use std::sync::Arc;

use gantry_shared::wire::channel::Member;
use gantry_shared::wire::flow::FlowId;

use super::hub::End;
use super::inbox::Message;
use crate::app::core::Core;

/// Messages with one tag, those of one daemon in the order in which it sent them. Dropping it loses none: the next stream of that tag goes on.
#[derive(Debug)]
pub struct MessageStream {
    end: Arc<End>,
    core: Arc<Core>,
    tag: u32,
}

impl MessageStream {
    pub(super) fn new(end: Arc<End>, core: Arc<Core>, tag: u32) -> Self {
        Self { end, core, tag }
    }

    /// The next message; none when the session is over. Waits for it; may be cancelled without loss.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.end.inbox.next(self.tag).await?;
        let Member { node, daemon } = message.member;
        self.core.overlay.taken(node, FlowId::Messages(daemon), message.bytes.len());
        Some(message)
    }

    /// Waits until [`MessageStream::next`] would not wait, unless somebody else takes what it would give.
    pub async fn ready(&self) {
        self.end.inbox.ready(self.tag).await;
    }
}
