//! The wait of `flux run` for nodes. It prints its job's id at once, but nothing about the queue. gantry asks Flux for
//! that.

use gantry_types::id::Pid;

use super::ask::Instance;
use super::reference::{JobId, Target};
use crate::host::Host;
use crate::{JobPhase, JobRef, LauncherWait, LauncherWaits, Result, WaitLine};

/// The output of `flux run --verbose`.
#[derive(Debug)]
pub(super) struct RunWaits;

impl LauncherWaits for RunWaits {
    fn read_line(&self, line: &str) -> Option<WaitLine> {
        let job: JobId = line.trim().strip_prefix("jobid: ")?.parse().ok()?;
        // Most jobs start at once.
        let wait = LauncherWait { job: JobRef(job.to_string()), submitted: true, message: String::new() };
        Some(WaitLine::Begins(wait))
    }

    fn ask_reason(&self, job: &JobRef, host: &dyn Host) -> Result<Option<String>> {
        let target: Target = job.0.parse()?;
        let job = Instance::of(&target, host)?.ask_job(target.job, host)?;
        Ok((job.phase() == JobPhase::Waiting).then(|| job.describe()))
    }

    /// Each launch is a job of its own.
    fn own_job(&self, _host: &dyn Host) -> Option<JobRef> {
        None
    }

    /// The launcher has printed its job's id, or has no job yet.
    fn look(&self, _job: Option<&JobRef>, _above: Pid, _host: &dyn Host) -> Result<Option<LauncherWait>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn a_wait_begins_with_the_jobs_id() {
        let read = |line: &str| match RunWaits.read_line(line) {
            Some(WaitLine::Begins(wait)) => Some((wait.job.0, wait.submitted)),
            other => other.map(|_| (String::new(), false)),
        };
        assert_eq!(read("jobid: ƒ5k97iNj\n"), Some(("f5k97iNj".to_owned(), true)));
        assert_eq!(read("jobid: my program's\n"), None);
        assert_eq!(read("0: jobid: f7\n"), None);
    }

    #[test]
    fn a_job_that_has_nodes_waits_no_longer() {
        let ask = |state: u32| {
            let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
            let said = format!(r#"{{"id": 6, "userid": 1000, "state": {state}, "urgency": 16}}"#);
            let host = host.with_answer("/bin/flux job list-ids f7", &said, "");
            RunWaits.ask_reason(&JobRef("f7".to_owned()), &host).unwrap()
        };
        assert_eq!(ask(8).as_deref(), Some("job f7 is in state SCHED (waiting for resources)"));
        assert_eq!([ask(16), ask(64)], [None, None]);
    }
}
