//! What Slurm's commands print.

use gantry_shared::error::{Failure, Kind};
use gantry_shared::host_set::parse_host_list;
use gantry_shared::id::Pid;
use serde::Deserialize;

use super::reference::{JobId, JobName, StepName, Target};
use crate::{Error, Result};

/// The most bytes of output that are parsed: some tens of thousands of jobs.
const MAX_BYTES: usize = 256 << 20;

/// A job as `squeue` knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its own number.
    pub id: JobId,
    /// How its name is written: array tasks and components of heterogeneous jobs have another than their number.
    pub name: JobName,
    /// Whose it is.
    pub user_id: u32,
    /// Slurm's word for its state: `RUNNING`.
    pub state: String,
    /// Why it waits, or why it ended: `Resources`, `None`.
    pub reason: String,
    /// Its nodes, once it has some.
    pub hosts: Vec<String>,
}

/// The part of a job's life that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// It has no nodes yet.
    Waiting,
    /// It has nodes and steps can run.
    Running,
    /// It ends: steps are being stopped.
    Ending,
    /// It has ended.
    Ended,
}

impl Job {
    /// The part of its life that its state belongs to.
    pub fn phase(&self) -> JobPhase {
        match self.state.as_str() {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD"
            | "CONFIGURING" | "REVOKED" => JobPhase::Waiting,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "RESIZING" | "STAGE_OUT" => JobPhase::Running,
            "COMPLETING" => JobPhase::Ending,
            _ => JobPhase::Ended,
        }
    }

    /// Whether a user's name for a job means this one. `12` means every task of array 12 and every component of job 12 too.
    pub fn is_named(&self, name: JobName) -> bool {
        match name {
            JobName::Plain(id) => self.id == id || self.name.number() == id,
            name => self.name == name,
        }
    }
}

#[derive(Deserialize)]
struct Squeue {
    jobs: Vec<SqueueJob>,
    #[serde(default)]
    errors: Vec<SqueueError>,
}

/// Version 22.05 ends with status 0 when the controller cannot be reached, and says so only here.
#[derive(Deserialize)]
struct SqueueError {
    #[serde(default)]
    description: String,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct SqueueJob {
    job_id: Number,
    #[serde(default)]
    array_job_id: Number,
    #[serde(default)]
    array_task_id: Number,
    #[serde(default)]
    het_job_id: Number,
    #[serde(default)]
    het_job_offset: Number,
    user_id: Number,
    job_state: Words,
    #[serde(default)]
    state_reason: String,
    #[serde(default)]
    nodes: String,
}

/// A number, which since 23.02 is an object that says whether it is set.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Number {
    #[default]
    Missing,
    Plain(u32),
    Object {
        #[serde(default)]
        set: bool,
        #[serde(default)]
        number: u32,
    },
    Null(()),
}

impl Number {
    fn get(&self) -> Option<u32> {
        match self {
            Self::Plain(number) | Self::Object { set: true, number } => Some(*number),
            _ => None,
        }
    }
}

/// A word, which since 23.11 is a list: the state, then flags.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    List(Vec<String>),
}

/// Parses `squeue --json`.
///
/// # Errors
/// It is no such JSON, or it says only what went wrong.
pub fn parse_jobs(json: &[u8]) -> Result<Vec<Job>> {
    bounded(json)?;
    let squeue: Squeue = serde_json::from_slice(json)
        .map_err(|error| Error::invalid(format!("squeue printed something else than its JSON: {error}")))?;
    if let (true, Some(first)) = (squeue.jobs.is_empty(), squeue.errors.first()) {
        let message = format!("squeue lists no jobs: {}: {}", first.description, first.error);
        let hint = "see with 'scontrol ping' whether the controller answers";
        return Err(Error::Refused(Failure::new(Kind::LauncherFailed, message).with_hint(hint)));
    }
    squeue.jobs.into_iter().map(job_of).collect()
}

fn job_of(job: SqueueJob) -> Result<Job> {
    let lacks = |what: &str| Error::invalid(format!("squeue printed a job without its {what}"));
    let id = JobId(job.job_id.get().ok_or_else(|| lacks("number"))?);
    let positive = |number: &Number| number.get().filter(|number| *number > 0).map(JobId);
    let name = if let (Some(array), Some(task)) = (positive(&job.array_job_id), job.array_task_id.get()) {
        JobName::ArrayTask(array, task)
    } else if let (Some(leader), Some(component)) = (positive(&job.het_job_id), job.het_job_offset.get()) {
        JobName::Component(leader, component)
    } else {
        JobName::Plain(id)
    };
    let state = match job.job_state {
        Words::One(state) => state,
        // A job that ends is RUNNING and COMPLETING, or COMPLETED and COMPLETING.
        Words::List(words) if words.iter().any(|word| word == "COMPLETING") => "COMPLETING".to_owned(),
        Words::List(words) => words.into_iter().next().ok_or_else(|| lacks("state"))?,
    };
    Ok(Job {
        id,
        name,
        user_id: job.user_id.get().ok_or_else(|| lacks("user"))?,
        state,
        reason: job.state_reason,
        hosts: hosts(&job.nodes)?,
    })
}

/// A step as `scontrol` knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepInfo {
    /// Its name, with the job's own number. One that waits for room in its job has no number yet.
    pub step: Target,
    /// What its srun calls it: the first word, where it has several.
    pub label: String,
    /// Whose it is.
    pub user_id: u32,
    /// Slurm's word for its state: `RUNNING`.
    pub state: String,
    /// Its nodes.
    pub hosts: Vec<String>,
    /// How many tasks it has.
    pub tasks: u32,
    /// Where the srun runs that has made it, and its pid.
    pub srun: Option<(String, Pid)>,
}

/// Parses `scontrol --oneliner show step`.
///
/// # Errors
/// A line is not of that form. That there is no such step is said on a line of its own, and is no error here: the list is empty.
pub fn parse_steps(text: &str) -> Result<Vec<StepInfo>> {
    bounded(text.as_bytes())?;
    text.lines().filter(|line| line.starts_with("StepId=")).map(parse_step).collect()
}

fn parse_step(line: &str) -> Result<StepInfo> {
    let field = |name: &str| {
        let mut fields =
            line.split_whitespace().filter_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        fields.next().ok_or_else(|| Error::invalid(format!("scontrol printed a step without {name}")))
    };
    let number = |name: &str| {
        let value = field(name)?;
        value
            .parse()
            .map_err(|_| Error::invalid(format!("scontrol printed {name}={value}, which is no number")))
    };
    let srun = field("SrunHost:Pid").ok().and_then(|value| value.rsplit_once(':'));
    let name = field("StepId")?;
    // "to be determined", in one spelling or the other
    let name = name.strip_suffix(".TDB").or_else(|| name.strip_suffix(".TBD")).unwrap_or(name);
    Ok(StepInfo {
        step: name.parse()?,
        label: field("Name").unwrap_or_default().to_owned(),
        user_id: number("UserId")?,
        state: field("State")?.to_owned(),
        hosts: hosts(field("NodeList")?)?,
        tasks: number("Tasks")?,
        srun: srun.and_then(|(host, pid)| Some((host.to_owned(), Pid::new(pid.parse().ok()?)?))),
    })
}

/// The tasks of a step on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTasks {
    /// The node's name.
    pub host: String,
    /// Its tasks, by their numbers in the step (in a heterogeneous step: in the component).
    pub tasks: Vec<u32>,
}

/// Parses `sattach --layout`.
///
/// # Errors
/// There is no node in it, or a line is not of that form.
pub fn parse_layout(text: &str) -> Result<Vec<NodeTasks>> {
    bounded(text.as_bytes())?;
    let bad =
        |line: &str| Error::invalid(format!("sattach printed '{line}', which is no node with its tasks"));
    let mut nodes = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| line.starts_with("Node ")) {
        let (_, rest) = line.split_once('(').ok_or_else(|| bad(line))?;
        let (host, rest) = rest.split_once(')').ok_or_else(|| bad(line))?;
        let (_, tasks) = rest.split_once(':').ok_or_else(|| bad(line))?;
        let tasks = tasks.split_whitespace().map(|task| task.parse().map_err(|_| bad(line)));
        nodes.push(NodeTasks { host: host.to_owned(), tasks: tasks.collect::<Result<_>>()? });
    }
    if nodes.is_empty() {
        return Err(Error::invalid("sattach printed no node"));
    }
    Ok(nodes)
}

/// A process of a step on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPid {
    /// The process.
    pub pid: Pid,
    /// The step it belongs to.
    pub step: StepName,
    /// Which task it is, if it is one and not a child of one.
    pub task: Option<u32>,
}

/// Parses `scontrol listpids`, as it prints on the node where it runs.
///
/// # Errors
/// A line is not of that form.
pub fn parse_pids(text: &str) -> Result<Vec<TaskPid>> {
    bounded(text.as_bytes())?;
    let bad =
        |line: &str| Error::invalid(format!("scontrol printed '{line}', which is no process of a step"));
    let mut pids = Vec::new();
    for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [pid, job, step, _local, global] = fields[..] else { return Err(bad(line)) };
        let pid = pid.parse().ok().and_then(Pid::new).ok_or_else(|| bad(line))?;
        let target: Target = format!("{job}.{step}").parse().map_err(|_| bad(line))?;
        let step = target.step.ok_or_else(|| bad(line))?;
        let task = match global {
            "-" => None,
            task => Some(task.parse().map_err(|_| bad(line))?),
        };
        pids.push(TaskPid { pid, step, task });
    }
    Ok(pids)
}

/// Parses what `sacct` prints for [`build_sacct`](super::build_sacct): jobs and steps with their states, the job first.
///
/// # Errors
/// A line is not of that form.
pub fn parse_sacct(text: &str) -> Result<Vec<(Target, String)>> {
    bounded(text.as_bytes())?;
    let bad = |line: &str| Error::invalid(format!("sacct printed '{line}', which is no job with its state"));
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut fields = line.split('|');
        let (Some(target), Some(state)) = (fields.next(), fields.next()) else { return Err(bad(line)) };
        // "CANCELLED by 1000"
        let state = state.split(' ').next().unwrap_or(state);
        found.push((target.parse().map_err(|_| bad(line))?, state.to_owned()));
    }
    Ok(found)
}

/// A version of Slurm: 22.05.8 is (22, 5, 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(
    /// Year.
    pub u32,
    /// Month.
    pub u32,
    /// Correction.
    pub u32,
);

/// Parses what `srun --version` prints.
pub fn parse_version(text: &str) -> Option<Version> {
    let mut numbers = text.split_whitespace().nth(1)?.split(['.', '-']).map(str::parse);
    Some(Version(
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next().and_then(std::result::Result::ok).unwrap_or(0),
    ))
}

pub(super) fn hosts(list: &str) -> Result<Vec<String>> {
    if list == "(null)" {
        return Ok(Vec::new());
    }
    parse_host_list(list)
        .map_err(|error| Error::invalid(format!("Slurm printed the nodes '{list}': {error}")))
}

pub(super) fn bounded(text: &[u8]) -> Result<()> {
    if text.len() > MAX_BYTES {
        return Err(Error::invalid(format!("Slurm printed more than {MAX_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Versions from 23.11 on write numbers as objects and states as lists. Written after their documentation.
    #[test]
    fn newer_json() {
        let json = br#"{"jobs":[{"job_id":7,"array_job_id":{"set":true,"infinite":false,"number":5},
            "array_task_id":{"set":true,"infinite":false,"number":0},"het_job_id":{"set":true,"infinite":false,"number":0},
            "het_job_offset":{"set":true,"infinite":false,"number":0},"user_id":1000,"job_state":["RUNNING"],"state_reason":"None",
            "nodes":"n[1-2]"},
            {"job_id":8,"array_job_id":{"set":true,"number":0},"array_task_id":{"set":false,"number":0},"user_id":1000,
            "job_state":["CANCELLED","COMPLETING"],"nodes":""}],"warnings":[],"errors":[]}"#;
        let jobs = parse_jobs(json).unwrap();
        assert_eq!(jobs[0].name, JobName::ArrayTask(JobId(5), 0));
        assert_eq!(jobs[0].phase(), JobPhase::Running);
        assert_eq!(jobs[0].hosts, ["n1", "n2"]);
        assert_eq!((jobs[1].name, jobs[1].phase()), (JobName::Plain(JobId(8)), JobPhase::Ending));
        assert!(jobs[0].is_named(JobName::Plain(JobId(5))) && !jobs[1].is_named(JobName::Plain(JobId(5))));
    }

    #[test]
    fn what_is_no_output_of_theirs() {
        let texts = [
            parse_jobs(b"slurm_load_jobs error").map(|_| ()).unwrap_err(),
            parse_jobs(br#"{"jobs":[{"job_id":{"set":false},"user_id":1,"job_state":"RUNNING"}]}"#)
                .map(|_| ())
                .unwrap_err(),
            parse_steps("StepId=1.0 UserId=x").map(|_| ()).unwrap_err(),
            parse_layout("no\n").map(|_| ()).unwrap_err(),
            parse_pids("12 3\n").map(|_| ()).unwrap_err(),
            parse_sacct("x\n").map(|_| ()).unwrap_err(),
        ]
        .map(|error| error.to_string());
        assert_eq!(texts[1], "squeue printed a job without its number");
        assert_eq!(texts[2], "scontrol printed UserId=x, which is no number");
        assert_eq!(texts[3], "sattach printed no node");
        assert_eq!(texts[4], "scontrol printed '12 3', which is no process of a step");
        assert_eq!(texts[5], "sacct printed 'x', which is no job with its state");
    }

    #[test]
    fn accounting_and_versions() {
        let found = parse_sacct("12|CANCELLED by 1000|0:15|n[1-2]\n12.batch|FAILED|1:0|n1\n\n").unwrap();
        let text: Vec<String> = found.iter().map(|(target, state)| format!("{target} {state}")).collect();
        assert_eq!(text, ["12 CANCELLED", "12.batch FAILED"]);
        assert_eq!(parse_version("slurm 23.11.4\n"), Some(Version(23, 11, 4)));
        assert_eq!(parse_version("slurm 24.05.0-rc1"), Some(Version(24, 5, 0)));
        assert_eq!(parse_version("mpiexec"), None);
    }

    proptest! {
        /// Whatever a command prints: an answer or an error, no panic.
        #[test]
        fn any_text_is_an_answer_or_an_error(text in "(StepId=|Node |[0-9]{1,3}|[(){}=:., |\\n\"-]|[a-z]{1,4}){0,40}") {
            let answers = [
                parse_jobs(text.as_bytes()).is_ok(),
                parse_steps(&text).is_ok(),
                parse_layout(&text).is_ok(),
                parse_pids(&text).is_ok(),
                parse_sacct(&text).is_ok(),
                parse_version(&text).is_some(),
            ];
            prop_assert!(!answers[0]);
        }
    }
}
