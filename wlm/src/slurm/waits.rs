//! srun's waits, for nodes and for its step, by what it says of them.

use super::ask::ask_jobs;
use super::{Job, JobPhase, Target};
use crate::host::Host;
use crate::{JobRef, LauncherWait, LauncherWaits, Result, WaitLine};

/// The lines that srun prints unless it is told `--quiet`.
#[derive(Debug)]
pub(super) struct SrunWaits;

impl LauncherWaits for SrunWaits {
    fn read_line(&self, line: &str) -> Option<WaitLine> {
        let said = line.trim().strip_prefix("srun: ")?;
        if said.starts_with("Step created for ") {
            return Some(WaitLine::Ends);
        }
        let rest = said.strip_prefix("job ").or_else(|| said.strip_prefix("Job "))?;
        let (job, rest) = rest.split_once(' ')?;
        job.parse::<u32>().ok()?;
        let begins = |submitted, message| {
            let job = JobRef(job.to_owned());
            Some(WaitLine::Begins(LauncherWait { job, submitted, message }))
        };
        if rest.starts_with("queued and waiting for resources") {
            begins(true, format!("job {job} is queued and waits for resources"))
        } else if let Some(why) = rest.strip_prefix("step creation temporarily disabled, retrying") {
            let why = why.trim().trim_start_matches('(').trim_end_matches(')');
            begins(false, format!("job {job} has no room for the step yet: {why}"))
        } else if rest.starts_with("has been allocated resources") {
            Some(WaitLine::Ends)
        } else {
            None
        }
    }

    fn ask_reason(&self, job: &JobRef, host: &dyn Host) -> Result<Option<String>> {
        let jobs = ask_jobs(job.0.parse::<Target>()?.job, host)?;
        let waiting = |job: &&Job| job.phase() == JobPhase::Waiting;
        Ok(jobs.iter().find(waiting).map(|job| format!("job {} is {} ({})", job.id, job.state, job.reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, bool, &str)>) {
        let found = SrunWaits.read_line(line).map(|line| match line {
            WaitLine::Begins(LauncherWait { job, submitted, message }) => (job.0, submitted, message),
            WaitLine::Ends => (String::new(), false, String::new()),
        });
        let expected = expected.map(|(job, own, message)| (job.to_owned(), own, message.to_owned()));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn lines_that_tell_of_a_wait() {
        let queued = "job 7 is queued and waits for resources";
        check("srun: job 7 queued and waiting for resources\n", Some(("7", true, queued)));
        let busy = "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)";
        let message = "job 7 has no room for the step yet: Requested nodes are busy";
        check(busy, Some(("7", false, message)));
        let ends = Some(("", false, ""));
        check("srun: job 7 has been allocated resources", ends);
        check("srun: Step created for job 7", ends);
        check("srun: Step created for StepId=7.1", ends);
    }

    #[test]
    fn lines_that_do_not() {
        check("job 7 queued and waiting for resources", None);
        check("0: srun: job 7 queued and waiting for resources", None);
        check("srun: job many queued and waiting for resources", None);
        check("srun: error: Node failure on n1", None);
        check("srun: launch/slurm: launch_p_step_launch: StepId=7.0 aborted", None);
        check("", None);
    }
}
