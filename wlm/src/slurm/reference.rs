//! Names of jobs and steps as people and Slurm's commands write them: `12`, `12_3`, `12+1`, `12.0`, `12+1.0`,
//! `12.batch`.

use std::fmt;
use std::str::FromStr;

use crate::Error;

const ACCEPTED: &str = "write JOB, JOB.STEP, ARRAY_TASK.STEP or JOB+COMPONENT.STEP";

/// The number of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(
    /// The number as in `squeue`. 0 means none.
    pub u32,
);

/// The name of a job. An array's task and a heterogeneous job's component also have job numbers of their own, which
/// `squeue` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobName {
    /// `12`
    Plain(JobId),
    /// `12_3`: task 3 of array 12.
    ArrayTask(JobId, u32),
    /// `12+1`: component 1 of heterogeneous job 12.
    Component(JobId, u32),
}

/// A step within a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepName {
    /// A step created by `srun`: `12.0`.
    Number(u32),
    /// The batch script.
    Batch,
    /// The step for external processes.
    Extern,
    /// The shell of `salloc`.
    Interactive,
}

/// A job, or one of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// The job.
    pub job: JobName,
    /// The step, if one was named.
    pub step: Option<StepName>,
}

impl JobName {
    /// The number in its name.
    pub fn number(self) -> JobId {
        match self {
            Self::Plain(job) | Self::ArrayTask(job, _) | Self::Component(job, _) => job,
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::invalid_with(format!("'{text}' names no job of Slurm: {why}"), ACCEPTED);
        let (job, step) = match text.split_once('.') {
            Some((job, step)) => (job, Some(step)),
            None => (text, None),
        };
        let number = |text: &str| parse_number(text).ok_or_else(|| bad(&format!("'{text}' is not a number")));
        let job_id = |text: &str| match number(text)? {
            0 => Err(bad("0 is not a job")),
            id => Ok(JobId(id)),
        };
        let job = if let Some((array, task)) = job.split_once('_') {
            JobName::ArrayTask(job_id(array)?, number(task)?)
        } else if let Some((leader, component)) = job.split_once('+') {
            JobName::Component(job_id(leader)?, number(component)?)
        } else {
            JobName::Plain(job_id(job)?)
        };
        let step = match step {
            None => None,
            Some("batch") => Some(StepName::Batch),
            Some("extern") => Some(StepName::Extern),
            Some("interactive") => Some(StepName::Interactive),
            // The form in which `scontrol` names a component's step: 12.0+1.
            Some(step) if step.contains('+') => {
                return Err(bad("the component belongs to the job: JOB+COMPONENT.STEP"));
            }
            Some(step) => Some(StepName::Number(number(step)?)),
        };
        Ok(Self { job, step })
    }
}

/// Parses digits only, so that `+1` and a blank are not numbers.
fn parse_number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(job) => job.fmt(f),
            Self::ArrayTask(array, task) => write!(f, "{array}_{task}"),
            Self::Component(leader, component) => write!(f, "{leader}+{component}"),
        }
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(step) => step.fmt(f),
            Self::Batch => f.write_str("batch"),
            Self::Extern => f.write_str("extern"),
            Self::Interactive => f.write_str("interactive"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            None => self.job.fmt(f),
            Some(step) => write!(f, "{}.{step}", self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Target, &str>) {
        let found = text.parse::<Target>().map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(|why| format!("'{text}' names no job of Slurm: {why}")), "{text}");
        if let Ok(target) = found {
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn jobs_and_steps() {
        let job = JobName::Plain(JobId(12));
        check("12", Ok(Target { job, step: None }));
        check("12.0", Ok(Target { job, step: Some(StepName::Number(0)) }));
        check("12.batch", Ok(Target { job, step: Some(StepName::Batch) }));
        check("12.extern", Ok(Target { job, step: Some(StepName::Extern) }));
        check("12.interactive", Ok(Target { job, step: Some(StepName::Interactive) }));
        let job = JobName::ArrayTask(JobId(12), 3);
        check("12_3.1", Ok(Target { job, step: Some(StepName::Number(1)) }));
        let job = JobName::Component(JobId(5), 0);
        check("5+0.0", Ok(Target { job, step: Some(StepName::Number(0)) }));
    }

    #[test]
    fn texts_that_name_no_job() {
        for (text, why) in [
            ("", "'' is not a number"),
            ("0", "0 is not a job"),
            ("x", "'x' is not a number"),
            ("+1", "'' is not a number"),
            ("12.", "'' is not a number"),
            ("12.x", "'x' is not a number"),
            ("12.0+1", "the component belongs to the job: JOB+COMPONENT.STEP"),
            ("4294967296", "'4294967296' is not a number"),
            ("12_3_4", "'3_4' is not a number"),
        ] {
            check(text, Err(why));
        }
    }
}
