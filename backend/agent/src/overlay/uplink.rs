//! An agent that has its place in the tree, and its path to the frontend.

use gantry_shared::wire::message::{Answer, FlowId, Notice, Word};
use gantry_types::error::Failure;
use gantry_types::id::{NodeId, RequestId};
use tokio::sync::mpsc;

use super::input::Input;
use super::relay::SharedRelay;
use crate::channel::Hub;

/// An agent that has its place in the tree.
#[derive(Debug)]
pub(crate) struct Joined {
    /// This agent's number.
    pub(crate) node: NodeId,
    /// How many agents there are.
    pub(crate) nodes: u32,
    /// The inputs of this agent.
    pub(crate) inputs: mpsc::UnboundedReceiver<Input>,
    /// Its path to the frontend.
    pub(crate) up: Uplink,
}

/// The path to the frontend. Only [`Uplink::close`] waits. Once the path is gone, calls do nothing.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    pub(super) relay: SharedRelay,
}

impl Uplink {
    /// Answers an order.
    pub(crate) fn answer(&self, request: RequestId, answer: Result<Answer, Failure>) {
        self.relay.lock().answer(request, answer);
    }

    /// Sends a notice. It arrives after all earlier answers and notices.
    pub(crate) fn notice(&self, notice: Notice) {
        self.relay.lock().notice(notice);
    }

    /// Sends a word of one of this node's flows. In order, as [`Uplink::notice`].
    pub(crate) fn flow(&self, flow: FlowId, word: Word) {
        self.notice(Notice::Flow { flow, word });
    }

    /// Runs `act` on the channels and carries out its effects.
    pub(crate) fn channel<T>(&self, act: impl FnOnce(&mut Hub) -> T) -> T {
        self.relay.channel(act)
    }

    /// Closes the path to the frontend, which violates the protocol.
    pub(crate) fn refuse(&self, reason: &str) {
        self.relay.lock().refuse_parent(reason);
    }

    /// Reports that this agent leaves without an order, and with it every agent below it.
    pub(crate) fn leaving_unasked(&self, reason: &str) {
        let mut relay = self.relay.lock();
        let nodes = relay.find_own_subtree();
        relay.notice(Notice::NodesLost { nodes, reason: reason.to_owned() });
    }

    /// Leaves the tree.
    ///
    /// Waits until the children have said goodbye (10 s at most). Then sends what is left and its own goodbye (2 s at
    /// most).
    pub(crate) async fn close(self) {
        self.relay.close().await;
    }
}
