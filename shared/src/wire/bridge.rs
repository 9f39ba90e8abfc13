//! How two agents pass on by themselves what ranks of a job send to each other, where one of them can reach the other.
//!
//! Messages begin on the way over the frontend. Between two agents whose ranks have much to say to each other the frontend arranges a *bridge*, a link of their own: it tells one to
//! expect it and the other to dial, and gives both a key that opens this one bridge and nothing else. Over a bridge go *lanes*, each with the messages of one rank for another. Order
//! is kept by a marker ([`LinkWord::Lane`](super::rendezvous::LinkWord)): the sender's agent sends it up as the last thing of the old way, the frontend puts it behind all else that
//! is for the receiver, and when it has come there the receiver's agent lets the lane begin ([`BridgeWord::Go`]). What is not yet known to have come is kept, so that it goes over the
//! frontend after all when a bridge breaks.

use std::net::SocketAddr;
use std::time::Duration;

use gantry_types::runtime::Peer;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::runtime::{LAST_WORDS_WINDOW_BYTES, Scope};
use crate::secret::Secret;

/// How many bytes may be on their way on a lane before the rank at its end has taken them.
pub const LANE_WINDOW_BYTES: u32 = 256 * 1024;

/// What may be on its way on a lane at most: a frame goes when half of the window is free, however large it is, and the last words of a rank
/// that has ended go without credit. That allows for both.
pub const LANE_MOST_BYTES: u32 = LANE_WINDOW_BYTES + LAST_WORDS_WINDOW_BYTES;

/// The number of a bridge within a job, from 1. It is said in the preamble of the handshake, so that who was dialled knows which key is meant.
pub type BridgeNumber = u16;

/// The bridge of an agent to itself, for ranks of one node: it needs no link, and always stands.
pub const OWN_BRIDGE: BridgeNumber = 0;

/// The number of a lane within a job.
pub type LaneNumber = u32;

/// What the frontend tells an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BridgeOrder {
    /// Another agent will dial this one. Answered by [`BridgeNotice::Awaits`].
    Await {
        /// Which bridge.
        bridge: BridgeNumber,
        /// Opens it, once.
        key: Secret,
        /// How long it may take.
        patience: Duration,
    },
    /// Dial. Answered by [`BridgeNotice::Stands`] or [`BridgeNotice::Failed`].
    Dial {
        /// Which bridge.
        bridge: BridgeNumber,
        /// Opens it.
        key: Secret,
        /// Where the other agent listens.
        addresses: Vec<SocketAddr>,
        /// How long it may take.
        patience: Duration,
    },
    /// A link's messages for one rank take a lane from now on. Answered by [`LinkWord::Lane`](super::rendezvous::LinkWord), after all of them that go over the frontend.
    Lane {
        /// Its number.
        lane: LaneNumber,
        /// The bridge.
        bridge: BridgeNumber,
        /// The sender's link.
        link: u32,
        /// Which messages.
        scope: Scope,
        /// For whom, as the sender says it.
        peer: Peer,
    },
    /// Nobody is at the end of a lane any more: what goes on goes over the frontend.
    LaneEnded {
        /// Which.
        lane: LaneNumber,
    },
    /// A bridge has broken. Of what this agent has sent on it so much has come, for each lane; the rest is to go over the frontend.
    Broken {
        /// Which.
        bridge: BridgeNumber,
        /// Bytes by lane. One that is missing here has not begun.
        come: Vec<(LaneNumber, u64)>,
    },
}

impl PartialEq for BridgeOrder {
    /// Keys are not compared: whoever compares orders has made them.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Await { bridge, .. }, Self::Await { bridge: theirs, .. }) => bridge == theirs,
            (Self::Dial { bridge, addresses, .. }, Self::Dial { bridge: b, addresses: a, .. }) => {
                (bridge, addresses) == (b, a)
            }
            (
                Self::Lane { lane, bridge, link, scope, peer },
                Self::Lane { lane: n, bridge: b, link: l, scope: s, peer: p },
            ) => (lane, bridge, link, scope, peer) == (n, b, l, s, p),
            (Self::LaneEnded { lane }, Self::LaneEnded { lane: theirs }) => lane == theirs,
            (Self::Broken { bridge, come }, Self::Broken { bridge: b, come: c }) => (bridge, come) == (b, c),
            _ => false,
        }
    }
}

impl Eq for BridgeOrder {}

/// What an agent reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeNotice {
    /// The other agent may dial.
    Awaits {
        /// Which bridge.
        bridge: BridgeNumber,
    },
    /// The bridge stands.
    Stands {
        /// Which.
        bridge: BridgeNumber,
    },
    /// The other agent cannot be reached.
    Failed {
        /// Which bridge.
        bridge: BridgeNumber,
        /// What was seen.
        reason: String,
    },
    /// The bridge has broken, or the other agent has left. Said once by each of the two.
    Broken {
        /// Which.
        bridge: BridgeNumber,
        /// How many bytes have come here, by lane.
        come: Vec<(LaneNumber, u64)>,
    },
}

/// What two agents say to each other on a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeWord {
    /// The marker has come: the lane may be used, with [`LANE_WINDOW_BYTES`] of credit.
    Go {
        /// Which.
        lane: LaneNumber,
    },
    /// Whole frames of [`Say`](super::runtime::Say), one after the other, as the rank has written them.
    Frames {
        /// On which lane.
        lane: LaneNumber,
        /// The bytes.
        bytes: Blob,
    },
    /// The rank has taken so many bytes more.
    Taken {
        /// On which lane.
        lane: LaneNumber,
        /// How many.
        bytes: u32,
    },
    /// Nothing more comes on a lane.
    End {
        /// Which.
        lane: LaneNumber,
    },
    /// All of a lane has come, and what the frontend says to its rank from now on comes after it.
    Ended {
        /// Which.
        lane: LaneNumber,
    },
}
