//! Slurm. How it is detected, the commands to run, and what they print, all of which needs no cluster; and [`Slurm`], which acts.
//!
//! Facts were measured with Slurm 22.05.8 and 25.05.8; what the tests read are recordings of both. Sources: the manual pages of srun, squeue, scontrol, sattach,
//! sacct and scancel, and the JSON of `squeue` in versions 22.05 to 25.05.

mod ask;
mod attach;
mod cause;
mod command;
mod conf;
mod detect;
mod environment;
mod extras;
mod give;
mod mixed;
mod parse;
mod reference;
mod shown;
mod submit;
mod wlm;
mod wanted;
mod words;

pub use cause::parse_cause;
pub use command::{
    AgentGroup, AgentStep, Held, Holding, build_agent_step, build_held, build_job, build_jobs, build_layout,
    build_pids, build_sacct, build_signal, build_step,
};
pub use detect::detect;
pub use environment::{build_export, is_for_srun};
pub use extras::{SlurmExtras, SrunStep};
pub use parse::{
    Job, JobPhase, NodeTasks, StepInfo, TaskPid, Version, parse_jobs, parse_layout, parse_pids, parse_sacct,
    parse_steps, parse_version,
};
pub use reference::{JobId, JobName, StepName, Target};
pub use shown::parse_shown_jobs;
pub use wlm::Slurm;
pub use words::{TaskEnd, lacks_agent, parse_failure, parse_task_ends};

#[cfg(test)]
mod choices;
#[cfg(test)]
mod recorded;

/// The variables in which a process finds the job and the step that it belongs to.
pub(crate) const JOB_VARIABLES: &[&str] = &["SLURM_JOB_ID", "SLURM_STEP_ID"];
