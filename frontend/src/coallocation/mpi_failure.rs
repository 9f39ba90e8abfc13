//! Why the MPI world of an app's ranks cannot go on.

use gantry_shared::wire::mpi::MpiEnd;

/// The reason, as the agent of a node has told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MpiFailure {
    /// The exit code that follows.
    pub(crate) code: i32,
    /// The reason.
    pub(crate) why: String,
    /// What has ended it.
    pub(crate) end: MpiEnd,
}
