//! Agents as tasks of a job: one for each host, started by the mom of this host in the name of the job.
//!
//! What an agent has to know is in its task's variables, as a task has nothing to read: they go the way on which the job's own cookie goes, with which
//! whoever reads it could start anything in the job. They are in no argument list, and in no log of a mom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_shared::error::{Failure, Kind};
use gantry_shared::wire::hold::{GANTRY_TICKET, to_hex};
use tokio::task::JoinSet;

use super::place::read_environment;
use super::qstat::short_name;
use super::tm::{Client, Framing, NodeId, Spawn, Task, TmError};
use crate::host::Host;
use crate::launch::AgentWatch;
use crate::queue::Stop;
use crate::{AgentCommand, AppRef, Error, Result};

/// How long a mom may take for each answer, where nobody says when all must be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a mom says of a program that could not be executed; of one that was killed it says so much and the signal.
const NOT_EXECUTED: i32 = 254;
const KILLED: i32 = 256;

/// Starts an agent on every host of `app`, and watches over them from then on.
///
/// # Errors
/// This process is in no job; no mom; [`Error::Hosts`] with every host that refused. Agents that were started are ended then.
pub(super) async fn start_agents(app: &AppRef, agent: &AgentCommand, host: &dyn Host) -> Result<()> {
    if agent.send_to.is_some() {
        let hint = "leave out --send-agent, and have gantry where all nodes see it";
        return Err(Error::invalid_with("PBS puts no files on nodes before a launch", hint));
    }
    let client = connect(agent, host).await?;
    let places = find_places(&client, &app.hosts)?;
    let there = spawn_all(&client, places, agent).await?;
    tokio::spawn(look_after(client, there, agent.watch()));
    Ok(())
}

/// Starts an agent on every host of the job, or on those that are named, and stays until all have ended.
///
/// # Errors
/// As [`start_agents`]; some have ended in an error, and then none is left.
pub(super) async fn run_agents(
    agent: &AgentCommand,
    on: Option<&[String]>,
    stop: Stop<'_>,
    host: &dyn Host,
) -> Result<()> {
    let client = connect(agent, host).await?;
    // All of them by the names that the frontend has from the server.
    let all = one_per_host(&client)?.into_iter().map(|(node, name)| (short_name(name).to_owned(), node));
    let places = match on {
        Some(names) => find_places(&client, names)?,
        None => all.collect(),
    };
    let there = spawn_all(&client, places, agent).await?;
    let tasks: Vec<Task> = there.iter().map(|(_, task)| *task).collect();
    let (of, mut waiting) = (there.len(), wait_all(&client, there));
    let (mut stop, mut asked, mut failed) = (stop, false, Vec::new());
    loop {
        tokio::select! {
            ended = waiting.join_next() => {
                let Some(ended) = ended else { break };
                let Ok((name, obit)) = ended else { continue };
                if matches!(obit, Ok(0)) {
                    continue;
                }
                failed.push((name, explain_end(obit)));
            }
            () = &mut stop, if !asked => {}
        }
        if !asked {
            asked = true;
            for task in &tasks {
                // It may have ended.
                drop(client.kill(*task, libc::SIGTERM, PATIENCE).await);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Hosts { of, missing: failed }) }
}

/// The time that a mom has for an answer.
fn left(agent: &AgentCommand) -> Duration {
    agent.deadline().map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now()))
}

async fn connect(agent: &AgentCommand, host: &dyn Host) -> Result<Arc<Client>> {
    let environment = read_environment(host)?;
    Ok(Arc::new(Client::connect(&environment, Framing::Packets, left(agent)).await?))
}

/// Starts agents at these places, all or none.
async fn spawn_all(
    client: &Arc<Client>,
    places: Vec<(String, NodeId)>,
    agent: &AgentCommand,
) -> Result<Vec<(String, Task)>> {
    let of = places.len();
    let deadline = left(agent);
    let mut starting = JoinSet::new();
    for (name, node) in places {
        let ticket = to_hex(&agent.ticket(&name).map_err(Error::NotStarted)?);
        let program = Spawn::new([agent.program.as_os_str(), "serve".as_ref(), "told".as_ref()]);
        let program = program.variable(GANTRY_TICKET, ticket.as_str());
        let client = Arc::clone(client);
        starting.spawn(async move { (name, client.spawn(node, program, deadline).await) });
    }
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for (name, spawned) in starting.join_all().await {
        match spawned {
            Ok(task) => there.push((name, task)),
            Err(error) => missing.push((name, to_failure(&error))),
        }
    }
    if missing.is_empty() {
        return Ok(there);
    }
    for (_, task) in there {
        // It has nobody to report to, and would see that by itself after a while.
        drop(client.kill(task, libc::SIGKILL, left(agent)).await);
    }
    Err(Error::Hosts { of, missing })
}

/// The first node of each host, with the host's name.
fn one_per_host(client: &Client) -> Result<Vec<(NodeId, &str)>> {
    client.nodes().one_per_host().ok_or_else(|| {
        let message = "the job's node file does not have a line for each of its nodes";
        Error::invalid_with(message, "leave PBS_NODEFILE as PBS has set it")
    })
}

/// The first nodes of these hosts.
fn find_places(client: &Client, hosts: &[String]) -> Result<Vec<(String, NodeId)>> {
    let known = one_per_host(client)?;
    let find = |name: &String| {
        let found = known.iter().find(|(_, host)| host == name).map(|(node, _)| (name.clone(), *node));
        found.ok_or_else(|| Error::invalid(format!("the job has no host {name}")))
    };
    hosts.iter().map(find).collect()
}

/// Waits for the agents' ends, and tells of them. Of a host that has died nothing is heard.
async fn look_after(client: Arc<Client>, agents: Vec<(String, Task)>, watch: AgentWatch) {
    let mut waiting = wait_all(&client, agents);
    while let Some(ended) = waiting.join_next().await {
        let Ok((name, obit)) = ended else { continue };
        watch.ended(name, explain_end(obit));
    }
}

/// Waits for each of the agents' ends.
fn wait_all(client: &Arc<Client>, agents: Vec<(String, Task)>) -> JoinSet<(String, Obit)> {
    let mut waiting = JoinSet::new();
    for (name, task) in agents {
        let client = Arc::clone(client);
        waiting.spawn(async move { (name, client.obit(task).await) });
    }
    waiting
}

/// How a task has ended.
type Obit = std::result::Result<i32, TmError>;

/// What the end of an agent's task means.
fn explain_end(obit: Obit) -> Failure {
    let ended = |what: String| {
        Failure::new(Kind::LauncherFailed, what).with_hint("what it said is in the job's output")
    };
    match obit {
        Ok(NOT_EXECUTED) => {
            let failure = Failure::new(Kind::NotFound, "the agent could not be executed there");
            failure.with_hint("have gantry at a path that all hosts of the job see")
        }
        Ok(status) if status > KILLED => ended(format!("the agent was killed by signal {}", status - KILLED)),
        Ok(status) => ended(format!("the agent ended with code {status}")),
        Err(error) => to_failure(&error),
    }
}

fn to_failure(error: &TmError) -> Failure {
    let failure = Failure::new(error.kind(), error.to_string());
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_end_is_explained() {
        let check = |status, expected| assert_eq!(explain_end(Ok(status)).message(), expected);
        check(254, "the agent could not be executed there");
        check(265, "the agent was killed by signal 9");
        check(1, "the agent ended with code 1");
    }
}
