//! srun's waits for nodes and for its step, from its messages.

use std::ffi::OsString;
use std::path::PathBuf;

use gantry_types::id::Pid;

use super::ask::{ask, ask_jobs, ask_steps, refused};
use super::{Job, StepInfo, Target};
use crate::beneath::is_below;
use crate::host::Host;
use crate::{Error, JobPhase, JobRef, LauncherWait, LauncherWaits, Result, WaitLine};

/// Messages of srun without `--quiet`.
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

    fn own_job(&self, host: &dyn Host) -> Option<JobRef> {
        host.env("SLURM_JOB_ID")?.into_string().ok().map(JobRef)
    }

    fn look(&self, job: Option<&JobRef>, above: Pid, host: &dyn Host) -> Result<Option<LauncherWait>> {
        let Some(job) = job else { return look_for_job(above, host) };
        let (steps, _) = ask_steps(&job.0.parse()?, host)?;
        let here = host.hostname();
        let is_here = |name: &str| name.split('.').next() == here.split('.').next();
        // Such a step has no number yet. srun reports the wait after a minute.
        let waits = |step: &StepInfo| {
            let srun = step.srun.as_ref().filter(|(name, _)| step.step.step.is_none() && is_here(name));
            srun.is_some_and(|(_, pid)| is_below(*pid, above, host))
        };
        let message = format!("job {} has no room for the step yet", job.0);
        Ok(steps.iter().any(waits).then(|| LauncherWait { job: job.clone(), submitted: false, message }))
    }
}

/// Finds the queued job that was submitted from this host and from the session of `above`. That session is the guard's
/// own. srun with `--quiet` does not report the job.
fn look_for_job(above: Pid, host: &dyn Host) -> Result<Option<LauncherWait>> {
    let path = PathBuf::from(format!("/proc/{above}/status"));
    let status = host.read(&path).map_err(|source| Error::Read { path, source })?;
    let status = String::from_utf8_lossy(&status).into_owned();
    let session = status.lines().find_map(|line| line.strip_prefix("NSsid:")).unwrap_or_default();
    let Some(session) = session.split_whitespace().next_back() else { return Ok(None) };
    let words = build_queue();
    let said = ask(&words, host)?;
    if let Some(error) = refused(&words, &said) {
        return Err(error);
    }
    let here = host.hostname();
    let wait = said.stdout.lines().find_map(|line| {
        let [job, submitted_by, submitted_on, reason] = parse_queued(line)?;
        let is_ours = submitted_by == session && submitted_on.split('.').next() == here.split('.').next();
        is_ours.then(|| LauncherWait {
            job: JobRef(job.to_owned()),
            submitted: true,
            message: format!("job {job} is PENDING ({reason})"),
        })
    });
    Ok(wait)
}

/// The command that lists the user's queued jobs. For each job: its number, the submitting session and host, and the
/// reason for waiting.
fn build_queue() -> Vec<OsString> {
    let format = "--Format=JobID:20,AllocSID:20,AllocNodes:260,Reason:40";
    ["squeue", "--me", "--noheader", "--states=PENDING", format].map(OsString::from).to_vec()
}

fn parse_queued(line: &str) -> Option<[&str; 4]> {
    let mut words = line.split_whitespace();
    Some([words.next()?, words.next()?, words.next()?, words.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

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
    fn a_job_in_the_queue_is_ours_if_the_guards_session_has_submitted_it() {
        let ours = Pid::new(40).unwrap();
        let here = FakeHost::default().hostname();
        let check = |line: &str, expected: Option<&str>| {
            let host = FakeHost::default()
                .with_env("PATH", "/bin")
                .with_file("/bin/squeue", "")
                .with_file("/proc/40/status", "Name:\tgantry-guard\nNSsid:\t40\n");
            let words = build_queue().join(" ".as_ref()).into_string().unwrap();
            let host = host.with_answer(&format!("/bin/{words}"), line, "");
            let found = SrunWaits.look(None, ours, &host).unwrap();
            let found = found.map(|it| format!("{} {} {}", it.job.0, it.submitted, it.message));
            assert_eq!(found.as_deref(), expected, "{line}");
        };
        let message = Some("7 true job 7 is PENDING (Resources)");
        check(&format!("6   39   {here}   Priority  \n7   40   {here}   Resources  \n"), message);
        check(&format!("7   40   {here}.site   Resources  \n"), message);
        check("7   40   elsewhere   Resources  \n", None);
        check("", None);
    }

    #[test]
    fn a_step_without_a_number_waits_if_its_srun_is_ours() {
        let ours = Pid::new(40).unwrap();
        let check = |step: &str, srun: &str, expected: bool| {
            let line = format!(
                "StepId={step} UserId=1 Tasks=2 Name=app Network=(null) State=PENDING SrunHost:Pid={srun}\n"
            );
            let host = FakeHost::default()
                .with_env("PATH", "/bin")
                .with_file("/bin/scontrol", "")
                .with_file("/proc/42/status", "Name:\tsrun\nPPid:\t41\n")
                .with_file("/proc/41/status", "Name:\twrap\nPPid:\t40\n")
                .with_file("/proc/50/status", "Name:\tsrun\nPPid:\t1\n")
                .with_answer("/bin/scontrol --oneliner show step 7", &line, "");
            let found = SrunWaits.look(Some(&JobRef("7".to_owned())), ours, &host).unwrap();
            assert_eq!(found.is_some(), expected, "{line}");
        };
        let here = FakeHost::default().hostname();
        check("7.TBD", &format!("{here}:42"), true);
        check("7.TBD", "elsewhere:42", false);
        check("7.TBD", &format!("{here}:50"), false);
        check("7.1", &format!("{here}:42"), false);
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
