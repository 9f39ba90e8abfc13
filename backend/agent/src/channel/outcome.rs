//! What follows from what an operation was told: for whoever passes it on.

use std::sync::Arc;

use gantry_shared::wire::channel::MemberSet;
use gantry_types::error::Failure;
use gantry_types::id::{DaemonId, NodeId};

use super::filtering::Batch;

/// Where a part comes from, and its number there.
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

/// What follows from what an operation was told.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Chunks of parts that go up: number, length of the whole, whose they are, bytes.
    pub(super) parts: Vec<(u32, u64, MemberSet, Vec<u8>)>,
    /// Who is missing, and why.
    pub(super) missing: Vec<(MemberSet, Failure)>,
    /// Parts of which more may come.
    pub(super) more: Vec<(PartKey, u32)>,
    /// What a daemon is to merge.
    pub(super) job: Option<Job>,
    /// What is too much to be merged at once.
    pub(super) batch: Option<Batch>,
}
