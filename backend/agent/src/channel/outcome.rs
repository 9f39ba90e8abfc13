//! The output of an operation, for the hub to pass on.

use std::sync::Arc;

use gantry_shared::wire::channel::MemberSet;
use gantry_types::error::Failure;
use gantry_types::id::{DaemonId, NodeId};

use super::filtering::Batch;

/// The node that a part comes from, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartKey {
    pub(super) node: NodeId,
    pub(super) part: u32,
}

/// A chunk of a part.
#[derive(Debug)]
pub(super) enum Chunk {
    /// The part begins.
    First {
        /// Length of the whole part.
        total: u64,
        /// Its members.
        of: MemberSet,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The part goes on with these bytes.
    Next(Vec<u8>),
}

/// Parts for a daemon to merge.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) daemon: DaemonId,
    pub(super) filter: String,
    pub(super) parts: Vec<Arc<Vec<u8>>>,
}

/// The output of an operation after an input.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Chunks of parts that go up: the number of the part, and the chunk.
    pub(super) chunks: Vec<(u32, Chunk)>,
    /// The missing members, and why.
    pub(super) missing: Vec<(MemberSet, Failure)>,
    /// Credit for parts of which more bytes may come.
    pub(super) credit: Vec<(PartKey, u32)>,
    /// Parts that a daemon is to merge.
    pub(super) job: Option<Job>,
    /// Parts that are too large to merge at once.
    pub(super) batch: Option<Batch>,
}
