//! Calls that exist only with Slurm, for tools that know this WLM.

use gantry_types::id::Pid;

use super::{Job, JobName, StepName, Target, ask, attach};
use crate::host::Host;
use crate::{Error, JobRef, Result};

/// Calls that exist only with Slurm: `gantry_wlm::extras::<SlurmExtras>(wlm)` returns them if Slurm is used.
///
/// To attach to a step, with or without waiting for it, give its name to the frontend as usual: `JOB.STEP`.
#[derive(Debug, Clone, Copy)]
pub struct SlurmExtras;

/// A step by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrunStep {
    /// The job's own number. For a heterogeneous job: the number of the first component.
    pub job_id: u32,
    /// The step's number.
    pub step_id: u32,
}

impl SlurmExtras {
    /// The step created by the srun with that pid on this machine. The srun continues.
    ///
    /// # Errors
    /// The process is not an srun, has created no step yet, or may not be inspected.
    pub fn step_of_srun(&self, pid: Pid, host: &dyn Host) -> Result<SrunStep> {
        numbers_of(&attach::ask_srun(pid, host)?)
    }

    /// The numbers of the step that belongs to an app's job name in the frontend's `AppInfo`. Queries Slurm only for
    /// the name of an array's task or of a component.
    ///
    /// # Errors
    /// The name is not that of a step; Slurm does not know it any more.
    pub fn step_of_job(&self, job: &str, host: &dyn Host) -> Result<SrunStep> {
        let target: Target = job.parse()?;
        let own = match target.job {
            JobName::Plain(id) => id,
            name => {
                let jobs = ask::ask_jobs(name, host)?;
                jobs.first().map(|job| job.id).ok_or_else(|| Error::invalid("a job without a number"))?
            }
        };
        numbers_of(&Target { job: JobName::Plain(own), ..target })
    }

    /// Slurm's records of a job: one for a plain name, several for an array or a heterogeneous job.
    ///
    /// # Errors
    /// Slurm knows no job of that name: its message.
    pub fn jobs(&self, job: &JobRef, host: &dyn Host) -> Result<Vec<Job>> {
        ask::ask_jobs(job.0.parse::<Target>()?.job, host)
    }
}

fn numbers_of(target: &Target) -> Result<SrunStep> {
    match target.step {
        Some(StepName::Number(step_id)) => Ok(SrunStep { job_id: target.job.number().0, step_id }),
        _ => Err(Error::invalid_with(format!("{target} names no step of srun"), "write JOB.STEP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn numbers_of_an_apps_job_name() {
        let line = "JobId=6 ArrayJobId=5 ArrayTaskId=3 JobName=x UserId=me(1) JobState=RUNNING Reason=None NodeList=n1\n";
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/scontrol", "").with_answer(
            "/bin/scontrol --oneliner show job 5_3",
            line,
            "",
        );
        let step = |job| SlurmExtras.step_of_job(job, &host).map(|it| (it.job_id, it.step_id)).ok();
        assert_eq!(step("7.0"), Some((7, 0)));
        assert_eq!(step("5_3.1"), Some((6, 1)));
        assert_eq!(step("7"), None);
        assert_eq!(step("7.batch"), None);
    }

    #[test]
    fn only_slurm_has_them() {
        let found = |name| crate::extras::<SlurmExtras>(crate::registry::find(name).unwrap()).is_some();
        assert!(found("slurm") && !found("localhost"));
    }
}
