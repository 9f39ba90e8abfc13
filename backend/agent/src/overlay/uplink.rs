//! An agent that has its place, and its way to the frontend.

use gantry_shared::wire::message::{Answer, FlowId, Notice, Word};
use gantry_types::error::Failure;
use gantry_types::id::{NodeId, RequestId};
use tokio::sync::mpsc;

use super::input::Input;
use super::relay::SharedRelay;
use crate::channel::Hub;

/// An agent that has its place.
#[derive(Debug)]
pub(crate) struct Joined {
    /// This agent's number.
    pub(crate) node: NodeId,
    /// How many agents there are.
    pub(crate) nodes: u32,
    /// What comes for this agent.
    pub(crate) inputs: mpsc::UnboundedReceiver<Input>,
    /// What it says.
    pub(crate) up: Uplink,
}

/// The way to the frontend. Nothing here waits but [`Uplink::close`], and when the way is gone, nothing happens.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    pub(super) relay: SharedRelay,
}

impl Uplink {
    /// Answers an order.
    pub(crate) fn answer(&self, request: RequestId, answer: Result<Answer, Failure>) {
        self.relay.lock().answer(request, answer);
    }

    /// Reports something. What was answered or reported before arrives before.
    pub(crate) fn notice(&self, notice: Notice) {
        self.relay.lock().notice(notice);
    }

    /// Says a word of one of this node's flows. As [`Uplink::notice`].
    pub(crate) fn flow(&self, flow: FlowId, word: Word) {
        self.notice(Notice::Flow { flow, word });
    }

    /// Lets the channels act, and does what follows.
    pub(crate) fn channel<T>(&self, act: impl FnOnce(&mut Hub) -> T) -> T {
        self.relay.channel(act)
    }

    /// Closes the way to the frontend, which does not speak as it should.
    pub(crate) fn refuse(&self, reason: &str) {
        self.relay.lock().refuse_parent(reason);
    }

    /// Reports that this agent goes without having been told to, and with it all that hang below it.
    pub(crate) fn leaving_unasked(&self, reason: &str) {
        let mut relay = self.relay.lock();
        let nodes = relay.find_own_subtree();
        relay.notice(Notice::NodesLost { nodes, reason: reason.to_owned() });
    }

    /// Leaves the tree: waits until the children have said goodbye (10 s at most), says what is left, then goodbye (2 s at most).
    pub(crate) async fn close(self) {
        self.relay.close().await;
    }
}
