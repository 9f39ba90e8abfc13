//! The tree of a bulk stream: which node feeds which.
//!
//! Orders go down a wide tree that stands for the lifetime of the app. Bulk data goes down a narrow tree that is made
//! for each stream, over the nodes that want it. So no node sends it to more than a few others, and above all not the
//! frontend. The frontend draws that tree and gives every node its [`BulkSeat`]. Each node dials its feeder
//! ([`Dial::Bulk`](super::message::Dial)), for this stream only. So streams do not wait for each other there, and no
//! link is left after their end. Nodes that cannot be dialled, or cannot dial, are fed over the links of orders.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use gantry_types::error::Failure;
use gantry_types::id::NodeId;

/// An order about a stream itself. The overlay in the agent handles it, and does not pass it to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkOrder {
    /// Take these places. Answered by [`Answer::Done`](super::message::Answer) when the link to the node's feeder is
    /// open.
    Link {
        /// The stream's number.
        stream: u64,
        /// Places of nodes in the subtree of the receiver. Each agent forwards the places of the nodes below it.
        seats: Vec<BulkSeat>,
    },
    /// The stream ends early. A node that has all of it is not concerned; a node that has a part of it drops that.
    End {
        /// The stream's number.
        stream: u64,
        /// The reason.
        why: Failure,
    },
    /// Asks how much bulk data has gone through. Answered by [`Answer::Bulk`](super::message::Answer).
    Count,
}

/// A node's place in the tree of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkSeat {
    /// The node.
    pub node: NodeId,
    /// Whether the stream is for the node itself, too.
    pub own: bool,
    /// The feeder of the node.
    pub feeder: Feeder,
    /// Nodes that will dial this node.
    pub children: Vec<NodeId>,
    /// Children in the tree of orders that get the stream over the link of orders.
    pub relayed: Vec<NodeId>,
}

/// The feeder of a node for one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feeder {
    /// Its parent in the tree of orders, or the frontend, over the link of orders.
    Parent,
    /// Another node, which this node dials.
    Peer {
        /// The other node.
        node: NodeId,
        /// Its addresses.
        listen: Vec<SocketAddr>,
    },
}

/// The first reply of a feeder to [`Dial::Bulk`](super::message::Dial): chunks will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The stream's number.
    pub stream: u64,
}

/// Bulk data that went through a node since it joined, in bytes of content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkCount {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent, over all links.
    pub sent: u64,
}
