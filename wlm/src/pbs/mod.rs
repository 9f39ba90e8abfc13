//! PBS: agents start the ranks in its jobs. Agents are tasks of the job, started by [`tm`], a client of PBS's task
//! management without any library or command of PBS.
//!
//! | module | what is there |
//! | --- | --- |
//! | `detect` | whether this process is in a job, or can submit one |
//! | `command`, `wanted` | the options of a launch; jobs described by their requirements; pure |
//! | `place` | the hosts of this process's job, and their number of ranks |
//! | `ask`, `qstat`, `submit` | PBS's commands; the server's record of a job; the job of a launch from outside |
//! | `cause`, `extras` | why PBS ended a job; calls that exist only with PBS |
//! | `agents`, `word` | agents as tasks of a job; why an agent ended before it had a link |
//! | `attach`, `look`, `processes`, `pbsdsh` | running jobs: the way into them, and the places of their ranks |
//! | `wlm` | `Pbs`, the implementation |
//! | [`tm`] | task management |
//!
//! All facts were measured with OpenPBS, its master branch after version 23.06.06; the tests read recordings of it.

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
mod pbsdsh;
mod look;
mod attach;
mod wlm;
pub mod tm;

pub use extras::PbsExtras;
pub use qstat::Job;
pub(crate) use wlm::{JOB_VARIABLES, Pbs};
