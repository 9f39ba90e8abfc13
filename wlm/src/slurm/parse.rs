//! The output of Slurm's commands.

use gantry_types::host_set::parse_host_list;
use gantry_types::id::Pid;

use super::reference::{JobId, JobName, Target};
use crate::{Error, JobPhase, Result};

/// The maximum size of parsed output: enough for tens of thousands of jobs.
const MAX_BYTES: usize = 256 << 20;

/// A job as Slurm knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its own number.
    pub id: JobId,
    /// Its name. For array tasks and components of heterogeneous jobs it differs from the number.
    pub name: JobName,
    /// Its owner.
    pub user_id: u32,
    /// Slurm's name of its state: `RUNNING`.
    pub state: String,
    /// Why it waits, or why it ended: `Resources`, `None`.
    pub reason: String,
    /// Its nodes, once it has some.
    pub hosts: Vec<String>,
}

impl Job {
    /// The phase of its state.
    pub fn phase(&self) -> JobPhase {
        match self.state.as_str() {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD"
            | "CONFIGURING" | "REVOKED" => JobPhase::Waiting,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "RESIZING" | "STAGE_OUT" => JobPhase::Running,
            "COMPLETING" => JobPhase::Ending,
            _ => JobPhase::Ended,
        }
    }

    /// Whether a user's name for a job means this one. `12` means every task of array 12 and every component of job 12
    /// too.
    pub fn is_named(&self, name: JobName) -> bool {
        match name {
            JobName::Plain(id) => self.id == id || self.name.number() == id,
            name => self.name == name,
        }
    }
}

/// A step as `scontrol` knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StepInfo {
    /// Its name, with the job's own number. A step that waits for room in its job has no number yet.
    pub step: Target,
    /// The name of its srun: the first word, if there are several.
    pub label: String,
    /// Slurm's name of its state: `RUNNING`.
    pub state: String,
    /// The number of its tasks.
    pub tasks: u32,
    /// The host and the pid of the srun that created it.
    pub srun: Option<(String, Pid)>,
}

/// Parses `scontrol --oneliner show step`.
///
/// # Errors
/// A line has another form. A line about a missing step is no error here: the list is empty.
pub(super) fn parse_steps(text: &str) -> Result<Vec<StepInfo>> {
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
            .map_err(|_| Error::invalid(format!("scontrol printed {name}={value}, which is not a number")))
    };
    let srun = field("SrunHost:Pid").ok().and_then(|value| value.rsplit_once(':'));
    let name = field("StepId")?;
    // Some versions write TBD, others TDB.
    let name = name.strip_suffix(".TDB").or_else(|| name.strip_suffix(".TBD")).unwrap_or(name);
    Ok(StepInfo {
        step: name.parse()?,
        label: field("Name").unwrap_or_default().to_owned(),
        state: field("State")?.to_owned(),
        tasks: number("Tasks")?,
        srun: srun.and_then(|(host, pid)| Some((host.to_owned(), Pid::new(pid.parse().ok()?)?))),
    })
}

/// The tasks of a step on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeTasks {
    /// The node's name.
    pub host: String,
    /// Its tasks, by their numbers in the step (in a heterogeneous step: in the component).
    pub tasks: Vec<u32>,
}

/// Parses `sattach --layout`.
///
/// # Errors
/// There is no node in it, or a line is not of that form.
pub(super) fn parse_layout(text: &str) -> Result<Vec<NodeTasks>> {
    bounded(text.as_bytes())?;
    let bad =
        |line: &str| Error::invalid(format!("sattach printed '{line}', which is not a node with its tasks"));
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

    #[test]
    fn a_jobs_state_tells_its_phase_and_its_number_names_all_its_tasks() {
        let job = |state: &str, name| Job {
            id: JobId(7),
            name,
            user_id: 1000,
            state: state.to_owned(),
            reason: "None".to_owned(),
            hosts: Vec::new(),
        };
        let phases = ["PENDING", "RUNNING", "COMPLETING", "CANCELLED"]
            .map(|state| job(state, JobName::Plain(JobId(7))).phase());
        assert_eq!(phases, [JobPhase::Waiting, JobPhase::Running, JobPhase::Ending, JobPhase::Ended]);
        let task = job("RUNNING", JobName::ArrayTask(JobId(5), 0));
        assert!([5, 7].into_iter().all(|number| task.is_named(JobName::Plain(JobId(number)))));
        assert!(task.is_named(task.name) && !task.is_named(JobName::ArrayTask(JobId(5), 1)));
    }

    #[test]
    fn other_output_is_refused() {
        let texts = [
            parse_steps("StepId=1.0 State=RUNNING Tasks=x").map(|_| ()).unwrap_err(),
            parse_layout("no\n").map(|_| ()).unwrap_err(),
        ]
        .map(|error| error.to_string());
        assert_eq!(texts[0], "scontrol printed Tasks=x, which is not a number");
        assert_eq!(texts[1], "sattach printed no node");
    }

    proptest! {
        /// Any output of a command gives an answer or an error, but no panic.
        #[test]
        fn any_text_is_an_answer_or_an_error(text in "(StepId=|Node |[0-9]{1,3}|[(){}=:., |\\n\"-]|[a-z]{1,4}){0,40}") {
            let _ = parse_steps(&text).is_ok() || parse_layout(&text).is_ok();
        }
    }
}
