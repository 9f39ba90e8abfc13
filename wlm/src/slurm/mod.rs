//! Slurm. Detection, command lines and parsers need no cluster. `Slurm` runs the commands.
//!
//! All facts were measured with Slurm 22.05.8 and 25.05.8; the tests read recordings of both. Sources: the manual
//! pages of srun, scontrol, sattach, sbatch and scancel.

mod ask;
mod attach;
mod cause;
mod cluster;
mod command;
mod conf;
mod detect;
mod environment;
mod exported;
mod extras;
mod jobs;
mod mixed;
mod multi_prog;
mod parse;
mod reference;
mod shown;
mod site;
mod srun;
mod submit;
mod waits;
mod wlm;
mod wanted;
mod words;

pub use extras::{SlurmExtras, SrunStep};
pub use parse::Job;
pub use reference::{JobId, JobName};

pub(crate) use jobs::JOB_VARIABLES;
pub(crate) use srun::{SRUN, SRUN_RANKS};
pub(crate) use wlm::Slurm;

use cause::parse_cause;
use command::{
    AgentGroup, AgentStep, Holding, build_agent_step, build_held, build_job, build_layout, build_step,
};
use detect::detect;
use environment::is_for_srun;
use parse::{NodeTasks, StepInfo, parse_layout, parse_steps};
use reference::{StepName, Target};
use shown::parse_shown_jobs;
use words::{lacks_agent, parse_failure};

#[cfg(test)]
mod choices;
#[cfg(test)]
mod recorded;
