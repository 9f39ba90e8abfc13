//! Messages that daemons send unasked, as the tool takes them.

use std::sync::Arc;

use gantry_shared::wire::channel::Member;
use gantry_shared::wire::flow::FlowId;

use super::hub::End;
use super::inbox::Message;
use crate::app::core::Core;

/// Messages with one tag. Those of one daemon keep the order in which it sent them. Dropping the stream loses none: the
/// next stream of that tag continues.
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

    /// The next message. None: the session is over. Cancel-safe: no message is lost.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.end.inbox.next(self.tag).await?;
        let Member { node, daemon } = message.member;
        self.core.overlay.taken(node, FlowId::Messages(daemon), message.bytes.len());
        Some(message)
    }

    /// Waits until [`MessageStream::next`] would return at once. Another stream of this tag may take that message
    /// first.
    pub async fn ready(&self) {
        self.end.inbox.ready(self.tag).await;
    }
}
