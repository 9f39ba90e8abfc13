//! Why PBS ended a job: from the server's last comment, from the job's exit status, and from the state of its nodes.
//!
//! The comment shows a deletion at once. The server learns of an exceeded limit only when the mom has ended the job's
//! last process; until then the job counts as running.

use std::collections::BTreeMap;
use std::ffi::OsString;

use gantry_types::error::{Failure, Kind};
use gantry_types::status::{CauseKind, EndCause};
use serde::Deserialize;

use super::ask::ask;
use super::qstat::{Job, ask_job};
use crate::host::Host;
use crate::{EndedApp, Error, JobPhase, Result};

/// Texts that the server appends to a job's comment. Source: OpenPBS's server, where a job's end is recorded.
const COMMENTS: [(&str, CauseKind); 5] = [
    (" and exceeded resource walltime", CauseKind::TimeLimit),
    (" and exceeded resource cput", CauseKind::TimeLimit),
    (" and exceeded resource mem", CauseKind::OutOfMemory),
    (" and exceeded resource vmem", CauseKind::OutOfMemory),
    (" and terminated", CauseKind::Cancelled),
];

/// Exit statuses of a job that its mom has killed, with their meaning. Sources: job.h, `JOB_EXEC_KILL_WALLTIME` and
/// those before it.
const STATUSES: [(i64, CauseKind, &str); 6] = [
    (-29, CauseKind::TimeLimit, "it exceeded resource walltime"),
    (-28, CauseKind::TimeLimit, "it exceeded resource cput"),
    (-27, CauseKind::OutOfMemory, "it exceeded resource mem"),
    (-26, CauseKind::OutOfMemory, "it exceeded resource vmem"),
    (-20, CauseKind::NodeFailed, "its first host failed"),
    (-14, CauseKind::NodeFailed, "one of its hosts failed"),
];

/// The most hosts whose states are queried.
const MAX_HOSTS: usize = 64;

/// The output of pbsnodes.
#[derive(Debug, Deserialize)]
struct Printed {
    #[serde(default)]
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    state: String,
}

/// Why an app's job was ended. None: PBS did not end it, as far as it shows.
///
/// # Errors
/// [`Error::NotYet`] while the job ends, or is about to; the commands' own errors.
pub(super) fn find_cause(ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
    let found = ask_job(&ended.job, host)?;
    if let Some(cause) = cause_of_job(&found).or_else(|| cause_of_nodes(&ended.lost, &found, host)) {
        return Ok(Some(cause));
    }
    match found.phase() {
        JobPhase::Ending => {}
        JobPhase::Running if ended.torn => {}
        JobPhase::Running | JobPhase::Waiting | JobPhase::Ended => return Ok(None),
    }
    Err(Error::not_yet(found.describe(), None, false))
}

/// Why a job was ended, if PBS has done it.
fn cause_of_job(job: &Job) -> Option<EndCause> {
    let comment = job.comment.as_deref().unwrap_or_default();
    if let Some((_, kind)) = COMMENTS.iter().find(|(words, _)| comment.contains(words)) {
        return Some(EndCause { kind: *kind, message: job.describe() });
    }
    let (_, kind, words) = STATUSES.iter().find(|(status, ..)| job.exit_status == Some(*status))?;
    // The comment follows when the job is over.
    Some(EndCause { kind: *kind, message: format!("{}; {words}", job.describe()) })
}

/// The loss of a host whose agent was lost, if PBS knows it already.
fn cause_of_nodes(lost: &[String], job: &Job, host: &dyn Host) -> Option<EndCause> {
    if lost.is_empty() {
        return None;
    }
    let words = ["pbsnodes", "-F", "json"].into_iter().map(OsString::from);
    let words: Vec<OsString> = words.chain(lost.iter().take(MAX_HOSTS).map(OsString::from)).collect();
    let (_, said) = ask(&words, host).ok()?;
    let printed: Printed = serde_json::from_str(&said.stdout).ok()?;
    let (name, node) =
        printed.nodes.into_iter().find(|(_, node)| node.state.split(',').any(|word| word == "down"))?;
    let message = format!("node {name} is {}; {}", node.state, job.describe());
    Some(EndCause { kind: CauseKind::NodeFailed, message })
}

/// Explains a launcher's message about a missing command of PBS for starting its own processes. None: the message is
/// different.
///
/// Intel MPI's mpiexec starts its proxies in a job by pbsdsh, from PATH or else from /usr/bin.
pub(super) fn explain_launcher(command: &[String], status: &str, words: &str) -> Option<Failure> {
    let line = words.lines().find(|line| line.contains("pbsdsh") && line.contains("No such file"))?;
    let command = command.join(" ");
    let message =
        format!("the launcher ended ({status}) because it did not find pbsdsh: {line} (command: {command})");
    let hint =
        "add the folder of PBS's commands to PATH, or have the launcher use ssh, as by '-bootstrap ssh'";
    Some(Failure::new(Kind::LauncherFailed, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_without_the_commands_of_pbs_is_explained() {
        let words = "[mpiexec@n1] Error setting up the bootstrap proxies\n\
            [mpiexec@n1] HYD_spawn (hydra_spawn.c:177): execvp error on file /usr/bin/pbsdsh (No such file or directory)";
        let explain = |words| explain_launcher(&["mpiexec".to_owned()], "exit code 255", words);
        let failure = explain(words).unwrap();
        assert!(failure.hint().is_some_and(|hint| hint.contains("PATH")), "{failure}");
        assert!(failure.message().contains("did not find pbsdsh"), "{failure}");
        assert!(explain("error: No such file or directory").is_none());
    }
    use crate::JobRef;
    use crate::host::fake::FakeHost;

    #[track_caller]
    fn check(comment: &str, exit_status: Option<i64>, expected: Option<CauseKind>) {
        let job = Job { comment: Some(comment.to_owned()), exit_status, ..Job::default() };
        assert_eq!(cause_of_job(&job).map(|cause| cause.kind), expected, "{comment} {exit_status:?}");
    }

    #[test]
    fn causes_by_comment_and_by_status() {
        let run = "Job run at Sun Nov 22 at 00:54 on (n001:ncpus=2)";
        check(run, None, None);
        check(&format!("{run} and finished"), Some(0), None);
        check(&format!("{run} and failed"), Some(271), None);
        check(&format!("{run} and terminated by me@login"), None, Some(CauseKind::Cancelled));
        check(&format!("{run} and exceeded resource walltime"), Some(-29), Some(CauseKind::TimeLimit));
        check(&format!("{run} and exceeded resource vmem"), None, Some(CauseKind::OutOfMemory));
        check(run, Some(-29), Some(CauseKind::TimeLimit));
        check(run, Some(-27), Some(CauseKind::OutOfMemory));
        check(run, Some(-20), Some(CauseKind::NodeFailed));
    }

    const QSTAT: &str = "/bin/qstat -f -F json 7";

    /// Checks the explanation for a job in this state; `torn`: a host was lost, if PBS has a state for it.
    #[track_caller]
    fn check_ended(job: &str, state: Option<&str>, torn: bool, expected: &str) {
        let host = FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "");
        let host = host.with_answer(QSTAT, &format!("{{\"Jobs\": {{\"7.head\": {{{job}}}}}}}"), "");
        let nodes = format!("{{\"nodes\": {{\"n2\": {{\"state\": \"{}\"}}}}}}", state.unwrap_or_default());
        let host = host.with_file("/bin/pbsnodes", "").with_answer("/bin/pbsnodes -F json n2", &nodes, "");
        let lost = state.map(|_| "n2".to_owned()).into_iter().collect();
        let shown = match find_cause(&EndedApp { job: JobRef("7".to_owned()), lost, torn }, &host) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(cause)) => format!("{:?}: {}", cause.kind, cause.message),
            Err(Error::NotYet { failure, .. }) => format!("not yet: {failure}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{job} {state:?} {torn}");
    }

    #[test]
    fn a_host_lost_from_a_running_job_is_waited_for() {
        let runs = r#""job_state": "R", "comment": "Job run""#;
        check_ended(runs, None, false, "nothing");
        check_ended(runs, None, true, "not yet: job 7.head is running: Job run");
        let ends = r#""job_state": "E", "Exit_status": -29, "comment": "Job run""#;
        let said = "TimeLimit: job 7.head is being ended with -29: Job run; it exceeded resource walltime";
        check_ended(ends, None, true, said);
        let over =
            r#""job_state": "F", "Exit_status": -29, "comment": "Job run and exceeded resource walltime""#;
        let said = "TimeLimit: job 7.head is ended with -29: Job run and exceeded resource walltime";
        check_ended(over, None, false, said);
        check_ended(r#""job_state": "F", "Exit_status": 0"#, None, true, "nothing");
    }

    #[test]
    fn a_node_that_is_down_is_the_cause_if_its_agent_was_lost() {
        let runs = r#""job_state": "R""#;
        let said = "NodeFailed: node n2 is state-unknown,down; job 7.head is running";
        check_ended(runs, Some("state-unknown,down"), true, said);
        check_ended(runs, Some("job-exclusive"), true, "not yet: job 7.head is running");
    }
}
