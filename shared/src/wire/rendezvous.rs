//! The rendezvous protocols: between a process and its node's agent, and between agents and the frontend.
//!
//! A process makes one request on one connection to its agent's socket
//! ([`build_service_name`](crate::rendezvous::handle::build_service_name)): a frame with its [`Ask`]. The raw bytes of
//! an item follow. The answer is a frame with a [`Tell`], and raw bytes of data follow. Nothing is sent twice, and no
//! data is copied into frames. Both ends check the other's user.
//!
//! Agents announce an item by a notice, which is small and keeps its order among their other notices. The item's bytes
//! follow in pieces, as far as the frontend has given credit. Only data that a process waits for goes down the tree:
//! small data in orders, large data as bulk data.

use gantry_types::error::Failure;
use gantry_types::id::{NodeId, Rank};
use gantry_types::rank_set::NodeSet;
use gantry_types::rendezvous::{Broken, Resource, Status};
use serde::{Deserialize, Serialize};

use super::blob::Blob;

/// Version of the protocol between a process and its agent.
pub const VERSION: u16 = 2;

/// The most bytes of a process's request, and of an answer's frame without the data that follows.
pub const MAX_ASK_BYTES: u32 = 4096;

/// The most unacknowledged bytes of items from one agent to the frontend.
pub const ITEM_WINDOW_BYTES: u32 = 1024 * 1024;

/// The most bytes of an item in one notice.
pub const PIECE_BYTES: usize = 128 * 1024;

/// Larger data goes down as bulk data. Larger puts of a node go up as an item.
pub const MAX_SMALL_BYTES: u64 = 64 * 1024;

/// A process's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The protocol version of the process's library.
    pub version: u16,
    /// The rank that the process claims to be. The agent finds the rank itself, and refuses a wrong claim.
    pub rank: Option<Rank>,
    /// Which rendezvous.
    pub of: Gate,
    /// The request about it.
    pub what: AskWhat,
}

/// A rendezvous. It is made if it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gate {
    /// Its resource.
    pub resource: Resource,
    /// The number of expected members, with which a named one is made. `None`: it must exist.
    pub expected: Option<u32>,
}

/// The kind of a process's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskWhat {
    /// To register an item of that many bytes. The bytes follow. Answered by [`Tell::Done`].
    Put {
        /// Number of bytes.
        bytes: u64,
    },
    /// To get this data once it is complete. Answered by [`Tell::Data`].
    Get(Want),
    /// The status of the rendezvous. Answered by [`Tell::Status`].
    Status,
    /// The status of all rendezvous. Answered by [`Tell::List`].
    List,
    /// A link to the job's frontend. Answered by [`Tell::Done`]; after that both sides send the frames of
    /// [`runtime`](super::runtime).
    Link,
    /// To be served as an MPI program. Not answered: PMI follows.
    Mpi,
}

/// The data that a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Want {
    /// The aggregate.
    All,
    /// Completion alone, without data.
    Complete,
    /// One member's item. It is available as soon as that member has registered.
    Item(u32),
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// It is registered.
    Done,
    /// That many bytes follow.
    Data {
        /// Number of bytes.
        bytes: u64,
    },
    /// The status.
    Status(Status),
    /// That many frames with a [`Tell::Status`] follow.
    List {
        /// Number of frames.
        count: u32,
    },
    /// The request is refused.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The rendezvous is broken.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Data that one or more processes of a node wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The rendezvous.
    pub of: Gate,
    /// The kind of data.
    pub want: Want,
}

/// An agent's notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RendezvousNotice {
    /// A rank of the node registers an item. Its bytes follow in the flow [`Items`](super::flow::FlowId::Items).
    /// Answered by [`RendezvousOrder::Registered`].
    Put {
        /// The item's number on this agent.
        item: u64,
        /// The rendezvous.
        of: Gate,
        /// The rank.
        rank: Rank,
        /// Number of bytes.
        bytes: u64,
    },
    /// A process waits for this. Answered once, by [`RendezvousOrder::Got`] or [`RendezvousOrder::Stream`], when the
    /// data is available.
    Get(Key),
    /// These nodes have entered a fence of the ranks' MPI world, with at most [`MAX_SMALL_BYTES`] each. Each of them
    /// registers and waits by this one notice, which is answered as [`RendezvousNotice::Get`]. Agents merge the notices
    /// of their subtree.
    Fence {
        /// The fence's number.
        number: u32,
        /// The nodes, and what each one's ranks have put.
        puts: Vec<(NodeId, Blob)>,
    },
    /// A process asks for the status of a rendezvous, or of all for `None`. Answered by [`RendezvousOrder::Stands`].
    Status(Option<Gate>),
}

/// An order of the frontend. Agents answer only [`RendezvousOrder::Stream`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RendezvousOrder {
    /// The result for an item.
    Registered {
        /// The item's number.
        item: u64,
        /// Whether it is registered.
        outcome: Result<(), Refusal>,
    },
    /// The requested data.
    Got {
        /// The request.
        key: Key,
        /// The bytes, or why there are none.
        outcome: Result<Blob, Refusal>,
    },
    /// The requested data follows as bulk data.
    Stream {
        /// The request.
        key: Key,
        /// The stream's number.
        stream: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// The requested status.
    Stands {
        /// The rendezvous, or `None` for all.
        of: Option<Gate>,
        /// The answer.
        outcome: Result<Vec<Status>, Refusal>,
    },
}

/// Checks the puts of one [`RendezvousNotice::Fence`]. `below` are the nodes that its sender may speak for.
///
/// Agents check what they merge, so that the sender of an invalid notice is refused, and not those that passed it on.
///
/// # Errors
/// What the sender did wrong.
pub fn check_puts(puts: &[(NodeId, Blob)], below: &NodeSet) -> Result<(), String> {
    let mut seen = NodeSet::default();
    for (node, put) in puts {
        let bytes = put.0.len();
        if !below.contains(*node) {
            return Err(format!("sent a put of node {node}, which is not below it"));
        }
        if !seen.insert(*node) {
            return Err(format!("sent two puts of node {node} at once"));
        }
        if bytes as u64 > MAX_SMALL_BYTES {
            return Err(format!("sent a put of {bytes} bytes: the limit is {MAX_SMALL_BYTES}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_one_small_put_of_each_node_that_its_sender_speaks_for() {
        let below: NodeSet = "1-3".parse().unwrap();
        let check = |puts: &[(u32, u64)], expected: Result<(), &str>| {
            let put =
                |(node, bytes): &(u32, u64)| (NodeId(*node), Blob(vec![0; usize::try_from(*bytes).unwrap()]));
            let puts: Vec<_> = puts.iter().map(put).collect();
            assert_eq!(check_puts(&puts, &below), expected.map_err(str::to_owned));
        };
        check(&[], Ok(()));
        check(&[(3, 0), (1, MAX_SMALL_BYTES)], Ok(()));
        check(&[(1, 0), (4, 0)], Err("sent a put of node 4, which is not below it"));
        check(&[(2, 0), (1, 0), (2, 0)], Err("sent two puts of node 2 at once"));
        check(&[(2, MAX_SMALL_BYTES + 1)], Err("sent a put of 65537 bytes: the limit is 65536"));
    }
}
