//! A PMIx server's description of a rank.

use serde::{Deserialize, Serialize};

/// A rank, as the PMIx server describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) pid: i32,
    pub(super) exe: String,
}
