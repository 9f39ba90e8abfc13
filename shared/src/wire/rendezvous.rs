//! Rendezvous on its way: what a process and its node's agent say to each other, and what agents and the frontend do.
//!
//! A process asks one thing on one connection to its agent's socket ([`build_service_name`](crate::rendezvous::handle::build_service_name)): a frame with its
//! [`Ask`]; an item's bytes follow as they are. The answer is a frame with a [`Tell`]; data's bytes follow as they are. Nothing is said twice and nothing is
//! copied into frames. Both ends check the other's user.
//!
//! Agents announce an item by a notice, which costs little and keeps its place among all else that they report; its bytes follow in pieces, as far as the
//! frontend has given credit. Down the tree goes only what somebody there waits for: small things in orders, large ones as bulk data.

use gantry_types::error::Failure;
use gantry_types::id::Rank;
use gantry_types::rendezvous::{Broken, Resource, Status};
use serde::{Deserialize, Serialize};

use super::blob::Blob;

/// Version of the dialogue of a process and its agent.
pub const VERSION: u16 = 2;

/// The most bytes of a process's question, and of an answer's frame without the data that follows.
pub const MAX_ASK_BYTES: u32 = 4096;

/// How many bytes of items an agent may have on their way before the frontend has taken them.
pub const ITEM_WINDOW_BYTES: u32 = 1024 * 1024;

/// The most bytes of an item in one notice.
pub const PIECE_BYTES: usize = 128 * 1024;

/// What is larger goes down as bulk data.
pub const MAX_SMALL_BYTES: u64 = 64 * 1024;

/// The question of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The version that the process's library speaks.
    pub version: u16,
    /// Which rank it says that it is. The agent finds that out itself; a wrong claim is refused.
    pub rank: Option<Rank>,
    /// Which rendezvous.
    pub of: Gate,
    /// What about it.
    pub what: AskWhat,
}

/// A rendezvous, to be made where it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gate {
    /// Which.
    pub resource: Resource,
    /// How many are expected: one with a name is made for that many. None: it must be there.
    pub expected: Option<u32>,
}

/// What a process asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskWhat {
    /// To register an item of that many bytes, which follow. Answered by [`Tell::Done`].
    Put {
        /// How many.
        bytes: u64,
    },
    /// To get this as soon as it is there. Answered by [`Tell::Data`].
    Get(Want),
    /// How it stands. Answered by [`Tell::Status`].
    Status,
    /// How all that there are stand. Answered by [`Tell::List`].
    List,
    /// A link to the job's frontend. Answered by [`Tell::Done`]; from then on both sides say what [`runtime`](super::runtime) has.
    Link,
    /// To be served as an MPI program. Not answered: what follows is PMI.
    Mpi,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Want {
    /// The aggregate.
    All,
    /// That it is complete, and no data.
    Complete,
    /// One member's item. It is there as soon as that member has registered.
    Item(u32),
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// It is registered.
    Done,
    /// That many bytes follow.
    Data {
        /// How many.
        bytes: u64,
    },
    /// How it stands.
    Status(Status),
    /// That many frames with a [`Tell::Status`] follow.
    List {
        /// How many.
        count: u32,
    },
    /// It cannot be.
    Refused(Refusal),
}

/// Why something cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The rendezvous is broken.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What is waited for on a node, by one process there or by many.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Of which rendezvous.
    pub of: Gate,
    /// What.
    pub want: Want,
}

/// What an agent reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RendezvousNotice {
    /// A rank of the node has an item of that many bytes, which follow in the flow [`Items`](super::flow::FlowId::Items). Answered by
    /// [`RendezvousOrder::Registered`].
    Put {
        /// The item's number, by the agent's count.
        item: u64,
        /// Where.
        of: Gate,
        /// Whose.
        rank: Rank,
        /// How many.
        bytes: u64,
    },
    /// Somebody waits for this. Answered once, by [`RendezvousOrder::Got`] or [`RendezvousOrder::Stream`], when it is there.
    Get(Key),
    /// Somebody asks how it stands; without a rendezvous: how all do. Answered by [`RendezvousOrder::Stands`].
    Status(Option<Gate>),
}

/// What the frontend tells agents. No order but [`RendezvousOrder::Stream`] is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RendezvousOrder {
    /// What became of an item.
    Registered {
        /// Its number.
        item: u64,
        /// Whether it is registered.
        outcome: Result<(), Refusal>,
    },
    /// What was waited for.
    Got {
        /// What that was.
        key: Key,
        /// The bytes, or why there are none.
        outcome: Result<Blob, Refusal>,
    },
    /// What was waited for comes as bulk data.
    Stream {
        /// What that was.
        key: Key,
        /// The stream's number.
        stream: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// How it stands.
    Stands {
        /// What was asked.
        of: Option<Gate>,
        /// The answer.
        outcome: Result<Vec<Status>, Refusal>,
    },
}
