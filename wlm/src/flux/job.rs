//! Flux's records of jobs: `flux job list-ids`, `flux job eventlog`, `flux job hostpids`. Sources: RFC 21 and RFC 43 of
//! Flux, flux-job(1).

use gantry_types::host_set::parse_host_list;
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;
use serde::Deserialize;

use super::reference::JobId;
use crate::{Error, JobPhase, Result};

/// The maximum size of parsed output: enough for a million ranks.
const MAX_BYTES: usize = 256 << 20;

/// The relevant part of a job's record.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// Its id.
    pub id: u64,
    /// The user id of its owner.
    pub userid: u32,
    /// Flux's bit for the job's state. Source: RFC 21.
    pub state: u32,
    /// The scheduler's priority. 0: the job is held.
    #[serde(default)]
    pub priority: Option<u64>,
    /// The owner's urgency. 0: the owner holds the job.
    #[serde(default)]
    pub urgency: Option<u64>,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its queue.
    #[serde(default)]
    pub queue: Option<String>,
    /// The dependencies that it waits for before it can be scheduled.
    #[serde(default)]
    pub dependencies: Vec<String>,
    /// Its nodes, once it has some: one for each of its shells, in their order. Example: `n[1-2]`.
    #[serde(default)]
    pub nodelist: String,
    /// When it started to run, in seconds since 1970.
    #[serde(default)]
    pub t_run: f64,
    /// The type of the exception that ended it. Examples: `cancel`, `timeout`, `exec`.
    #[serde(default)]
    pub exception_type: String,
    /// What that exception says.
    #[serde(default)]
    pub exception_note: String,
    /// The wait status of its processes, as of wait(2), once it has ended.
    #[serde(default)]
    pub waitstatus: Option<i32>,
    /// Annotations by others.
    #[serde(default)]
    pub(super) annotations: Annotations,
}

/// Annotations of a job, by a scheduler and by the job itself.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Annotations {
    #[serde(default)]
    sched: Scheduler,
    #[serde(default)]
    user: User,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct Scheduler {
    #[serde(default)]
    reason_pending: Option<String>,
    #[serde(default)]
    jobs_ahead: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct User {
    #[serde(default)]
    uri: Option<String>,
}

impl Job {
    /// The phase of its state.
    #[must_use]
    pub fn phase(&self) -> JobPhase {
        match self.state {
            16 => JobPhase::Running,
            32 => JobPhase::Ending,
            64 => JobPhase::Ended,
            _ => JobPhase::Waiting,
        }
    }

    /// Flux's word for its state.
    #[must_use]
    pub fn state_word(&self) -> &'static str {
        match self.state {
            1 => "NEW",
            2 => "DEPEND",
            4 => "PRIORITY",
            8 => "SCHED",
            16 => "RUN",
            32 => "CLEANUP",
            64 => "INACTIVE",
            _ => "unknown",
        }
    }

    /// Its state, and the reason why it waits.
    #[must_use]
    pub fn describe(&self) -> String {
        let reason = self.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("job {} is in state {}{reason}", JobId(self.id), self.state_word())
    }

    fn reason(&self) -> Option<String> {
        if self.phase() != JobPhase::Waiting {
            return None;
        }
        if !self.dependencies.is_empty() {
            return Some(format!("dependencies: {}", self.dependencies.join(", ")));
        }
        if self.urgency == Some(0) {
            return Some("held: its urgency is 0".to_owned());
        }
        let sched = &self.annotations.sched;
        let ahead = sched.jobs_ahead.map(|jobs| format!("{jobs} jobs ahead"));
        sched.reason_pending.clone().or(ahead).or_else(|| {
            let queue = self.queue.as_ref().map(|queue| format!(" in queue {queue}")).unwrap_or_default();
            (self.state == 8).then(|| format!("waiting for resources{queue}"))
        })
    }

    /// How it ended: Flux's exception, or the exit status of its processes.
    #[must_use]
    pub fn describe_end(&self) -> String {
        let (kind, note) = (&self.exception_type, self.exception_note.trim());
        let how = match (kind.as_str(), note) {
            ("", _) => self.waitstatus.map(|status| ExitStatus::from_wait_status(status).to_string()),
            (kind, "") => Some(format!("exception of type {kind}")),
            (kind, note) => Some(format!("exception of type {kind}: {note}")),
        };
        let id = JobId(self.id);
        how.map_or_else(|| format!("job {id} has ended"), |how| format!("job {id} has ended: {how}"))
    }

    /// The address of the instance, if the job is one.
    pub(super) fn instance(&self) -> Option<&str> {
        self.annotations.user.uri.as_deref()
    }

    /// The host of each of its shells.
    ///
    /// # Errors
    /// The text is not a list of hosts.
    pub(super) fn hosts(&self) -> Result<Vec<String>> {
        parse_host_list(&self.nodelist)
            .map_err(|error| Error::invalid(format!("Flux printed the nodes '{}': {error}", self.nodelist)))
    }
}

/// Parses jobs, one per line.
///
/// # Errors
/// A line is not a job.
pub(super) fn parse_jobs(text: &str) -> Result<Vec<Job>> {
    parse_lines(text, "a job")
}

/// A job's jobspec. Source: RFC 14 and RFC 25 of Flux.
#[derive(Debug, Deserialize)]
struct Jobspec {
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
struct Task {
    command: Vec<String>,
}

/// Whether the processes of a job with this jobspec are brokers: `flux broker`, as `flux batch` and `flux alloc` submit
/// it, or `flux start`.
///
/// # Errors
/// The text is not a jobspec.
pub(super) fn starts_broker(text: &str) -> Result<bool> {
    bounded(text)?;
    let spec: Jobspec = serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("Flux printed a jobspec that is none: {error}")))?;
    let is_flux = |program: &String| program == "flux" || program.ends_with("/flux");
    Ok(spec.tasks.iter().any(|task| match task.command.as_slice() {
        [program, verb, ..] => is_flux(program) && matches!(verb.as_str(), "broker" | "start"),
        _ => false,
    }))
}

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Entry {
    pub name: String,
    #[serde(default)]
    pub context: Context,
}

/// The relevant fields of a job's event.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Context {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub severity: u32,
    #[serde(default)]
    pub note: String,
}

/// Parses the events of a job, one per line.
///
/// # Errors
/// A line is not an event.
pub(super) fn parse_events(text: &str) -> Result<Vec<Entry>> {
    parse_lines(text, "an event")
}

fn parse_lines<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<Vec<T>> {
    bounded(text)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parse = |line: &'a str| {
        serde_json::from_str(line)
            .map_err(|error| Error::invalid(format!("Flux printed a line that is not {what}: {error}")))
    };
    lines.map(parse).collect()
}

/// Parses the host and the pid of each rank, in rank order: `n1:77,n1:78,n2:40`.
///
/// # Errors
/// The text is not such a list.
pub(super) fn parse_processes(text: &str) -> Result<Vec<(String, Pid)>> {
    bounded(text)?;
    let parse = |item: &str| {
        let (host, pid) = item.rsplit_once(':')?;
        Some((host.to_owned(), Pid::new(pid.parse().ok()?)?))
    };
    let items = text.trim().split(',').map(|item| {
        parse(item).ok_or_else(|| {
            Error::invalid(format!("flux job hostpids printed '{item}', which is not a host with a pid"))
        })
    });
    items.collect()
}

fn bounded(text: &str) -> Result<()> {
    if text.len() > MAX_BYTES {
        return Err(Error::invalid(format!("Flux printed more than {MAX_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(parse_jobs(line).unwrap()[0].describe(), expected);
    }

    #[test]
    fn a_job_that_has_ended_says_how() {
        let check = |more: &str, expected: &str| {
            let line = format!(r#"{{"id": 6, "userid": 1, "state": 64{more}}}"#);
            assert_eq!(parse_jobs(&line).unwrap()[0].describe_end(), format!("job f7 has ended{expected}"));
        };
        check("", "");
        check(r#", "waitstatus": 0"#, ": exit code 0");
        check(r#", "waitstatus": 256"#, ": exit code 1");
        check(r#", "waitstatus": 9"#, ": killed by SIGKILL");
        let cancelled = r#", "exception_type": "cancel", "exception_note": "", "waitstatus": 36608"#;
        check(cancelled, ": exception of type cancel");
        let none = r#", "exception_type": "alloc", "exception_note": "unsatisfiable request""#;
        check(none, ": exception of type alloc: unsatisfiable request");
    }

    #[test]
    fn a_job_says_what_it_waits_for() {
        check(
            r#"{"id": 6, "userid": 1, "state": 8, "urgency": 16}"#,
            "job f7 is in state SCHED (waiting for resources)",
        );
        check(
            r#"{"id": 6, "userid": 1, "state": 8, "urgency": 0}"#,
            "job f7 is in state SCHED (held: its urgency is 0)",
        );
        check(
            r#"{"id": 6, "userid": 1, "state": 2, "dependencies": ["after-ok=f2"]}"#,
            "job f7 is in state DEPEND (dependencies: after-ok=f2)",
        );
        check(
            r#"{"id": 6, "userid": 1, "state": 8, "annotations": {"sched": {"reason_pending": "node n1 is down"}}}"#,
            "job f7 is in state SCHED (node n1 is down)",
        );
        check(r#"{"id": 6, "userid": 1, "state": 16}"#, "job f7 is in state RUN");
    }

    #[test]
    fn what_is_no_output_of_flux() {
        let texts = [
            parse_jobs("x").map(drop).unwrap_err().to_string(),
            parse_processes("n1:0").map(drop).unwrap_err().to_string(),
            parse_processes("").map(drop).unwrap_err().to_string(),
        ];
        assert!(texts[0].starts_with("Flux printed a line that is not a job: "), "{texts:?}");
        assert_eq!(texts[1], "flux job hostpids printed 'n1:0', which is not a host with a pid");
        assert_eq!(texts[2], "flux job hostpids printed '', which is not a host with a pid");
    }

    proptest! {
        /// Any output of a command gives an answer or an error, but no panic.
        #[test]
        fn any_text_is_an_answer_or_an_error(text in "(\\{|\\}|\"id\"|\"name\"|[0-9]{1,3}|[:,\\n\\[\\]]|[a-z]{1,4}){0,40}") {
            let _ = parse_jobs(&text).is_ok() || parse_events(&text).is_ok() || parse_processes(&text).is_ok();
        }
    }
}
