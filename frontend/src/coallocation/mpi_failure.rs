//! Why the MPI world of an app's ranks has failed.

use gantry_shared::wire::mpi::MpiEnd;

/// The reason, as a node's agent has reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MpiFailure {
    /// The exit code that follows.
    pub(crate) code: i32,
    /// The reason.
    pub(crate) why: String,
    /// How it ended.
    pub(crate) end: MpiEnd,
}
