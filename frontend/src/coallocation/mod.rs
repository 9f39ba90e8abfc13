//! Co-allocation: one job over several workload managers, behind one barrier.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rsl`] | the language in which such a job is asked for |
//! | `request` | which of its attributes means what |
//! | `contact` | which workload manager a subjob is for |
//! | `state` | where a job and its subjobs stand, and what may become of that |
//! | `exchange` | the barrier that programs call, and messages between their processes |
//! | `subjob`, `job` | one subjob at work; the job, its owner's calls and the task that owns its state |
//! | `coallocator` | where jobs are asked for |

pub mod rsl;
mod request;
mod contact;
mod state;
pub(crate) mod exchange;
mod subjob;
mod job;
mod planner;
mod coallocator;

pub use coallocator::{Coallocator, Requested, SubrequestResult};
pub(crate) use exchange::Member;
pub use job::{Job, JobEvent, JobEvents, JobExit, SubjobInfo, Unready};
pub use request::{BarrierPoint, CommsType, Subrequest, parse_request, parse_subrequest};
pub use state::{JobState, StartType, SubjobId, SubjobState};
pub use subjob::SubjobOutput;
