//! Optional abilities of Slurm's jobs, besides launching and attaching.

use gantry_types::error::Failure;
use gantry_types::status::EndCause;

use super::ask::ask_jobs;
use super::cause::cause_of_job;
use super::{Target, lacks_agent, parse_cause, parse_failure};
use crate::caps::jobs::Jobs;
use crate::caps::launcher_output::LauncherOutput;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::job::{EndedApp, JobPhase};

/// The variables in which a process finds its job and its step.
pub(crate) const JOB_VARIABLES: &[&str] = &["SLURM_JOB_ID", "SLURM_STEP_ID"];

/// Slurm's jobs: their names, their ends, batch scripts, and messages of `srun`.
#[derive(Debug)]
pub(super) struct SlurmJobs;

impl Jobs for SlurmJobs {
    fn is_inside(&self, host: &dyn Host) -> bool {
        host.env("SLURM_JOB_ID").is_some()
    }

    fn node_variables(&self) -> &'static [&'static str] {
        // What srun sets for a task, devices included.
        &[
            "SLURM_",
            "SLURMD_",
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "GPU_DEVICE_ORDINAL",
            "ZE_AFFINITY_MASK",
        ]
    }

    fn find_cause(&self, ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
        let job = &ended.job;
        let jobs = ask_jobs(job.0.parse::<Target>()?.job, host)?;
        if jobs.iter().any(|job| job.phase() == JobPhase::Ending) {
            let message = format!("job {} is being ended", job.0);
            return Err(Error::not_yet(message, None, false));
        }
        Ok(jobs.iter().filter_map(cause_of_job).reduce(EndCause::or_better))
    }
}

impl LauncherOutput for SlurmJobs {
    fn explain_end(&self, command: &[String], status: &str, stderr: &str) -> Option<Failure> {
        Some(parse_failure(command, status, stderr))
    }

    fn lacks_agent(&self, stderr: &str) -> bool {
        lacks_agent(stderr)
    }

    fn read_cause(&self, line: &str) -> Option<EndCause> {
        parse_cause(line)
    }
}
