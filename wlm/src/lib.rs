//! The seam between gantry and workload managers (WLMs).
//!
//! *A WLM starts, finds and watches, and does nothing else.* No WLM stages files, starts daemons or copies anything: all of that goes over the
//! overlay and is the same everywhere. To add one: a folder here, a line in [`WLMS`], a folder of fixtures.
//!
//! | module | contents |
//! | --- | --- |
//! | `seam` | [`Wlm`], the trait of every WLM, and [`Capabilities`], the list of what it can do besides |
//! | [`caps`] | the capabilities: batch jobs, queues, described jobs, lists of hosts, what a launcher writes |
//! | [`registry`] | [`WLMS`], and the choice of the WLM to use |
//! | [`host`] | [`Host`]: the one door to the machine, so that everything else is tested without a cluster |
//! | `launch` | [`Launch`], the tool's request, and [`Plan`], how it will be carried out |
//! | `hold` | how ranks would be held, for users who ask before they launch |
//! | `policy` | hosts that cannot be reached, and whether the launch goes on without them |
//! | `job` | running jobs: [`JobRef`], and what a WLM says about them |
//! | `wanted` | jobs that are described by what they need |
//! | `slots` | hosts with so many places each, and which rank goes where |
//! | [`launcher`] | launchers: where the program stands in their arguments, which rank a process of theirs is |
//! | [`mpir`], [`pmix`] | launchers that publish where their ranks are |
//! | a folder each | the WLMs: detection, commands, what they print, and what acts; `localhost` runs ranks on this machine without a WLM |

pub mod caps;
pub mod flux;
pub mod host;
pub mod launcher;
pub mod mpir;
pub mod pbs;
pub mod pmix;
pub mod registry;
pub mod slurm;
pub mod ssh;
mod beneath;
mod direct;
mod error;
#[cfg(feature = "fake")]
mod fake;
mod give;
mod hold;
mod job;
mod launch;
mod line;
mod localhost;
mod policy;
mod safe;
mod seam;
mod slots;
mod wanted;
#[cfg(test)]
mod skip;

pub use caps::queue::{JobStarter, Queue};
pub use caps::waits::{LauncherWait, LauncherWaits, WaitLine};
pub use error::{Error, Result};
pub use give::{FETCHED, Gifts};
pub use hold::choose_hold;
pub use host::Host;
pub use job::{Adoption, AppRef, EndedApp, HeldScript, JobRef, Submission};
pub use launch::{
    AgentCommand, AgentLinks, AgentWatch, Brought, Direct, Driven, Launch, Plan, ProcessOwner, Queued,
    StepStart,
};
pub use policy::LeftOut;
pub use registry::{Choice, WLMS, choose};
pub use seam::{
    Capabilities, Evidence, Reach, Wlm, explain_launcher_end, extras, find_batch, find_described, find_mixed,
    find_queue, has_job_names, reach, read_reach_args,
};
