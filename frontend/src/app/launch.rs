//! Launches an app: plan, guard, agents, overlay, ranks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_shared::secret::Secret;
use gantry_shared::wire::message::{Order, Program, StartRanks, Ticket};
use gantry_shared::wire::mpi::PmixServer;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, Pid, Rank};
use gantry_types::launch::{HostsPolicy, MixedPart, SendAgent};
use gantry_types::placement::{Placement, PlacementBuilder};
use gantry_types::rank_set::RankSet;
use gantry_types::status::ExitStatus;
use gantry_wlm::host::Machine;
use gantry_wlm::{AgentCommand, Direct, Host, Launch, Plan, Reports, Wlm, explain_launcher_end, reach};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::App;
use super::again::again;
use super::agent_hosts::{AgentHosts, Fallback, Reached};
use super::asking::ask_until;
use super::brought::NotBrought;
use super::connected::Connected;
use super::context::{LaunchContext, new_id};
use super::decide::{Decision, PLANNING, plan_without};
use super::own_launcher::{Check, Served};
use super::prepare::{await_input, build_ticket, find_cwd, open_input, patience_until};
use super::waiting::JobNews;
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result};
use crate::event::MissingHost;
use crate::guard::{Guard, GuardEvent};
use crate::helpers;
use crate::overlay::Listener;
use crate::request::{LaunchRequest, OutputTo, build_program_env};

/// What a launch without a launcher needs before its agents are there.
pub(super) struct Prepared {
    /// Where ranks start.
    pub(super) cwd: PathBuf,
    /// What rank 0 reads.
    input: Option<std::fs::File>,
    /// The check of the programs, if it has begun already.
    check: Option<Check>,
}

impl Frontend {
    pub(crate) async fn launch_until(
        &self,
        mut request: LaunchRequest,
        mut news: JobNews<'_>,
        clock: &Clock,
    ) -> Result<App> {
        request.stdin = await_input(std::mem::take(&mut request.stdin), clock.deadline()).await?;
        let app = new_id()?;
        let (decision, request) = self.decide(app, request, clock.deadline()).await?;
        let Decision { wlm, launch, plan } = decision;
        let context = LaunchContext::launch(self, wlm, app, &request)?;
        match plan {
            Plan::Direct(plan) => {
                self.launch_direct(context, request, (launch, plan), clock.deadline()).await
            }
            Plan::Queued(plan) => self.launch_queued(context, request, plan, news, clock).await,
            Plan::Driven(_) if request.joins_world => Err(Error::Invalid {
                message: "ranks of a job's MPI world need gantry's agent in their place, and this launch holds them by their launcher".to_owned(),
                hint: Some("install gantry on the nodes; leave out GANTRY_SEND_AGENT=always".to_owned()),
            }),
            Plan::Driven(plan) => self.launch_driven(context, request, plan, news, clock).await,
            Plan::Brought(plan) => {
                let again = (launch.send_agent == SendAgent::Auto).then(|| again(&request)).flatten();
                let told: JobNews<'_> = match &mut news {
                    Some(tell) => Some(&mut **tell),
                    None => None,
                };
                match self.launch_brought(context, request, plan, told, clock).await {
                    Ok(app) => Ok(app),
                    Err(NotBrought { error, lacks_agent: true }) => match again {
                        Some(request) => {
                            let asked = (launch, request);
                            self.launch_sending(wlm, asked, error, news, clock).await
                        }
                        None => Err(error),
                    },
                    Err(NotBrought { error, .. }) => Err(error),
                }
            }
            _ => Err(Error::invalid(format!(
                "{} needs a launch method that is not built in",
                wlm.name()
            ))),
        }
    }

    /// Retries the launch in a way that can send the agent. `error` is the failure of the first attempt.
    async fn launch_sending(
        &self,
        wlm: &'static dyn Wlm,
        (launch, request): (Launch, LaunchRequest),
        error: Error,
        news: JobNews<'_>,
        clock: &Clock,
    ) -> Result<App> {
        let launch = Launch { send_agent: SendAgent::Always, ..launch };
        let planned = ask_until(PLANNING, clock.deadline(), move |host| wlm.plan(&launch, host));
        let Ok(Plan::Driven(plan)) = planned.await else { return Err(error) };
        tracing::info!(%error, "nodes do not have gantry's agent: the launch is made again, and the agent is sent");
        let context = LaunchContext::launch(self, wlm, new_id()?, &request)?;
        self.launch_driven(context, request, plan, news, clock).await
    }

    async fn launch_direct(
        &self,
        context: LaunchContext,
        mut request: LaunchRequest,
        (launch, mut plan): (Launch, Direct),
        deadline: Instant,
    ) -> Result<App> {
        self.refuse_rank_wrapper()?;
        let mut prepared = prepare_direct(&mut request)?;
        build_placement(&plan)?;
        prepared.check = Some(begin_check(&request, &plan, &prepared.cwd));
        let fallback = fallback_for_missing(context.wlm, &launch, &plan);
        let agent_hosts =
            AgentHosts { hosts: plan.hosts.clone(), job: None, wlm_data: plan.wlm_data.clone(), fallback };
        let joined = self.start_agents(&context, agent_hosts, deadline).await?;
        if !joined.left_out.is_empty() {
            let (wlm, without) = (context.wlm, names_of(&joined.left_out));
            plan =
                ask_until(PLANNING, deadline, move |host| plan_without(wlm, &launch, without, host)).await?;
        }
        // The agents have their numbers already.
        if plan.hosts != joined.hosts {
            return Err(Error::Protocol("the hosts have changed meanwhile".to_owned()));
        }
        begin_direct(context, joined, request, plan, prepared, deadline).await
    }

    /// Refuses to look for ranks inside a wrapper that no launcher starts.
    pub(super) fn refuse_rank_wrapper(&self) -> Result<()> {
        match &self.config.rank_wrapper {
            None => Ok(()),
            Some(wrapper) => Err(Error::Invalid {
                message: format!(
                    "without a launcher there is no '{wrapper}' around ranks: agents start the program itself"
                ),
                hint: Some("name a launcher, or no wrapper".to_owned()),
            }),
        }
    }

    /// Starts guard and agents and waits until every agent has its place in the overlay.
    pub(super) async fn start_agents(
        &self,
        context: &LaunchContext,
        hosts: AgentHosts,
        deadline: Instant,
    ) -> Result<Connected> {
        let guard_program = helpers::find(helpers::GUARD)?;
        let guarded = Guard::start(&guard_program, self.config.stage_base.clone()).await?;
        self.start_agents_by(guarded, context, hosts, deadline).await
    }

    /// As [`Frontend::start_agents`], with a guard that runs already.
    pub(super) async fn start_agents_by(
        &self,
        (guard, mut guard_events): (Guard, mpsc::UnboundedReceiver<GuardEvent>),
        context: &LaunchContext,
        hosts: AgentHosts,
        deadline: Instant,
    ) -> Result<Connected> {
        let wlm = context.wlm;
        let agent_program = helpers::find(helpers::AGENT)?;
        let secret = context.secret.clone();
        let listener = self.listen(context, &secret).await?;
        let (watch, mut ended) = mpsc::unbounded_channel();
        let (left, left_out) = mpsc::unbounded_channel();
        let mut agent =
            self.build_agent_command(agent_program.clone(), context, secret, &listener, deadline)?;
        agent.deadline = Some(deadline.into_std());
        agent.watch = Reports::new(watch);
        agent.links = listener.links();
        agent.policy = hosts.round_policy(self.config.hosts_policy);
        agent.left_out = Reports::new(left);
        let strangers = listener.strangers();
        let Reached { hosts, without } =
            hosts.reach(context, self.config.hosts_policy, (&agent, left_out), &guard).await?;
        let assembled = tokio::select! {
            assembled = listener.assemble(&hosts, deadline) => assembled,
            event = guard_events.recv() => Err(agent_failed(wlm, event, agent_program)),
            // A WLM that does not see agents end reports none here.
            Some((host, failure)) = ended.recv() => Err(Error::Node { hosts: vec![host], failure }),
        };
        let (overlay, overlay_events) = assembled.map_err(|error| strangers.explain(error))?;
        guard.agents_there().await?;
        Ok(Connected { overlay, overlay_events, guard, guard_events, hosts, left_out: without })
    }

    /// Refuses a policy that the WLM would not follow. `one_by_one`: gantry reaches the hosts itself and may choose
    /// among them.
    pub(super) fn check_policy(&self, wlm: &dyn Wlm, one_by_one: bool) -> Result<()> {
        let policy = self.config.hosts_policy;
        if policy == HostsPolicy::All || (one_by_one && wlm.capabilities().host_lists.is_some()) {
            return Ok(());
        }
        Err(Error::Invalid {
            message: format!("{} cannot go on without hosts, as the policy {policy} asks it to", wlm.name()),
            hint: Some("leave out the policy, or name hosts that gantry is to reach itself".to_owned()),
        })
    }

    pub(super) async fn listen(&self, context: &LaunchContext, secret: &Secret) -> Result<Listener> {
        let (radix, bulk_radix) = (self.config.radix, self.config.bulk_radix);
        Listener::bind(context.app, secret.clone(), radix, bulk_radix, reach(context.wlm)).await
    }

    fn build_agent_command(
        &self,
        program: PathBuf,
        context: &LaunchContext,
        secret: Secret,
        listener: &Listener,
        deadline: Instant,
    ) -> Result<AgentCommand> {
        let (wlm, app, subjob) = (context.wlm, context.app, context.subjob());
        let addresses = listener.addresses();
        let stage_base = self.config.stage_base.clone();
        let reached_at = addresses.iter().map(SocketAddr::ip).collect();
        let mut command = AgentCommand::new(program, self.choose_sending()?, move |host| {
            let (secret, addresses, base) = (secret.clone(), addresses.clone(), stage_base.clone());
            let ticket = build_ticket(wlm, app, secret, addresses, base, host, subjob);
            let ticket = Ticket { patience: patience_until(deadline), ..ticket };
            ticket.to_frame().map_err(|e| Failure::new(Kind::Invalid, e.to_string()))
        });
        command.addresses = reached_at;
        Ok(command)
    }
}

/// If more hosts are named than have ranks: chooses the hosts to use when some are unreachable.
fn fallback_for_missing(wlm: &'static dyn Wlm, launch: &Launch, plan: &Direct) -> Option<Fallback> {
    let launch = (!plan.spare.is_empty()).then(|| launch.clone())?;
    Some(Arc::new(move |missing, host| {
        plan_without(wlm, &launch, names_of(missing), host).map(|plan| plan.hosts)
    }))
}

fn names_of(missing: &[MissingHost]) -> Vec<String> {
    missing.iter().map(|missing| missing.host.clone()).collect()
}

/// Prepares a launch without a launcher before anything starts: a bad request must not cost a launch.
pub(super) fn prepare_direct(request: &mut LaunchRequest) -> Result<Prepared> {
    if request.hold_at.is_some() {
        return Err(Error::Invalid {
            message: "without a launcher the program itself is held, not one behind it".to_owned(),
            hint: Some("name a launcher, or give the program to hold".to_owned()),
        });
    }
    let cwd = find_cwd(request.cwd.clone())?;
    Ok(Prepared { cwd, input: open_input(std::mem::take(&mut request.stdin))?, check: None })
}

/// Has connected agents start the ranks.
pub(super) async fn begin_direct(
    context: LaunchContext,
    joined: Connected,
    request: LaunchRequest,
    plan: Direct,
    Prepared { cwd, input, check }: Prepared,
    deadline: Instant,
) -> Result<App> {
    let placement = build_placement(&plan)?;
    let check = check.unwrap_or_else(|| begin_check(&request, &plan, &cwd));
    let pmix = match check.wait(deadline).await? {
        Served::Pmi => None,
        Served::Pmix(library) => {
            Some(PmixServer { library: library.map(PathBuf::into_os_string), hosts: plan.hosts.clone() })
        }
    };
    let programs = build_programs(&request, &plan, &cwd);
    let order = StartRanks {
        programs,
        size: placement.rank_count(),
        layout: plan.layout,
        hold: request.hold,
        stdin: input.as_ref().map(|_| Rank(0)),
        output: !matches!(request.output, OutputTo::Null),
        bind: plan.bind,
        joins: request.joins_world,
        pmix,
    };
    let open = placement.iter().map(|place| place.node).collect();
    let begun = context.begin(joined, placement, plan.job, None).await?;
    let core = Arc::clone(begun.core());
    match request.output {
        OutputTo::Null => {}
        OutputTo::Stream => core.keep_rank_output(core.outputs.stream(None, open)),
        OutputTo::Fds { stdout, stderr } => {
            core.write_output(core.outputs.stream(None, open), (stdout, stderr))?;
        }
    }
    let begun = begun.order_ranks(Order::StartRanks(order), "starting ranks", deadline).await?;
    if let Some(input) = input {
        let node = core.state().placement().get(Rank(0)).map_or(NodeId(0), |place| place.node);
        let fed = core.feed.start(input.into(), Rank(0), node, core.overlay.clone());
        fed.map_err(|e| Error::io("cannot start a thread for input", e))?;
    }
    begun.serve().await
}

fn agent_failed(wlm: &dyn Wlm, event: Option<GuardEvent>, program: PathBuf) -> Error {
    match event {
        Some(GuardEvent::StepEnded { command, status, last_words }) => {
            let failure = explain_launcher_end(wlm, &command, &status.to_string(), &last_words);
            let failure = failure.unwrap_or_else(|| Failure::new(Kind::LauncherFailed, last_words));
            Error::Node { hosts: Vec::new(), failure }
        }
        Some(GuardEvent::AgentEnded { node, status: status @ ExitStatus::Signal(_), .. }) => {
            Error::Lost { what: vec![node], reason: format!("its agent was {status} before it reported") }
        }
        Some(GuardEvent::AgentEnded { node, status, last_words }) => {
            let told = (!last_words.is_empty()).then_some(last_words);
            let reason = told.unwrap_or_else(|| format!("ended before it reported: {status}"));
            let failure = Error::HelperUnfit { program, reason }.to_failure();
            Error::Node { hosts: vec![node], failure }
        }
        Some(
            GuardEvent::Gone | GuardEvent::LauncherEnded(_) | GuardEvent::Held(_) | GuardEvent::NotHeld(_),
        )
        | None => Error::Lost {
            what: vec!["the guard".to_owned()],
            reason: "it ended before the agents had reported".to_owned(),
        },
    }
}

/// Begins to check the programs of a plan.
fn begin_check(request: &LaunchRequest, plan: &Direct, common: &Path) -> Check {
    let called =
        plan.parts.iter().map(|part| (part.ranks.len(), part.program.clone(), find_start(part, common)));
    Check::begin(called.collect(), plan.mpi, !request.joins_world)
}

/// The working directory of a part's ranks, for a launch in `common`.
fn find_start(part: &MixedPart, common: &Path) -> PathBuf {
    part.cwd.as_deref().map_or_else(|| common.to_owned(), |own| common.join(own))
}

/// What each rank runs.
fn build_programs(request: &LaunchRequest, plan: &Direct, common: &Path) -> Vec<(RankSet, Program)> {
    let parts = plan.parts.iter().map(|part| {
        let changes = [&request.env[..], &part.env].concat();
        let (env, chosen) = build_program_env(Machine.environment(), &changes);
        let program = Program {
            program: part.program.clone(),
            args: part.args.clone(),
            env,
            chosen,
            cwd: Some(find_start(part, common).into_os_string()),
        };
        (part.ranks.clone(), program)
    });
    parts.collect()
}

/// The placement before any pid is known.
fn build_placement(plan: &Direct) -> Result<Placement> {
    let size = usize::try_from(plan.size()).map_err(|_| Error::invalid("too many ranks"))?;
    let mut node_of = vec![None; size];
    for (node, ranks) in plan.layout.iter().enumerate() {
        for rank in ranks.iter() {
            if let Some(slot) = node_of.get_mut(rank.index()) {
                *slot = plan.hosts.get(node);
            }
        }
    }
    let mut placement = PlacementBuilder::with_capacity(size);
    for host in &plan.hosts {
        placement.push_host(host).map_err(|e| Error::invalid(e.to_string()))?;
    }
    for host in node_of {
        let host = host.ok_or_else(|| Error::invalid("the plan leaves out ranks"))?;
        placement.push(host, None, "").map_err(|e| Error::invalid(e.to_string()))?;
    }
    Ok(placement.build())
}

/// Ranks and pids by node.
pub(super) fn build_adoption(placement: &Placement) -> Result<Vec<Vec<(Rank, Pid)>>> {
    let mut layout = vec![Vec::new(); placement.node_count() as usize];
    for place in placement.iter() {
        let pid = place.pid.ok_or_else(|| Error::invalid(format!("rank {} has no process", place.rank)))?;
        if let Some(node) = layout.get_mut(place.node.index()) {
            node.push((place.rank, pid));
        }
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_becomes_a_placement_with_nodes_in_its_order() {
        let set = |text: &str| text.parse::<RankSet>().unwrap();
        let plan = Direct {
            hosts: vec!["b".into(), "a".into()],
            layout: vec![set("0,2"), set("1,3")],
            ..Direct::default()
        };
        let placement = build_placement(&plan).unwrap();
        let hosts: Vec<_> = placement.iter().map(|place| place.host.to_owned()).collect();
        assert_eq!(hosts, ["b", "a", "b", "a"]);
        assert_eq!(placement.host(NodeId(0)), Some("b"));
        let gap = Direct { layout: vec![set("0"), set("2")], ..plan };
        assert_eq!(build_placement(&gap).unwrap_err().to_string(), "the plan leaves out ranks");
    }
}
