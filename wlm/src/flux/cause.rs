//! Finds why Flux ended a job: in the lines that `flux run` forwards, and in the job's events. Source: RFC 21 of Flux,
//! "exception".

use gantry_types::status::{CauseKind, EndCause};

use super::ask::Instance;
use super::job::Entry;
use super::reference::{JobId, Target};
use super::words::after_seconds;
use crate::host::Host;
use crate::{EndedApp, Error, JobPhase, Result};

/// An exception's type, words in its note, and their meaning. The first matching row counts.
const CAUSES: &[(&str, &str, CauseKind)] = &[
    ("timeout", "", CauseKind::TimeLimit),
    ("cancel", "", CauseKind::Cancelled),
    ("preempt", "", CauseKind::Preempted),
    ("exec", "node failure on", CauseKind::NodeFailed),
    ("exec", "lost contact with", CauseKind::NodeFailed),
    ("node-failure", "", CauseKind::NodeFailed),
    ("exec", "Out of memory", CauseKind::OutOfMemory),
];

/// Parses a line of the launcher's standard error that says why its ranks were ended.
pub(super) fn parse_cause(line: &str) -> Option<EndCause> {
    let line = line.trim();
    let rest = after_seconds(line)?;
    if let Some(shell) = rest.strip_prefix("flux-shell") {
        let is_memory = shell.contains("oom: ") && shell.contains("killed");
        return is_memory.then(|| EndCause { kind: CauseKind::OutOfMemory, message: line.to_owned() });
    }
    let (job, rest) = rest.strip_prefix("job.exception ")?.split_once(' ')?;
    job.parse::<JobId>().ok()?;
    let (kind, note) = rest
        .strip_prefix("type=")?
        .split_once(" severity=0 ")
        .or_else(|| rest.strip_prefix("type=")?.strip_suffix(" severity=0").map(|kind| (kind, "")))?;
    find_kind(kind, note).map(|kind| EndCause { kind, message: line.to_owned() })
}

fn find_kind(kind: &str, note: &str) -> Option<CauseKind> {
    CAUSES.iter().find(|(known, words, _)| *known == kind && note.contains(words)).map(|(_, _, cause)| *cause)
}

/// Why a job has ended, if Flux ended it.
pub(super) fn cause_of_events(job: JobId, events: &[Entry]) -> Option<EndCause> {
    let fatal = events.iter().filter(|event| event.name == "exception" && event.context.severity == 0);
    let causes = fatal.filter_map(|event| {
        let kind = find_kind(&event.context.kind, &event.context.note)?;
        let note = event.context.note.trim();
        let note = if note.is_empty() { String::new() } else { format!(": {note}") };
        Some(EndCause {
            kind,
            message: format!("job {job} had an exception of type {}{note}", event.context.kind),
        })
    });
    causes.reduce(EndCause::or_better)
}

/// Why an app's job was ended. `None`: Flux did not end it, as far as its records show. If the job's instance is gone
/// too, the instance's own job tells.
///
/// # Errors
/// [`Error::NotYet`] while the job is ending. A command failed: its own message.
pub(super) fn find_cause(ended: &EndedApp, host: &dyn Host) -> Result<Option<EndCause>> {
    let target: Target = ended.job.0.parse()?;
    match ask_cause(&target, ended.torn, host) {
        Err(error @ Error::NotYet { .. }) => Err(error),
        Err(error) => match target.instances.split_last() {
            Some((job, instances)) => {
                ask_cause(&Target { instances: instances.to_vec(), job: *job }, ended.torn, host)
            }
            None => Err(error),
        },
        found => found,
    }
}

fn ask_cause(target: &Target, torn: bool, host: &dyn Host) -> Result<Option<EndCause>> {
    let instance = Instance::of(target, host)?;
    if let Some(cause) = cause_of_events(target.job, &instance.ask_events(target.job, host)?) {
        return Ok(Some(cause));
    }
    let job = instance.ask_job(target.job, host)?;
    match job.phase() {
        JobPhase::Running if !torn => Ok(None),
        JobPhase::Running | JobPhase::Ending => Err(Error::not_yet(job.describe(), None, false)),
        JobPhase::Waiting | JobPhase::Ended => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flux::job::parse_events;

    #[track_caller]
    fn check(line: &str, expected: Option<CauseKind>) {
        assert_eq!(parse_cause(line).map(|cause| cause.kind), expected, "{line}");
    }

    #[test]
    fn lines_that_name_a_cause() {
        check(
            "1.036s: job.exception ƒ2S8EjSP type=timeout severity=0 resource allocation expired\n",
            Some(CauseKind::TimeLimit),
        );
        check("4.432s: job.exception f5k97iNj type=cancel severity=0 \n", Some(CauseKind::Cancelled));
        check(
            "9.1s: job.exception f5k97iNj type=exec severity=0 node failure on n002 (rank 2)",
            Some(CauseKind::NodeFailed),
        );
        check("9.1s: job.exception f5k97iNj type=exec severity=1 node failure on n002 (rank 2)", None);
        check("9.1s: job.exception f5k97iNj type=exec severity=0 task 0 (host vm): start failed", None);
        check(
            "9.1s: flux-shell[0]:  WARN: oom: Memory cgroup out of memory: killed 1 task on n1.",
            Some(CauseKind::OutOfMemory),
        );
        check("my app: 1.036s: job.exception f2 type=timeout severity=0 x", None);
        check("1s: job.exception me type=timeout severity=0 x", None);
        check("", None);
    }

    #[test]
    fn events_that_name_a_cause() {
        let event = |kind: &str, severity: u32| {
            format!(
                r#"{{"timestamp":1.0,"name":"exception","context":{{"type":"{kind}","severity":{severity},"userid":1,"note":"why"}}}}"#
            )
        };
        let cause = |lines: &[String]| cause_of_events(JobId(6), &parse_events(&lines.join("\n")).unwrap());
        let found = cause(&[event("cancel", 0), event("timeout", 0)]).unwrap();
        assert_eq!(found.kind, CauseKind::TimeLimit);
        assert_eq!(found.message, "job f7 had an exception of type timeout: why");
        assert_eq!(cause(&[event("cancel", 1)]), None);
        assert_eq!(cause(&[event("exec", 0)]), None);
    }
}
