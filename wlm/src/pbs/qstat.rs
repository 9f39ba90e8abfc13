//! The server's records of jobs: `qstat -f -F json`. Source: qstat(1B), pbs_job_attributes(7B).
//!
//! qstat knows no types: what looks like a number is one in its JSON. Before 23.06 its text is no JSON at all where a
//! variable of the job has a value such as `007`, a quote or a backslash. Then it is asked for its other form.

use std::collections::BTreeMap;
use std::ffi::OsString;

use gantry_types::error::{Failure, Kind};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::ask::{ask, refused};
use crate::host::{Asked, Host};
use crate::slots::HostSlots;
use crate::{Error, JobPhase, JobRef, Result};

/// The output of qstat.
#[derive(Debug, Deserialize)]
struct Printed {
    #[serde(rename = "Jobs", default)]
    jobs: BTreeMap<String, Job>,
}

/// A job, with the fields that gantry needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// Its full name, with the server's.
    #[serde(skip)]
    pub id: String,
    /// A letter, by which PBS shows its state.
    pub job_state: String,
    /// Its submitter: `user@host`.
    #[serde(rename = "Job_Owner", default)]
    pub owner: String,
    /// The last comment of the scheduler or the server.
    #[serde(default, deserialize_with = "read_text")]
    pub comment: Option<String>,
    /// Its hosts, with one entry per chunk: `n001/0*2+n002/0*2`.
    #[serde(default, deserialize_with = "read_text")]
    pub exec_host: Option<String>,
    /// Its exit status: an exit code, 256 plus a signal's number, or a negative number if it never started.
    #[serde(rename = "Exit_status", default)]
    pub exit_status: Option<i64>,
    /// The session of its script, on its first host.
    #[serde(default)]
    pub session_id: Option<i32>,
    /// The requested resources.
    #[serde(rename = "Resource_List", default)]
    pub(super) resources: Resources,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Resources {
    #[serde(default, deserialize_with = "read_text")]
    select: Option<String>,
}

/// A text, or what qstat took for a number: `2` for `-l select=2`.
fn read_text<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

impl Job {
    /// The phase of its state.
    #[must_use]
    pub fn phase(&self) -> JobPhase {
        match self.job_state.as_str() {
            "R" | "B" | "U" => JobPhase::Running,
            "E" => JobPhase::Ending,
            "F" | "X" | "M" => JobPhase::Ended,
            _ => JobPhase::Waiting,
        }
    }

    /// Its state in a word, with PBS's comment.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = match self.job_state.as_str() {
            "Q" => "queued",
            "H" => "held by a user or the server",
            "W" => "waiting for its time",
            "T" => "being moved to another server",
            "S" => "suspended",
            "R" | "B" => "running",
            "E" => "being ended",
            "F" | "X" => "ended",
            "M" => "at another server",
            "U" => "running on a machine that is in use",
            other => other,
        };
        let code = self.exit_status.map(|code| format!(" with {code}")).unwrap_or_default();
        let comment = self.comment.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        format!("job {} is {state}{code}{comment}", self.id)
    }

    /// Its hosts in order, by short names, each with the requested number of MPI processes. `None`: it has no hosts.
    #[must_use]
    pub(super) fn slots(&self) -> Vec<HostSlots> {
        let pieces: Vec<&str> = self.exec_host.iter().flat_map(|text| text.split('+')).map(host_of).collect();
        let wanted = self.resources.select.as_deref().map(parse_select).unwrap_or_default();
        // If chunks and pieces cannot be matched, each piece is for one process.
        let fits = wanted.len() == pieces.len();
        let mut slots: Vec<HostSlots> = Vec::new();
        for (index, name) in pieces.into_iter().enumerate() {
            let (count, stated) = wanted.get(index).copied().filter(|_| fits).unwrap_or((1, false));
            match slots.iter_mut().find(|known| known.name == name) {
                Some(known) => (known.slots, known.stated) = (known.slots.saturating_add(count), true),
                None => slots.push(HostSlots { name: name.to_owned(), slots: count, stated }),
            }
        }
        // Task management does not reach a host without MPI processes.
        slots.retain(|host| host.slots > 0);
        slots
    }

    /// Its first host, where its script runs.
    #[must_use]
    pub fn first_host(&self) -> Option<&str> {
        self.exec_host.as_deref()?.split('+').next().map(|piece| piece.split('/').next().unwrap_or(piece))
    }
}

/// The name without its domain. Whether PBS shows the domain depends on how hosts are set up.
pub(super) fn short_name(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// `n001.site/0*2`: n001.
fn host_of(piece: &str) -> &str {
    short_name(piece.split('/').next().unwrap_or(piece))
}

/// The maximum number of chunks in a job.
const MAX_CHUNKS: usize = 100_000;

/// For every chunk of `2:ncpus=2:mpiprocs=2+1` its number of MPI processes, and whether that was explicit. Source:
/// pbs_resources(7B), "mpiprocs".
fn parse_select(text: &str) -> Vec<(u32, bool)> {
    let mut chunks = Vec::new();
    for part in text.split('+') {
        let mut words = part.split(':');
        let first = words.next().unwrap_or_default();
        let (count, own) = match first.parse::<usize>() {
            Ok(count) => (count, None),
            Err(_) => (1, Some(first)),
        };
        let mut processes = None;
        let mut cpus = 1;
        for word in own.into_iter().chain(words) {
            match word.split_once('=') {
                Some(("mpiprocs", number)) => processes = number.parse().ok(),
                Some(("ncpus", number)) => cpus = number.parse().unwrap_or(1),
                _ => {}
            }
        }
        let each = (processes.unwrap_or_else(|| u32::from(cpus > 0)), processes.is_some());
        chunks.extend(std::iter::repeat_n(each, count.min(MAX_CHUNKS)));
        chunks.truncate(MAX_CHUNKS);
    }
    chunks
}

/// What the server says of an ended job, unless the question includes such jobs. Source: OpenPBS, `PBSE_UNKJOBID` and
/// `PBSE_HISTJOBID`.
const ENDED: [&str; 2] = ["Unknown Job", "has finished"];

/// The answer to every question that includes ended jobs, from a server that does not keep them. That is the default
/// (`job_history_enable`). Source: OpenPBS, `PBSE_JOBHISTNOTSET`.
const NO_HISTORY: &str = "not configured to maintain job history";

/// A command that printed no record, and what it printed instead.
type Unlisted = (Vec<OsString>, Asked);

/// Runs qstat for a job, and for an ended one only with the option `-x` in `ended`.
fn qstat(ended: &[&str], job: &JobRef, host: &dyn Host) -> Result<std::result::Result<Job, Unlisted>> {
    let ask_for = |form: &[&str]| {
        let words = [&["qstat"], ended, form, &[&job.0]].concat();
        ask(&words.into_iter().map(OsString::from).collect::<Vec<_>>(), host)
    };
    let (command, said) = ask_for(&["-f", "-F", "json"])?;
    let found = match parse_jobs(&said.stdout) {
        Ok(mut jobs) => jobs.pop(),
        // The same record in the form that has no syntax to be broken.
        Err(error) => Some(parse_lines(&ask_for(&["-f"])?.1.stdout).ok_or(error)?),
    };
    Ok(found.ok_or((command, said)))
}

/// The server's record of a job, even of an ended one if the server keeps it.
///
/// # Errors
/// The server does not know the job, or does not let this user see it. [`Error::Unanswered`]: qstat gave no answer.
pub(super) fn ask_job(job: &JobRef, host: &dyn Host) -> Result<Job> {
    let mut answer = qstat(&[], job, host)?;
    let is_about = |said: &Asked, words: &[&str]| words.iter().any(|it| said.stderr.contains(it));
    if let Err((_, said)) = &answer
        && is_about(said, &ENDED)
    {
        let message = format!("job {} has ended, or there never was one: {}", job.0, said.stderr.trim());
        answer = qstat(&["-x"], job, host)?;
        if matches!(&answer, Err((_, said)) if is_about(said, &[NO_HISTORY])) {
            let hint = "the server forgets a job at its end; 'qstat -u USER' lists the jobs of a user";
            return Err(Error::Failed(Failure::new(Kind::Gone, message).with_hint(hint)));
        }
    }
    let (command, said) = match answer {
        Ok(found) => return Ok(found),
        Err(unlisted) => unlisted,
    };
    if is_about(&said, &["Unknown Job", "illegally formed"]) {
        return Err(Error::not_found(
            format!("PBS knows no job {}: {}", job.0, said.stderr.trim()),
            "'qstat -u USER' lists the jobs of a user",
        ));
    }
    Err(refused(&command, &said))
}

/// The job that `qstat -f` prints: its name, and a line for each attribute, `    name = value`. A long value continues
/// in lines that begin with a tab.
fn parse_lines(text: &str) -> Option<Job> {
    let text = text.replace("\n\t", "");
    let mut lines = text.lines();
    let id = lines.find_map(|line| line.strip_prefix("Job Id: "))?.trim().to_owned();
    let attributes: Vec<_> = lines.filter_map(|line| line.strip_prefix("    ")?.split_once(" = ")).collect();
    // The first one counts: later ones may be lines of a variable's value.
    let find = |name: &str| attributes.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
    Some(Job {
        id,
        job_state: find("job_state")?,
        owner: find("Job_Owner").unwrap_or_default(),
        comment: find("comment"),
        exec_host: find("exec_host"),
        exit_status: find("Exit_status").and_then(|status| status.parse().ok()),
        session_id: find("session_id").and_then(|session| session.parse().ok()),
        resources: Resources { select: find("Resource_List.select") },
    })
}

/// The jobs that `qstat -f -F json` prints.
///
/// # Errors
/// The text is not such output.
fn parse_jobs(text: &str) -> Result<Vec<Job>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let printed: Printed = serde_json::from_str(text).map_err(|error| {
        let message = format!("what qstat prints cannot be read: {error}");
        Error::Failed(Failure::new(Kind::Protocol, message).with_hint("try: qstat -f -F json"))
    })?;
    Ok(printed.jobs.into_iter().map(|(id, job)| Job { id, ..job }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        FakeHost::default().with_env("PATH", "/bin").with_file("/bin/qstat", "")
    }

    #[test]
    fn only_the_servers_own_words_are_about_the_job() {
        let ask = |words: &str| {
            let host = host().with_answer("/bin/qstat -f -F json 7", "", words);
            let host = host.with_answer("/bin/qstat -x -f -F json 7", "", words);
            ask_job(&JobRef("7".to_owned()), &host).unwrap_err()
        };
        for words in ["qstat: cannot connect to server head (errno=111)", "qstat: End of File", ""] {
            let error = ask(words);
            assert!(matches!(error, Error::Unanswered(_)) && error.to_string().contains(words), "{error}");
        }
        assert_eq!(ask("qstat: Unknown Job Id 7.head").kind(), Kind::NotFound);
        assert_eq!(ask("qstat: Unauthorized Request 7.head").kind(), Kind::NoAccess);
    }

    #[test]
    fn only_a_job_that_is_not_there_is_looked_for_among_ended_ones() {
        let json = r#"{"Jobs": {"7.head": {"job_state": "R"}}}"#;
        let ask = |host: FakeHost| ask_job(&JobRef("7".to_owned()), &host);
        // The fake machine answers no other question.
        let there = ask(host().with_answer("/bin/qstat -f -F json 7", json, ""));
        assert_eq!(there.unwrap().phase(), JobPhase::Running);
        let lines = "Job Id: 7.head\n    job_state = Q\n";
        let broken = host().with_answer("/bin/qstat -f -F json 7", "{", "");
        let there = ask(broken.with_answer("/bin/qstat -f 7", lines, ""));
        assert_eq!(there.unwrap().phase(), JobPhase::Waiting);
        let ended = json.replace('R', "F");
        for words in [
            "qstat: Unknown Job Id 7.head",
            "qstat: 7.head Job has finished, use -x or -H to obtain historical job information",
        ] {
            let over = || host().with_answer("/bin/qstat -f -F json 7", "", words);
            let with = |stdout: &str, stderr: &str| {
                ask(over().with_answer("/bin/qstat -x -f -F json 7", stdout, stderr))
            };
            assert_eq!(with(&ended, "").unwrap().phase(), JobPhase::Ended);
            let gone = with("", "qstat: PBS is not configured to maintain job history 7.head").unwrap_err();
            assert!(gone.kind() == Kind::Gone && gone.to_string().contains(words), "{gone}");
            let lost = with("", "qstat: cannot connect to server head (errno=111)");
            assert!(matches!(lost, Err(Error::Unanswered(_))), "{lost:?}");
        }
    }

    #[track_caller]
    fn check_slots(exec_host: &str, select: &str, expected: &str) {
        let resources = Resources { select: Some(select.to_owned()) };
        let job = Job { exec_host: Some(exec_host.to_owned()), resources, ..Job::default() };
        let shown: Vec<_> = job
            .slots()
            .iter()
            .map(|it| format!("{}:{}{}", it.name, it.slots, if it.stated { "!" } else { "" }))
            .collect();
        assert_eq!(shown.join(" "), expected, "{exec_host} {select}");
    }

    #[test]
    fn hosts_take_as_many_ranks_as_their_chunks_have_processes() {
        check_slots("n1/0*2+n2/0*2", "2:ncpus=2:mpiprocs=2", "n1:2! n2:2!");
        check_slots("n1/0*2+n1/1*2+n2/0", "2:ncpus=2+ncpus=1", "n1:2! n2:1");
        check_slots("n1.site/0*2+n2.site/0", "1:ncpus=2:mpiprocs=2+1:ncpus=1:mpiprocs=1", "n1:2! n2:1!");
        check_slots("n1/0+n2/0*0", "1:ncpus=1+1:ncpus=0", "n1:1");
        check_slots("n1/0+n2/0", "1:ncpus=8", "n1:1 n2:1");
        check_slots("n1/0", "mpiprocs=3", "n1:3!");
    }

    fn recorded(name: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/pbs-qstat/23.06.06");
        std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap()
    }

    #[test]
    fn a_number_of_chunks_alone_is_a_number_to_qstat() {
        let text = recorded("running").replace("\"3:ncpus=2:mpiprocs=2\"", "3");
        let job = parse_jobs(&text).unwrap().pop().unwrap();
        let slots: Vec<_> = job.slots().iter().map(|it| (it.slots, it.stated)).collect();
        assert_eq!((job.resources.select.as_deref(), slots.as_slice()), (Some("3"), &[(1, false); 3][..]));
    }

    #[test]
    fn a_record_that_is_no_json_is_read_line_by_line() {
        let lines = "Job Id: 2.login\n    Job_Name = STDIN\n    Job_Owner = tester@login\n    job_state = R\n    \
            exec_host = n001/0*2+n002/0*2+n0\n\t03/0*2\n    Resource_List.select = 3:ncpus=2:mpiprocs=2\n    \
            session_id = 170\n    Variable_List = FOO=007,BAR=a\n    job_state = F\n\t,PBS_O_HOST=login\n    \
            comment = Job run at Sun Nov 22 at 00:47 on (n001:ncpus=2)+(n002:ncpus=2)\n\t+(n003:ncpus=2)\n\n";
        let broken = recorded("running").replace("\"C.UTF-8\"", "007");
        let ask = |lines: &str| {
            let host = host().with_answer("/bin/qstat -f -F json 2", &broken, "");
            ask_job(&JobRef("2".to_owned()), &host.with_answer("/bin/qstat -f 2", lines, ""))
        };
        assert_eq!(ask(lines).unwrap(), parse_jobs(&recorded("running")).unwrap().pop().unwrap());
        let error = ask("").unwrap_err().to_string();
        assert!(error.contains("what qstat prints cannot be read"), "{error}");
    }

    #[test]
    fn recorded_jobs() {
        let read = |name: &str| parse_jobs(&recorded(name)).unwrap().pop();
        let running = read("running").unwrap();
        assert_eq!((running.id.as_str(), running.phase()), ("2.login", JobPhase::Running));
        assert_eq!((running.session_id, running.first_host()), (Some(170), Some("n001")));
        let slots: Vec<_> = running.slots().iter().map(|it| (it.name.clone(), it.slots)).collect();
        assert_eq!(slots, [("n001".to_owned(), 2), ("n002".to_owned(), 2), ("n003".to_owned(), 2)]);
        let deleted = read("deleted").unwrap();
        assert_eq!((deleted.phase(), deleted.exit_status), (JobPhase::Ended, Some(271)));
        assert!(deleted.describe().contains("ended with 271: Job run at"), "{}", deleted.describe());
        let queued = read("queued").unwrap();
        assert_eq!((queued.phase(), queued.slots().len()), (JobPhase::Waiting, 0));
        assert!(queued.describe().contains("is queued: Can Never Run"), "{}", queued.describe());
        let never = read("never").unwrap();
        assert_eq!((never.phase(), never.exit_status), (JobPhase::Ended, None));
        assert_eq!(read("unknown"), None);
        assert!(parse_jobs("{").is_err());
    }
}
