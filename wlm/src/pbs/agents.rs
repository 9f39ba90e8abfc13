//! Agents as tasks of a job: one for each host, started by the mom of this host in the name of the job.
//!
//! An agent gets its ticket in its task's variables, since a task has no input. These travel like the job's own
//! cookie, with which any reader could start programs in the job. They are in no argument list and in no log of a
//! mom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_shared::wire::hold::{GANTRY_TICKET, to_hex};
use gantry_types::error::{Failure, Kind};
use gantry_types::launch::SendAgent;
use tokio::task::JoinSet;

use super::place::read_environment;
use super::qstat::short_name;
use super::tm::{Client, Framing, NodeId, Spawn, Task};
use super::word::{Program, explain_end, to_failure};
use crate::caps::queue::Stop;
use crate::give::{GANTRY_GIVEN, Giver, SHELL};
use crate::host::Host;
use crate::launch::Reports;
use crate::{AgentCommand, AppRef, Error, Result};

/// The timeout for each answer of a mom, unless the caller sets one for all.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long agents may take to end after a request.
const GOODBYE: Duration = Duration::from_secs(60);

/// Starts an agent on every host of `app`, and watches them from then on.
///
/// # Errors
/// This process is not in a job. There is no mom. [`Error::Hosts`] with every host that refused: agents that were
/// started are then ended.
pub(super) async fn start_agents(app: &AppRef, agent: &AgentCommand, host: &dyn Host) -> Result<()> {
    let client = connect(agent, host).await?;
    let places = find_places(&client, &app.hosts)?;
    let own = host.hostname();
    let giver = start_giver(&client, &places, agent, &own, host).await?;
    let there = spawn_all(&client, places, agent, giver.as_ref().map(|giver| (giver, own.as_str()))).await?;
    tokio::spawn(look_after(wait_all(&client, there), agent.watch.clone(), giver));
    Ok(())
}

/// Starts the program that sends the agent to all other hosts, if they may need it.
async fn start_giver(
    client: &Client,
    places: &[(String, NodeId)],
    agent: &AgentCommand,
    own: &str,
    host: &dyn Host,
) -> Result<Option<Giver>> {
    let takers = places.iter().filter(|(name, _)| short_name(name) != short_name(own)).count();
    if agent.send == SendAgent::Never || takers == 0 {
        return Ok(None);
    }
    Giver::start(&agent.program, &[name_of(client, own)], takers, host).await.map(Some)
}

/// Starts an agent on every host of the job, or on the named ones, and waits until all have ended.
///
/// # Errors
/// As [`start_agents`]. Some agents have failed: then none is left.
pub(super) async fn run_agents(
    agent: &AgentCommand,
    on: Option<&[String]>,
    stop: Stop<'_>,
    host: &dyn Host,
) -> Result<()> {
    let client = connect(agent, host).await?;
    // The names must be those that the frontend has from the server.
    let all = one_per_host(&client)?.into_iter().map(|(node, name)| (short_name(name).to_owned(), node));
    let places = match on {
        Some(names) => find_places(&client, names)?,
        None => all.collect(),
    };
    let own = host.hostname();
    let giver = start_giver(&client, &places, agent, &own, host).await?;
    let there = spawn_all(&client, places, agent, giver.as_ref().map(|giver| (giver, own.as_str()))).await?;
    let tasks: Vec<Task> = there.iter().map(|it| it.task).collect();
    let mut open: Vec<String> = there.iter().map(|it| it.host.clone()).collect();
    let (of, mut waiting) = (there.len(), wait_all(&client, there));
    let (mut stop, mut asked, mut failed) = (stop, false, Vec::new());
    let mut enough = std::pin::pin!(tokio::time::sleep(GOODBYE));
    loop {
        tokio::select! {
            ended = waiting.join_next() => {
                let Some(ended) = ended else { break };
                let Ok((name, failure)) = ended else { continue };
                open.retain(|it| *it != name);
                let Some(failure) = failure else { continue };
                failed.push((name, failure));
            }
            () = &mut stop, if !asked => {}
            () = &mut enough, if asked => {
                // If a mom dies, its host reports nothing for as long as this job lives.
                let unheard = || Failure::new(Kind::Lost, "its agent's end was not reported");
                failed.extend(open.drain(..).map(|name| (name, unheard())));
                break;
            }
        }
        if !asked {
            asked = true;
            enough.set(tokio::time::sleep(GOODBYE));
            for task in &tasks {
                // It may have ended already.
                drop(client.kill(*task, libc::SIGTERM, PATIENCE).await);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Hosts { of, missing: failed }) }
}

/// The time left for a mom's answer.
fn left(agent: &AgentCommand) -> Duration {
    agent.deadline.map_or(PATIENCE, |until| until.saturating_duration_since(Instant::now()))
}

async fn connect(agent: &AgentCommand, host: &dyn Host) -> Result<Arc<Client>> {
    let environment = read_environment(host)?;
    Ok(Arc::new(Client::connect(&environment, Framing::Packets, left(agent)).await?))
}

/// A started agent, or a program that fetches it.
#[derive(Debug)]
struct Started {
    host: String,
    task: Task,
    program: Program,
}

/// Starts agents at these places, all or none. `giver` sends the agent to all other hosts. It comes with this host's
/// name.
async fn spawn_all(
    client: &Arc<Client>,
    places: Vec<(String, NodeId)>,
    agent: &AgentCommand,
    giver: Option<(&Giver, &str)>,
) -> Result<Vec<Started>> {
    let of = places.len();
    let deadline = left(agent);
    let mut starting = JoinSet::new();
    for (name, node) in places {
        let ticket = to_hex(&agent.ticket(&name)?);
        let giver = giver.filter(|(_, own)| short_name(&name) != short_name(own)).map(|(giver, _)| giver);
        let program = match giver {
            Some(_) => Program { path: SHELL.into(), fetches: true },
            None => Program { path: agent.program.clone(), fetches: false },
        };
        let task = match giver {
            Some(giver) => {
                let serve = ["serve", "told", "pbs"];
                let command = match agent.send {
                    SendAgent::Always => Giver::build_command(&serve),
                    _ => giver.build_careful_command(&serve),
                };
                Spawn::new(command).variable(GANTRY_GIVEN, giver.give_word(1)?.as_str())
            }
            None => {
                Spawn::new([agent.program.as_os_str(), "serve".as_ref(), "told".as_ref(), "pbs".as_ref()])
            }
        };
        let task = task.variable(GANTRY_TICKET, ticket.as_str());
        let client = Arc::clone(client);
        starting.spawn(async move { (name, program, client.spawn(node, task, deadline).await) });
    }
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for (host, program, spawned) in starting.join_all().await {
        match spawned {
            Ok(task) => there.push(Started { host, task, program }),
            Err(error) => missing.push((host, to_failure(&error))),
        }
    }
    if missing.is_empty() {
        return Ok(there);
    }
    for started in there {
        // No process reads the agent's report any more. The agent would notice that only later.
        drop(client.kill(started.task, libc::SIGKILL, left(agent)).await);
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

/// The first nodes of these hosts. Launchers and servers name hosts with or without a domain.
fn find_places(client: &Client, hosts: &[String]) -> Result<Vec<(String, NodeId)>> {
    let known = one_per_host(client)?;
    let find = |name: &String| {
        let is_it = |host: &str| host == name || short_name(host) == short_name(name);
        let found = known.iter().find(|(_, host)| is_it(host)).map(|(node, _)| (name.clone(), *node));
        found.ok_or_else(|| Error::invalid(format!("the job has no host {name}")))
    };
    hosts.iter().map(find).collect()
}

/// Waits for the agents' ends, and reports them. A dead host reports nothing.
async fn look_after(
    mut waiting: JoinSet<(String, Option<Failure>)>,
    watch: Reports<(String, Failure)>,
    _giver: Option<Giver>,
) {
    while let Some(ended) = waiting.join_next().await {
        let Ok((name, failure)) = ended else { continue };
        // The end of a superfluous agent matters only to a caller that still waits for its link.
        let left = || Failure::new(Kind::Gone, "the agent left before it had its link");
        watch.tell((name, failure.unwrap_or_else(left)));
    }
}

/// Waits for the end of each agent. Yields its host, and the failure if it did not end well.
fn wait_all(client: &Arc<Client>, agents: Vec<Started>) -> JoinSet<(String, Option<Failure>)> {
    let mut waiting = JoinSet::new();
    for Started { host, task, program } in agents {
        let client = Arc::clone(client);
        waiting.spawn(async move {
            match client.obit(task).await {
                Ok(0) => (host, None),
                obit => (host, Some(explain_end(&client, task, &program, obit).await)),
            }
        });
    }
    waiting
}

/// The name of the host `own` as the job's other hosts use it.
fn name_of(client: &Client, own: &str) -> String {
    let all = client.nodes().all().iter().filter_map(|node| node.host.as_deref());
    let mut same = all.filter(|name| short_name(name) == short_name(own));
    same.next().unwrap_or(own).to_owned()
}
