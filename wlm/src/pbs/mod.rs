//! PBS: jobs in which agents start the ranks. Agents are tasks of the job, started by [`tm`], a client of PBS's task management that needs neither
//! a library nor a command of PBS.
//!
//! | module | what is there |
//! | --- | --- |
//! | `detect` | whether this is inside of a job, or where jobs can be submitted from |
//! | `command`, `wanted` | the options of a launch; jobs that are described by what they need; pure |
//! | `place` | the hosts of the job that this process is in, and how many ranks each takes |
//! | `ask`, `qstat`, `submit` | PBS's commands; what the server knows of a job; the job of a launch from outside |
//! | `cause`, `extras` | why PBS ended a job; what makes sense with PBS only |
//! | `agents`, `word` | agents as tasks of a job; why one has ended that never had its link |
//! | `attach`, `look`, `processes` | jobs that run already: the way into them, and where their ranks are |
//! | `wlm` | `Pbs`, which acts |
//! | [`tm`] | task management |
//!
//! Facts were measured with OpenPBS, its master branch after version 23.06.06; what the tests read are recordings of it.

mod detect;
mod command;
mod wanted;
mod place;
mod ask;
mod qstat;
mod submit;
mod cause;
mod extras;
mod word;
mod agents;
mod processes;
mod look;
mod attach;
mod wlm;
pub mod tm;

pub use extras::PbsExtras;
pub use qstat::{Job, Phase};
pub(crate) use wlm::{JOB_VARIABLES, Pbs};
