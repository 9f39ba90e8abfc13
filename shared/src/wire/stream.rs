//! Who feeds whom with a stream of bulk data.
//!
//! Orders go down a wide tree that stands as long as the app. Bulk data goes down a narrow one that is made for each stream, over
//! the nodes that want it: nobody sends it to more than a few others, the frontend least of all. The frontend draws that tree and gives every node its
//! [`BulkSeat`]; nodes dial those that feed them ([`Dial::Bulk`](super::message::Dial)), for this stream only, so that streams do not wait for
//! each other there and no link is left when they end. Nodes that cannot be dialled, or cannot dial, are fed over the links of orders.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use gantry_types::error::Failure;
use gantry_types::id::NodeId;

/// An order about a stream itself. It is for the overlay in the agent, and not for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkOrder {
    /// Take these places. Answered by [`Answer::Done`](super::message::Answer) when the link to whoever feeds the node stands.
    Link {
        /// The stream's number.
        stream: u64,
        /// Places of nodes in the subtree that this goes to. Each agent passes on what is for those below it.
        seats: Vec<BulkSeat>,
    },
    /// There is no more of the stream and never will be. Who has all of it already is not concerned; who has a part forgets it.
    End {
        /// The stream's number.
        stream: u64,
        /// Why.
        why: Failure,
    },
    /// How much bulk data has gone through? Answered by [`Answer::Bulk`](super::message::Answer).
    Count,
}

/// A node's place in the tree of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkSeat {
    /// Whose place it is.
    pub node: NodeId,
    /// Whether the stream is for the node itself, too.
    pub own: bool,
    /// Where the stream comes from.
    pub feeder: Feeder,
    /// Nodes that will dial this one.
    pub children: Vec<NodeId>,
    /// Children in the tree of orders that get the stream over the link of orders.
    pub relayed: Vec<NodeId>,
}

/// Where a node has a stream from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feeder {
    /// Its parent in the tree of orders, or the frontend, over the link of orders.
    Parent,
    /// Another node, which is to be dialled.
    Peer {
        /// Which.
        node: NodeId,
        /// Where it listens.
        listen: Vec<SocketAddr>,
    },
}

/// What who was dialled by [`Dial::Bulk`](super::message::Dial) says: chunks will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Of which stream.
    pub stream: u64,
}

/// Bulk data that went through a node since it joined, in bytes of content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkCount {
    /// Came in.
    pub received: u64,
    /// Went out, over all links.
    pub sent: u64,
}
