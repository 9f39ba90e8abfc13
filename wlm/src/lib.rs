//! The seam between gantry and workload managers (WLMs).
//!
//! *A WLM starts, finds and watches, and does nothing else.* No WLM stages files, starts daemons or copies anything:
//! the overlay does all of that, for every WLM in the same way. To add a WLM: a folder here, a line in [`WLMS`], a
//! folder of fixtures.
//!
//! | module | contents |
//! | --- | --- |
//! | `seam` | [`Wlm`], the trait of every WLM, and [`Capabilities`], the list of its other abilities |
//! | [`caps`] | the capabilities: batch jobs, queues, described jobs, lists of hosts, launchers' output |
//! | [`registry`] | [`WLMS`], and the choice of the WLM to use |
//! | [`host`] | [`Host`]: the one door to the machine, so that everything else is tested without a cluster |
//! | `launch` | [`Launch`], the tool's request, and [`Plan`], how it will be carried out |
//! | `hold` | how ranks would be held, for users who ask before they launch |
//! | `policy` | hosts that cannot be reached, and whether the launch continues without them |
//! | `job` | running jobs: [`JobRef`], and what a WLM says about them |
//! | `wanted` | jobs described by their requirements |
//! | `aside` | questions that block, within an asynchronous function |
//! | `explain` | the messages of a command that failed |
//! | `slots` | hosts with their places, and the ranks on each |
//! | [`launcher`] | launchers: the program in their arguments, and the rank of a process |
//! | [`mpir`], [`pmix`] | launchers that publish where their ranks are |
//! | a folder each | the WLMs: detection, commands, parsers; `localhost` runs ranks here without a WLM |

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
mod aside;
mod beneath;
mod direct;
mod error;
mod explain;
#[cfg(feature = "fake")]
mod fake;
mod give;
mod hold;
mod job;
mod launch;
mod line;
mod localhost;
mod safe;
mod seam;
mod slots;
mod wanted;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod skip;

pub use caps::queue::{JobStarter, Queue};
pub use caps::waits::{LauncherWait, LauncherWaits, WaitLine};
pub use error::{Error, Result};
pub use give::{FETCHED, Gifts, build_starter_script};
pub use hold::choose_hold;
pub use host::Host;
pub use job::{Adoption, AppRef, EndedApp, HeldScript, JobPhase, JobRef, Submission};
pub use launch::{
    AgentCommand, Brought, Direct, Driven, Launch, Plan, ProcessOwner, Queued, Reports, StepStart,
};
pub use registry::{Choice, WLMS, choose};
pub use seam::{
    BuildArgs, Capabilities, Evidence, PlanMixed, Reach, Wlm, explain_launcher_end, extras, find_batch,
    find_described, find_mixed, find_queue, has_job_names, reach, read_reach_args,
};
