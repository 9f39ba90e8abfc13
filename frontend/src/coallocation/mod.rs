//! Co-allocation: one job over several workload managers, behind one barrier.
//!
//! | module | content |
//! | --- | --- |
//! | [`rsl`] | the language of requests for such jobs |
//! | `request` | the meaning of its attributes |
//! | `contact` | the workload manager of a subjob |
//! | `state` | the states of a job and its subjobs, and their transitions |
//! | `exchange` | the barrier that programs call, and messages between their processes |
//! | `world`, `mpi_failure` | one MPI world of its parts, and why it failed |
//! | `output` | where the output of subjobs goes |
//! | `info` | descriptions of a job and its subjobs |
//! | `subjob`, `job` | the task of one subjob; the job, its owner's calls and the task that owns its state |
//! | `coallocator` | the entry point for requests |

pub mod rsl;
mod request;
mod contact;
mod state;
mod mpi_failure;
pub(crate) mod exchange;
mod world;
mod output;
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
pub use output::SubjobOutput;
pub use request::{BarrierPoint, CommsType, Subrequest, parse_request, parse_subrequest};
pub use state::{JobState, StartType, SubjobId, SubjobState};
