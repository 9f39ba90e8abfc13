//! The way of an app into being: plan, guard, agents, tree, ranks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{AppId, NodeId, Pid, Rank};
use gantry_shared::placement::{Placement, PlacementBuilder};
use gantry_shared::rank_set::{NodeSet, RankSet};
use gantry_shared::rendezvous::handle::Subjob;
use gantry_shared::secret::Secret;
use gantry_shared::status::ExitStatus;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{
    AdoptRanks, Answer, Found, Order, Program, RankMarks, SeekRanks, StartRanks,
};
use gantry_wlm::host::Machine;
use gantry_wlm::{Adoption, AgentCommand, AgentWatch, AppRef, Direct, Host, JobRef, Launch, Plan, Wlm};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::core::{Core, Parts};
use super::prepare::{build_ticket, choose_scratch, find_cwd, find_launcher, open_input, own_pid};
use super::state::{Happening, Identity, State};
use super::stdio::OpenStreams;
use crate::coallocation::Member;
use crate::control::{self, Registry};
use crate::error::{Error, Result};
use crate::frontend::Frontend;
use crate::guard::client::{Guard, GuardEvent};
use crate::helpers;
use crate::overlay::{Listener, Overlay, OverlayEvent};
use crate::rendezvous::Seat;
use crate::request::{LaunchRequest, OutputTo, merge_env, show_args};

/// How often it is looked whether a job runs that is waited for. Every look costs the WLM some work.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);

/// The same while it has not been waited for long: what is short is not to be missed.
pub(super) const ASK_SOON: Duration = Duration::from_millis(300);

/// How long a wait counts as not long.
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(10);

/// Who waits for a job that has no ranks yet hears by this what it waits for; none: nobody waits.
pub(crate) type News<'a> = Option<&'a mut (dyn FnMut(&str) + Send)>;

/// As [`News`], of the job of a launch: its name, and what it waits for.
pub(crate) type JobNews<'a> = Option<&'a mut (dyn FnMut(&str, &str) + Send)>;

/// What a launch without a launcher has before its agents are there.
pub(super) struct Prepared {
    registry: Option<Registry>,
    /// Where ranks start.
    pub(super) cwd: PathBuf,
    /// What rank 0 reads.
    input: Option<std::fs::File>,
}

/// An app's agents, connected, before there are ranks.
pub(super) struct Agents {
    pub(super) app: AppId,
    pub(super) overlay: Overlay,
    pub(super) overlay_events: mpsc::UnboundedReceiver<OverlayEvent>,
    pub(super) guard: Guard,
    pub(super) guard_events: mpsc::UnboundedReceiver<GuardEvent>,
    pub(super) seat: Option<Seat>,
    pub(super) member: Option<Member>,
}

/// Where agents are to be.
pub(super) struct Called {
    /// The nodes' names, by node number.
    pub(super) hosts: Vec<String>,
    /// What the app was adopted as, if it was.
    pub(super) job: Option<JobRef>,
    /// What the plan had to tell.
    pub(super) told: Vec<String>,
    /// The app's place in a multijob.
    pub(super) seat: Option<Seat>,
    /// Its place in a co-allocated job.
    pub(super) member: Option<Member>,
}

/// What an app was made from.
struct Whose {
    /// For people.
    command: Vec<String>,
    /// It was not launched.
    attached: bool,
    /// The WLM's name for it, if it has one.
    job: Option<JobRef>,
    /// As [`LaunchRequest::linger`] has it.
    linger: bool,
}

impl Frontend {
    pub(crate) async fn launch_until(
        &self,
        request: LaunchRequest,
        news: JobNews<'_>,
        deadline: Instant,
    ) -> Result<App> {
        let choice = self.choice_for(&request)?;
        // Before anything else, and in the order in which they are needed: an installation lacks both or none.
        helpers::find_helper(helpers::GUARD, &Machine)?;
        let app = AppId::random().map_err(|e| Error::io("cannot make an id", std::io::Error::other(e)))?;
        let launch = Launch {
            args: request.args.clone(),
            hold: request.hold,
            hold_method: request.hold_method,
            hold_behind: request.hold_at.is_some(),
            linger: request.linger,
            launcher: request.launcher.clone().or_else(find_launcher),
            agent: helpers::find_helper(helpers::AGENT, &Machine)?,
            send_agent_to: self.choose_sent_agent(app),
            scratch: choose_scratch(app),
        };
        let plan = match &request.mixed {
            Some(mixed) => choice.wlm.plan_mixed(mixed, &launch, &Machine)?,
            None => choice.wlm.plan(&launch, &Machine)?,
        };
        match plan {
            Plan::Direct(plan) => self.launch_direct(choice.wlm, request, plan, deadline).await,
            Plan::Queued(plan) => self.launch_queued(choice.wlm, app, request, plan, news, deadline).await,
            Plan::Driven(plan) => self.launch_driven(choice.wlm, request, plan, deadline).await,
            Plan::Brought(plan) => self.launch_brought(choice.wlm, app, request, plan, deadline).await,
            _ => Err(Error::invalid(format!(
                "{} asks for a way of launching that is not built in",
                choice.wlm.name()
            ))),
        }
    }

    async fn launch_direct(
        &self,
        wlm: &'static dyn Wlm,
        request: LaunchRequest,
        plan: Direct,
        deadline: Instant,
    ) -> Result<App> {
        let mut request = request;
        let prepared = self.prepare_direct(&mut request)?;
        let (hosts, told) = (plan.hosts.clone(), plan.told.clone());
        let (seat, member) = (request.take_seat()?, request.member.clone());
        let called = Called { hosts, job: None, told, seat, member };
        build_placement(&plan)?;
        let agents = self.start_agents(wlm, called, deadline).await?;
        self.begin_direct(agents, wlm, request, plan, prepared, deadline).await
    }

    /// What a launch without a launcher needs before anything is started, as a bad one must not cost a launch.
    pub(super) fn prepare_direct(&self, request: &mut LaunchRequest) -> Result<Prepared> {
        if request.hold_at.is_some() {
            return Err(Error::Invalid {
                message: "without a launcher the program itself is held, not one behind it".to_owned(),
                hint: Some("name a launcher, or hold the program that you want".to_owned()),
            });
        }
        let registry = self.open_registry()?;
        let cwd = find_cwd(request.cwd.clone())?;
        Ok(Prepared { registry, cwd, input: open_input(std::mem::take(&mut request.stdin))? })
    }

    /// Starts the ranks by agents that are there.
    pub(super) async fn begin_direct(
        &self,
        agents: Agents,
        wlm: &'static dyn Wlm,
        request: LaunchRequest,
        plan: Direct,
        Prepared { registry, cwd, input }: Prepared,
        deadline: Instant,
    ) -> Result<App> {
        let placement = build_placement(&plan)?;
        let programs = build_programs(&request, &plan, &cwd);
        let size = placement.rank_count();
        let order = StartRanks {
            programs,
            size,
            layout: plan.layout,
            hold: request.hold,
            stdin: input.as_ref().map(|_| Rank(0)),
            output: !matches!(request.output, OutputTo::Null),
        };
        let whose = Whose {
            command: show_args(&request.args),
            attached: false,
            job: plan.job,
            linger: request.linger,
        };
        let core = self.take_over(agents, wlm, whose, placement)?;
        // From here on dropping the app ends everything, whatever fails.
        let app = App::new(Arc::clone(&core));
        remember_socket(&core, registry.as_ref()).await?;
        // Two streams of every rank.
        let open = build_open_streams(core.state().placement());
        match request.output {
            OutputTo::Null => {}
            OutputTo::Stream => core.keep_rank_output(core.outputs.stream(None, open)),
            OutputTo::Fds { stdout, stderr } => {
                let started = core.outputs.write_to(None, open, stdout, stderr);
                started.map_err(|e| Error::io("cannot start a thread for output", e))?;
            }
        }
        if let Err(error) = start_ranks(&core, Order::StartRanks(order), "starting ranks", deadline).await {
            return Err(close_after(app, error).await);
        }
        if let Some(input) = input {
            let node = core.state().placement().get(Rank(0)).map_or(NodeId(0), |place| place.node);
            let fed = core.feed.start(input.into(), Rank(0), node, core.overlay.clone());
            fed.map_err(|e| Error::io("cannot start a thread for input", e))?;
        }
        serve_control(app, registry, request.submitter).await
    }

    pub(crate) async fn attach_until(
        &self,
        wlm: &'static dyn Wlm,
        job: &JobRef,
        wait: News<'_>,
        deadline: Instant,
    ) -> Result<App> {
        let registry = self.open_registry()?;
        let Adoption { job: adopted, placement, marks } = adopt(wlm, job, wait, deadline).await?;
        let named = wlm.names_jobs().then(|| adopted.clone());
        let whose = Whose { command: vec![job.0.clone()], attached: true, job: named, linger: false };
        let hosts = placement.hosts().map(str::to_owned).collect();
        let called = Called { hosts, job: Some(adopted), told: Vec::new(), seat: None, member: None };
        let agents = self.start_agents(wlm, called, deadline).await?;
        let order = match marks {
            Some(marks) => Order::SeekRanks(build_search(&placement, marks)),
            None => Order::AdoptRanks(AdoptRanks {
                size: placement.rank_count(),
                layout: build_adoption(&placement)?,
                found: Found::Running,
            }),
        };
        let core = self.take_over(agents, wlm, whose, placement)?;
        let app = App::new(Arc::clone(&core));
        remember_socket(&core, registry.as_ref()).await?;
        if let Err(error) = start_ranks(&core, order, "attaching to ranks", deadline).await {
            return Err(close_after(app, error).await);
        }
        serve_control(app, registry, None).await
    }

    /// Starts guard and agents and waits until all agents have their place in the tree.
    async fn start_agents(&self, wlm: &'static dyn Wlm, called: Called, deadline: Instant) -> Result<Agents> {
        let guard_program = helpers::find_helper(helpers::GUARD, &Machine)?;
        let guarded = Guard::start(&guard_program, self.config.stage_base.clone()).await?;
        let app = AppId::random().map_err(|e| Error::io("cannot make an id", std::io::Error::other(e)))?;
        self.start_agents_by(guarded, wlm, app, called, deadline).await
    }

    /// As [`Frontend::start_agents`], by a guard that is there.
    pub(super) async fn start_agents_by(
        &self,
        (guard, mut guard_events): (Guard, mpsc::UnboundedReceiver<GuardEvent>),
        wlm: &'static dyn Wlm,
        app: AppId,
        Called { hosts, job, told, seat, member }: Called,
        deadline: Instant,
    ) -> Result<Agents> {
        let agent_program = helpers::find_helper(helpers::AGENT, &Machine)?;
        let secret =
            Secret::random().map_err(|e| Error::io("cannot make a secret", std::io::Error::other(e)))?;
        let listener = self.listen(wlm, app, &secret).await?;
        let (watch, mut ended) = mpsc::unbounded_channel();
        let subjob = seat.as_ref().map(Seat::subjob);
        let agent = self.build_agent_command(agent_program.clone(), wlm, (app, subjob), secret, &listener);
        let agent =
            agent.watched_until(deadline.into_std(), AgentWatch::new(watch)).linked_by(listener.links());
        let reference = AppRef { app, hosts: hosts.clone(), job, told };
        wlm.start_agents(&reference, &agent, &Machine, &guard).await?;
        let assembled = tokio::select! {
            assembled = listener.assemble(&hosts, deadline) => assembled,
            event = guard_events.recv() => Err(agent_failed(wlm, event, agent_program)),
            // None is told of where the WLM does not see agents end.
            Some((host, failure)) = ended.recv() => Err(Error::Node { hosts: vec![host], failure }),
        };
        let (overlay, overlay_events) = assembled?;
        guard.agents_there().await?;
        Ok(Agents { app, overlay, overlay_events, guard, guard_events, seat, member })
    }

    pub(super) async fn listen(
        &self,
        wlm: &'static dyn Wlm,
        app: AppId,
        secret: &Secret,
    ) -> Result<Listener> {
        let (radix, bulk_radix) = (self.config.radix, self.config.bulk_radix);
        Listener::bind(app, secret.clone(), radix, bulk_radix, wlm.reach()).await
    }

    fn build_agent_command(
        &self,
        program: PathBuf,
        wlm: &'static dyn Wlm,
        (app, subjob): (AppId, Option<Subjob>),
        secret: Secret,
        listener: &Listener,
    ) -> AgentCommand {
        let addresses = listener.addresses();
        let stage_base = self.config.stage_base.clone();
        AgentCommand::new(program, self.choose_sent_agent(app), move |host| {
            let (secret, addresses, base) = (secret.clone(), addresses.clone(), stage_base.clone());
            let ticket = build_ticket(wlm, app, secret, addresses, base, host, subjob);
            frame::encode(&ticket).map_err(|e| Failure::new(Kind::Invalid, e.to_string()))
        })
    }

    /// Where on the nodes the WLM is to put the agent, if it is to.
    fn choose_sent_agent(&self, app: AppId) -> Option<PathBuf> {
        self.config.send_agent.then(|| PathBuf::from(format!("/tmp/gantry-agent-{app}")))
    }

    fn take_over(
        &self,
        agents: Agents,
        wlm: &'static dyn Wlm,
        whose: Whose,
        placement: Placement,
    ) -> Result<Arc<Core>> {
        let identity = Identity {
            app: agents.app,
            wlm: wlm.name(),
            attached: whose.attached,
            owner: own_pid()?,
            command: whose.command,
            job: whose.job.map(|job| job.0),
        };
        let parts = Parts {
            app: agents.app,
            wlm,
            overlay: agents.overlay,
            guard: agents.guard,
            state: State::new(identity, placement),
            words: None,
            seat: agents.seat,
            member: agents.member,
            linger: whose.linger,
        };
        Ok(Core::start(parts, agents.overlay_events, agents.guard_events))
    }

    /// Where the app will be served. Asked for before anything is started: a bad place must not cost a launch.
    pub(super) fn open_registry(&self) -> Result<Option<Registry>> {
        self.config.control.then(|| Registry::open(self.config.runtime_dir.as_deref(), &Machine)).transpose()
    }
}

/// Asks the WLM where something is, until it is there if that is to be waited for. The WLM's programs may take their time, so a thread of its own
/// waits for them.
async fn adopt(
    wlm: &'static dyn Wlm,
    job: &JobRef,
    mut wait: News<'_>,
    deadline: Instant,
) -> Result<Adoption> {
    let started = Instant::now();
    // What the WLM has said last: at the deadline that says more than that it was asked once more.
    let mut said = None;
    loop {
        let asked = job.clone();
        let runtime = tokio::runtime::Handle::current();
        let asking = tokio::task::spawn_blocking(move || runtime.block_on(wlm.adopt(&asked, &Machine)));
        let Ok(found) = timeout_at(deadline, asking).await else {
            let after = deadline.saturating_duration_since(started);
            let late = Error::TimedOut { phase: "looking for what to attach to", after, missing: Vec::new() };
            return Err(said.map_or(late, Error::Wlm));
        };
        match found.map_err(|error| Error::Protocol(error.to_string()))? {
            Err(gantry_wlm::Error::NotYet { message, hint }) => {
                let every = if started.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_EVERY };
                match &mut wait {
                    Some(tell) if Instant::now() + every < deadline => tell(&message),
                    _ => return Err(gantry_wlm::Error::NotYet { message, hint }.into()),
                }
                said = Some(gantry_wlm::Error::NotYet { message, hint });
                tokio::time::sleep(every).await;
            }
            found => return Ok(found?),
        }
    }
}

/// Has the guard remove the app's control socket should this process be killed. Before there are ranks: an app may be over at once.
pub(super) async fn remember_socket(core: &Core, registry: Option<&Registry>) -> Result<()> {
    let Some(registry) = registry else { return Ok(()) };
    let path = registry.socket_path(core.app);
    let path = std::path::absolute(&path)
        .map_err(|e| Error::io(format!("cannot tell where {} is", path.display()), e))?;
    core.remember_socket(path).await
}

/// Serves the app's control socket, as long as its owner lives.
pub(super) async fn serve_control(
    mut app: App,
    registry: Option<Registry>,
    submitter: Option<String>,
) -> Result<App> {
    let Some(registry) = registry else { return Ok(app) };
    let handle = app.handle.clone();
    match app.core.make_socket(|| control::serve(handle, &registry, submitter)).await {
        Ok(socket) => {
            app.control = socket;
            Ok(app)
        }
        Err(error) => Err(close_after(app, error).await),
    }
}

/// Tells all agents about the ranks, and the state about the answers.
pub(super) async fn start_ranks(
    core: &Core,
    order: Order,
    phase: &'static str,
    deadline: Instant,
) -> Result<()> {
    // Every node, also one that was lost this moment: an app without all its ranks is not what was asked for.
    let nodes = NodeSet::first_n(core.state().placement().node_count());
    for (_, answer) in core.ask(&nodes, order, phase, deadline).await? {
        match answer {
            Answer::Ranks(reports) => core.happened(Happening::RanksThere(reports)),
            other => return Err(Error::Protocol(format!("an agent answered {other:?} while {phase}"))),
        }
    }
    Ok(())
}

/// Cleans up after a launch that failed, and gives back why it did.
pub(super) async fn close_after(app: App, error: Error) -> Error {
    let slack = super::core::DAEMON_GRACE;
    if let Err(second) = app.close(slack).await {
        tracing::warn!(%second, "cleaning up after a failed launch");
    }
    error
}

fn agent_failed(wlm: &dyn Wlm, event: Option<GuardEvent>, program: PathBuf) -> Error {
    match event {
        Some(GuardEvent::StepEnded { command, status, last_words }) => {
            let failure = wlm.explain(&command, &status.to_string(), &last_words);
            let failure = failure.unwrap_or_else(|| Failure::new(Kind::LauncherFailed, last_words));
            Error::Node { hosts: Vec::new(), failure }
        }
        Some(GuardEvent::AgentEnded { status: status @ ExitStatus::Signal(_), .. }) => Error::Lost {
            what: vec!["an agent".to_owned()],
            reason: format!("it was {status} before it reported"),
        },
        Some(GuardEvent::AgentEnded { status, last_words }) if last_words.is_empty() => {
            Error::HelperUnfit { program, reason: format!("ended before it reported: {status}") }
        }
        Some(GuardEvent::AgentEnded { last_words, .. }) => Error::HelperUnfit { program, reason: last_words },
        Some(
            GuardEvent::Gone | GuardEvent::LauncherEnded(_) | GuardEvent::Held(_) | GuardEvent::NotHeld(_),
        )
        | None => Error::Lost {
            what: vec!["the guard".to_owned()],
            reason: "it ended before the agents had reported".to_owned(),
        },
    }
}

/// What each rank runs.
fn build_programs(request: &LaunchRequest, plan: &Direct, common: &Path) -> Vec<(RankSet, Program)> {
    let env = merge_env(Machine.environment(), &request.env);
    let build = |program: &OsString, args: &[OsString], env: Vec<(OsString, OsString)>, cwd: &Path| Program {
        program: program.clone(),
        args: args.to_vec(),
        env,
        cwd: Some(cwd.as_os_str().to_owned()),
    };
    if plan.mixed.is_empty() {
        let all = plan.layout.iter().fold(RankSet::new(), |all, ranks| all.union(ranks));
        return vec![(all, build(&plan.program, &plan.args, env, common))];
    }
    let parts = plan.mixed.iter().map(|part| {
        let env = merge_env(env.clone(), &part.env);
        let cwd = part.cwd.as_deref().unwrap_or(common);
        (part.ranks.clone(), build(&part.program, &part.args, env, cwd))
    });
    parts.collect()
}

/// The placement before any process is known.
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

/// How many streams of ranks every node has.
fn build_open_streams(placement: &Placement) -> OpenStreams {
    let mut open = OpenStreams::new();
    for place in placement.iter() {
        *open.entry(place.node).or_default() += 2;
    }
    open
}

/// Ranks by node.
fn build_search(placement: &Placement, marks: RankMarks) -> SeekRanks {
    let layout = (0..placement.node_count()).map(|node| placement.ranks_on(NodeId(node))).collect();
    SeekRanks { size: placement.rank_count(), layout, marks }
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
            told: Vec::new(),
            job: None,
            program: "x".into(),
            args: Vec::new(),
            mixed: Vec::new(),
        };
        let placement = build_placement(&plan).unwrap();
        let hosts: Vec<_> = placement.iter().map(|place| place.host.to_owned()).collect();
        assert_eq!(hosts, ["b", "a", "b", "a"]);
        assert_eq!(placement.host(NodeId(0)), Some("b"));
        let gap = Direct { layout: vec![set("0"), set("2")], ..plan };
        assert_eq!(build_placement(&gap).unwrap_err().to_string(), "the plan leaves out ranks");
    }
}
