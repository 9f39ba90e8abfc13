//! The agent's place in the tree: one link to its parent, and one to each of its children.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`mod@join`] | the way in: report to the frontend, take the seat, dial the parent |
//! | [`dial`] | trying several addresses side by side |
//! | [`relay`] | what goes where; knows everything and waits for nothing |
//! | [`gather`] | answers of a subtree become few frames |
//! | [`parent`], [`children`] | the links and their tasks |
//! | [`streams`], [`flow`], [`feeding`] | bulk data on its way through this node: all streams, one of them, the links that are made for it |
//! | [`bulk`] | what a node makes of bulk data that is meant for it |
//!
//! What bounds memory: answers are bounded by requests; output by the window that the frontend has opened for it, so it needs no other
//! bound here; frames of children that wait for a slow parent by a budget of bytes, beyond which the children are not read; bulk
//! data by short queues and by credit, chunk by chunk, so that no reader of a link waits for it. Upwards everything stays in order, so that output cannot starve answers, nor overtake or be overtaken.

mod join;
mod dial;
mod relay;
mod gather;
mod parent;
mod children;
mod bulk;
mod streams;
mod flow;
mod feeding;

use gantry_shared::error::Failure;
use gantry_shared::id::{NodeId, RequestId};
use gantry_shared::wire::message::{Answer, Notice, Order};
use tokio::sync::mpsc;

pub(crate) use self::bulk::{BulkReceiver, Piece};
pub(crate) use self::dial::dial_bridge;
pub(crate) use self::join::{JoinError, join, join_bringing, join_over};
use self::relay::SharedRelay;
use crate::channel::Hub;
use crate::rendezvous::Bridges;

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

/// What comes for this agent.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something to do.
    Order {
        /// The answer bears this number; none: no answer is wanted.
        request: Option<RequestId>,
        /// What.
        order: Order,
    },
    /// Bulk data of a stream that an order has announced. While it is kept, the stream waits.
    Bulk(Piece),
    /// The way to the frontend is closed (orderly) or lost. The last input.
    Gone {
        /// The frontend has said goodbye.
        orderly: bool,
        /// What was seen.
        reason: String,
    },
}

/// The way to the frontend. Nothing here waits but [`Uplink::close`], and when the way is gone, nothing happens.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    relay: SharedRelay,
    bridges: Bridges,
}

impl Uplink {
    /// Links to other agents of the job.
    pub(crate) fn bridges(&self) -> &Bridges {
        &self.bridges
    }

    /// Answers an order.
    pub(crate) fn answer(&self, request: RequestId, answer: Result<Answer, Failure>) {
        self.relay.lock().answer(request, answer);
    }

    /// Reports something. What was answered or reported before arrives before.
    pub(crate) fn notice(&self, notice: Notice) {
        self.relay.lock().notice(notice);
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

#[cfg(test)]
mod tests;
