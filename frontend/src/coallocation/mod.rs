//! Co-allocation: one job over several workload managers, behind one barrier.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rsl`] | the language in which such a job is asked for |
//! | `request` | which of its attributes means what |
//! | `contact` | which workload manager a subjob is for |
//! | `state` | where a job and its subjobs stand, and what may become of that |
//! | `exchange` | the barrier that programs call, and messages between their processes |
//! | `world`, `mpi_failure` | one MPI world of its parts, and why it cannot go on |
//! | `info` | what is told of a job |
//! | `subjob`, `job` | one subjob at work; the job, its owner's calls and the task that owns its state |
//! | `coallocator` | where jobs are asked for |

pub mod rsl;
mod request;
mod contact;
mod state;
mod mpi_failure;
pub(crate) mod exchange;
mod world;
mod subjob;
mod info;
mod job;
mod planner;
mod coallocator;

pub use coallocator::{Coallocator, Requested, SubrequestResult};
pub(crate) use exchange::Member;
pub use info::{JobEvent, JobExit, SubjobInfo};
pub use job::{Job, JobEvents, Unready};
pub(crate) use mpi_failure::MpiFailure;
pub use request::{BarrierPoint, CommsType, Subrequest, parse_request, parse_subrequest};
pub use state::{JobState, StartType, SubjobId, SubjobState};
pub use subjob::SubjobOutput;
