//! Processes of a co-allocated job, as addresses of messages.

use serde::{Deserialize, Serialize};

use crate::id::Rank;

/// The most bytes of a tag.
pub const MAX_TAG_BYTES: usize = 255;

/// A process of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// The subjob's number among those that exchange messages, from 0. It has no meaning in messages within a subjob.
    pub subjob: u32,
    /// The rank in its subjob.
    pub rank: Rank,
}

/// The subjobs that exchange messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subjobs {
    /// The number of the rank's own one.
    pub index: u32,
    /// How many ranks each has, by number.
    pub sizes: Vec<u32>,
}
