//! The protocol between the ranks of a co-allocated job and its frontend: the barrier, the members of the job,
//! messages.
//!
//! A rank has one connection, to its node's agent ([`AskWhat::Link`](super::rendezvous::AskWhat::Link)). The agent
//! finds out the rank and carries bytes in both directions, as far as there is credit. It does not interpret them. So
//! this protocol is between a rank and its job's frontend alone: frames, one after the other, cut into pieces at any
//! place. The frontend forwards messages between ranks of one app and of several.

use gantry_types::id::Rank;
use gantry_types::runtime::{Peer, Subjobs};
use serde::{Deserialize, Serialize};

use super::blob::Blob;

/// The most unacknowledged bytes on a link, in each direction.
pub const LINK_WINDOW_BYTES: u32 = 256 * 1024;

/// How much of a rank's output on its link is still read after the rank has ended.
pub const LAST_WORDS_BYTES: u32 = 4 * 1024 * 1024;

/// The most bytes of a rank's messages after it has ended, regardless of credit: the bytes still read of it, and those
/// that its agent had before.
pub const LAST_WORDS_WINDOW_BYTES: u32 = 4 * LAST_WORDS_BYTES;

/// The most bytes of a message in one piece.
pub const MESSAGE_PIECE_BYTES: usize = 64 * 1024;

/// The scope of messages. Each scope has its own tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Between subjobs.
    Job,
    /// Between the ranks of one subjob.
    Subjob,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The scope of the message.
    pub scope: Scope,
    /// On the way up the receiver, on the way down the sender.
    pub peer: Peer,
    /// Tells apart messages of one sender whose pieces interleave.
    pub message: u64,
    /// The message's tag.
    pub tag: String,
    /// What follows the piece.
    pub then: Then,
    /// The bytes.
    pub bytes: Blob,
}

/// What comes after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// More of the message.
    More,
    /// The message is complete.
    Complete,
    /// The sender has cancelled the message.
    GivenUp,
}

/// A rank's frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    /// It has reached the barrier.
    CheckIn,
    /// It has passed the barrier.
    Passed,
    /// It sends a piece of a message.
    Piece(Piece),
    /// It waits for messages, and asks for the ranks that have ended: all that it was not told of yet, now or as soon
    /// as there is one.
    Watch,
}

/// A frame for a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hear {
    /// The first frame: the rank's identity.
    Welcome {
        /// Its rank.
        rank: Rank,
        /// Number of ranks in its subjob.
        size: u32,
    },
    /// It may pass the barrier.
    Released,
    /// The members of messages between subjobs. All of them are there.
    Joined(Subjobs),
    /// It is not a member of them, for this reason.
    Alone(String),
    /// The job has ended before the barrier, for this reason.
    Aborted(String),
    /// A piece of a message.
    Piece(Piece),
    /// A subjob has ended: it sends nothing more.
    Ended {
        /// Its number.
        subjob: u32,
    },
    /// A rank has ended: it sends nothing more. Sent to ranks that [watch](Say::Watch).
    RankEnded {
        /// Whether it belongs to the receiver's own subjob.
        own: bool,
        /// The rank that has ended. The subjob is 0 if it exchanges no messages with others.
        peer: Peer,
    },
    /// All ended ranks were reported. A rank that still waits must watch again.
    Watched,
}
