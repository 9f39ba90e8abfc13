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
    /// Chunks of parts that go up: number, length of the whole part, its members, bytes.
    pub(super) parts: Vec<(u32, u64, MemberSet, Vec<u8>)>,
    /// The missing members, and why.
    pub(super) missing: Vec<(MemberSet, Failure)>,
    /// Grants: parts of which more bytes may come.
    pub(super) more: Vec<(PartKey, u32)>,
    /// Parts that a daemon is to merge.
    pub(super) job: Option<Job>,
    /// Parts that are too large to merge at once.
    pub(super) batch: Option<Batch>,
}
