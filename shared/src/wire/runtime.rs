//! What the ranks of a co-allocated job and its frontend say to each other: the barrier, who takes part in the job, messages.
//!
//! A rank has one connection, to its node's agent ([`AskWhat::Link`](super::rendezvous::AskWhat::Link)). The agent sees which rank that is and carries bytes in both directions,
//! as far as there is credit; it understands nothing of them. So what is said here is between a rank and its job's frontend alone: frames, one after the other, cut
//! into pieces wherever they happen to be cut. The frontend passes messages on, between ranks of one app and of several.

use gantry_types::id::Rank;
use gantry_types::runtime::{Peer, Subjobs};
use serde::{Deserialize, Serialize};

use super::blob::Blob;

/// How many bytes may be on their way on a link, in each direction, before the other end has taken them.
pub const LINK_WINDOW_BYTES: u32 = 256 * 1024;

/// How much of what a rank has written is still read when it has ended.
pub const LAST_WORDS_BYTES: u32 = 4 * 1024 * 1024;

/// How much of a rank's messages may come when it has ended, whether there is room or not: what is still read of it, and what its agent had before.
pub const LAST_WORDS_WINDOW_BYTES: u32 = 4 * LAST_WORDS_BYTES;

/// The most bytes of a message in one piece.
pub const MESSAGE_PIECE_BYTES: usize = 64 * 1024;

/// Whose messages they are: each kind has tags of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Between subjobs.
    Job,
    /// Between the ranks of one subjob.
    Subjob,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Whose messages.
    pub scope: Scope,
    /// On the way up whom it is for, on the way down whom it is from.
    pub peer: Peer,
    /// Tells apart messages of one sender whose pieces come between each other.
    pub message: u64,
    /// The message's tag.
    pub tag: String,
    /// How it goes on.
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
    /// The sender has given it up: there is no such message.
    GivenUp,
}

/// What a rank says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    /// It has come to the barrier.
    CheckIn,
    /// It has passed the barrier.
    Passed,
    /// It sends something.
    Piece(Piece),
    /// It waits for messages, and wants to hear of ranks that have ended: of all that it has not heard of yet, then or once there is one.
    Watch,
}

/// What a rank hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hear {
    /// Before all else: who it is.
    Welcome {
        /// Its rank.
        rank: Rank,
        /// How many there are in its subjob.
        size: u32,
    },
    /// It may pass the barrier.
    Released,
    /// Who takes part in messages between subjobs. Those that do all are there.
    Joined(Subjobs),
    /// It takes no part in them, and why.
    Alone(String),
    /// The job has ended before the barrier, and why.
    Aborted(String),
    /// Somebody sends something.
    Piece(Piece),
    /// A subjob has ended: nothing more comes from it.
    Ended {
        /// Its number.
        subjob: u32,
    },
    /// A rank has ended: nothing more comes from it. Told to those that [watch](Say::Watch).
    RankEnded {
        /// It is one of the hearer's own subjob.
        own: bool,
        /// Which one. The subjob is 0 where it exchanges no messages with others.
        peer: Peer,
    },
    /// All that has ended was told: who still waits watches again.
    Watched,
}
