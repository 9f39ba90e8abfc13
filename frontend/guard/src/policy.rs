//! The guard's decisions. Pure: the surrounding process reports events and carries out the responses.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::{Duration, Instant};

use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;

use gantry_guard::protocol::{FromGuard, OwnedJob, ProcessId, StartAgent, StartLauncher, StartStep, ToGuard};

/// How long agents may take to end after the tool is gone: a daemon's ten seconds between SIGTERM and SIGKILL, and
/// ten more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// After this time a launcher without ranks gets SIGTERM again. A launcher may lose a signal while it submits its
/// job, and then wait for the job's nodes.
const ASK_AGAIN: Duration = Duration::from_millis(1500);

/// How long the remains of a killed launcher may take to end its ranks.
const AFTER_LAUNCHER: Duration = Duration::from_secs(5);

/// An event of the guard.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message of the tool.
    Said(ToGuard),
    /// The tool is gone.
    ToolGone,
    /// A process has started.
    Started(ProcessId, Pid),
    /// It could not start.
    NotStarted(ProcessId, Failure),
    /// A child of the guard ended. For an agent: with the last lines of its standard error.
    ChildEnded(Pid, ExitStatus, String),
    /// The last event of a turn, or time has passed. Other children are counted only if [`Policy::checks_orphans`].
    Tick {
        /// No child is left.
        alone: bool,
    },
}

/// The responses to an event, in this order.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Response {
    /// Start an agent; an event reports the result.
    Start(StartAgent),
    /// Start a command that starts agents elsewhere; an event reports the result.
    StartStep(StartStep),
    /// Start a launcher, with the descriptors that came with the order; an event reports the result.
    StartLauncher(StartLauncher),
    /// Let a driven launcher continue.
    LetLauncherGo,
    /// Report this launcher's job to the tool. None: there is no launcher.
    TellJob(Option<Pid>),
    /// Report this launcher's proctable to the tool. None: there is no launcher.
    ReadTable {
        /// Its pid, or that of the program that starts it.
        launcher: Option<Pid>,
        /// Another program starts it.
        wrapped: bool,
    },
    /// Cancel a job, and do not wait for that.
    Cancel(OwnedJob),
    /// Drain the output of the launcher and its ranks, since the tool does not read it any more.
    Drain,
    /// Send a message to the tool, if it still exists.
    Tell(FromGuard),
    /// SIGTERM to each: an agent that has no link to the tool yet would keep trying.
    AskToGo(Vec<Pid>),
    /// SIGKILL to the process group of each.
    Kill(Vec<Pid>),
    /// SIGKILL to each of these launchers alone. A launcher may have a helper process that ends the ranks on all nodes
    /// once the launcher is dead.
    KillLaunchers(Vec<Pid>),
    /// SIGKILL to every child that is not an agent: the remains of a dead agent.
    KillOrphans,
    /// Remove a socket of the tool.
    RemoveSocket(OsString),
    /// Sweep the storage of dead agents, with this executable, below this directory.
    Sweep(OsString, Option<OsString>),
    /// Exit: nothing is left to guard.
    Leave,
}

/// A child of the guard.
#[derive(Debug)]
struct GuardedChild {
    id: ProcessId,
    kind: ChildKind,
}

/// Where agents keep their files: the executable that sweeps them, and the directory.
type Storage = (OsString, Option<OsString>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChildKind {
    /// Its storage is swept if it was killed.
    Agent(Storage),
    /// Once its ranks are there it never gets SIGTERM: it would pass the signal on, and a held rank would run for a
    /// moment. Its agents end the ranks, and then it ends. Before that it may still wait for nodes, and must cancel the
    /// wait itself.
    Launcher,
    /// A command that has started agents elsewhere. Once the agents are there it never gets SIGTERM: it would kill them
    /// before their clean-up. The agents end by themselves, and then it ends.
    Step,
}

/// Whether the tool exists, and the phase of the clean-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Detached,
    /// The tool is gone, and agents have until this time.
    Ending(Instant),
    /// They did not end in time. A killed launcher's helpers have until this time to end its ranks.
    Killing(Instant),
    /// All time is used up.
    Over,
}

/// The guard's state.
#[derive(Debug)]
pub(crate) struct Policy {
    phase: Phase,
    /// When launchers without ranks get SIGTERM again, in the phase [`Phase::Ending`].
    ask_again: Option<Instant>,
    tool_is_there: bool,
    starting: BTreeMap<ProcessId, ChildKind>,
    children: BTreeMap<Pid, GuardedChild>,
    /// What killed agents have left. Many agents may die at once, and a sweep looks at all processes.
    to_sweep: BTreeSet<Storage>,
    sockets: Vec<OsString>,
    /// The job to cancel when the tool is gone.
    at_loss: Option<OwnedJob>,
    /// The launcher's ranks are there.
    ranks_there: bool,
    /// Agents of a step are there.
    agents_there: bool,
    /// A launcher was started. Its agents on this machine may have become children of the guard, and must get time to
    /// clean up.
    launched: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            phase: Phase::Serving,
            ask_again: None,
            tool_is_there: true,
            starting: BTreeMap::new(),
            children: BTreeMap::new(),
            to_sweep: BTreeSet::new(),
            sockets: Vec::new(),
            at_loss: None,
            ranks_there: false,
            agents_there: false,
            launched: false,
        }
    }
}

impl Policy {
    fn launcher(&self) -> Option<Pid> {
        self.children.iter().find(|(_, child)| child.kind == ChildKind::Launcher).map(|(pid, _)| *pid)
    }

    /// Decides about each event.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Response> {
        let mut todo = Vec::new();
        let alone = matches!(event, Event::Tick { alone: true });
        match event {
            Event::Said(ToGuard::StartAgent(agent)) => {
                let kind = ChildKind::Agent((agent.program.clone(), agent.stage_base.clone()));
                self.starting.insert(agent.id, kind);
                todo.push(Response::Start(agent));
            }
            Event::Said(ToGuard::StartLauncher(launcher)) => {
                self.launched = true;
                self.starting.insert(launcher.id, ChildKind::Launcher);
                todo.push(Response::StartLauncher(launcher));
            }
            Event::Said(ToGuard::StartStep(step)) => {
                self.starting.insert(step.id, ChildKind::Step);
                todo.push(Response::StartStep(step));
            }
            Event::Said(ToGuard::TellJob) => todo.push(Response::TellJob(self.launcher())),
            Event::Said(ToGuard::ReadTable { wrapped }) => {
                todo.push(Response::ReadTable { launcher: self.launcher(), wrapped });
            }
            Event::Said(ToGuard::LetLauncherGo) => todo.push(Response::LetLauncherGo),
            Event::Said(ToGuard::AtLoss(job)) => self.at_loss = job,
            Event::Said(ToGuard::AgentsThere) => self.agents_there = true,
            Event::Said(ToGuard::RanksThere) => self.ranks_there = true,
            Event::Said(ToGuard::RemoveSocket(socket)) => self.sockets.push(socket),
            Event::Said(ToGuard::Detach) => self.phase = Phase::Detached,
            Event::ToolGone => {
                self.tool_is_there = false;
                todo.extend(self.sockets.drain(..).map(Response::RemoveSocket));
                if self.phase == Phase::Serving {
                    self.phase = Phase::Ending(now + PATIENCE);
                    todo.push(Response::AskToGo(self.pids_to_ask()));
                    todo.extend(self.at_loss.take().map(Response::Cancel));
                    self.ask_again = (self.launched && !self.ranks_there).then(|| now + ASK_AGAIN);
                } else if self.launched {
                    todo.push(Response::Drain);
                }
            }
            Event::Started(id, pid) => {
                if let Some(kind) = self.starting.remove(&id) {
                    self.children.insert(pid, GuardedChild { id, kind });
                    todo.push(Response::Tell(FromGuard::Started { id, pid }));
                }
            }
            Event::NotStarted(id, failure) => {
                self.starting.remove(&id);
                todo.push(Response::Tell(FromGuard::NotStarted { id, failure }));
            }
            Event::ChildEnded(pid, status, last_words) => {
                self.child_ended(pid, status, last_words, &mut todo)
            }
            Event::Tick { .. } if self.to_sweep.is_empty() => {}
            Event::Tick { .. } => {
                todo.push(Response::KillOrphans);
                todo.extend(self.sweeps());
            }
        }
        match self.phase {
            Phase::Ending(until) if now >= until => {
                self.phase = Phase::Killing(now + AFTER_LAUNCHER);
                todo.extend(self.kill_children());
            }
            Phase::Ending(_) if self.ask_again.is_some_and(|at| now >= at) => {
                self.ask_again = Some(now + ASK_AGAIN);
                todo.extend(self.launcher().map(|launcher| Response::AskToGo(vec![launcher])));
            }
            Phase::Killing(until) if now >= until => {
                self.phase = Phase::Over;
                todo.push(Response::Kill(self.children.keys().copied().collect()));
            }
            _ => {}
        }
        if !self.tool_is_there && self.children.is_empty() {
            self.leave(alone, now, &mut todo);
        }
        todo
    }

    /// Exits when all own children have ended and the tool cannot start more.
    fn leave(&mut self, alone: bool, now: Instant, todo: &mut Vec<Response>) {
        if self.launched && !alone && self.phase != Phase::Over {
            if self.phase == Phase::Detached {
                self.phase = Phase::Ending(now + PATIENCE);
            }
            return;
        }
        todo.push(Response::KillOrphans);
        todo.extend(self.sweeps());
        todo.push(Response::Leave);
    }

    /// One sweep for all agents that kept their files at the same place.
    fn sweeps(&mut self) -> impl Iterator<Item = Response> {
        let storages = std::mem::take(&mut self.to_sweep).into_iter();
        storages.map(|(program, base)| Response::Sweep(program, base))
    }

    /// Whether to count children that the guard did not start. A launcher's agents on this machine must end by
    /// themselves.
    pub(crate) fn checks_orphans(&self) -> bool {
        self.launched && !self.tool_is_there && self.children.is_empty()
    }

    fn kill_children(&self) -> [Response; 2] {
        let (launchers, agents): (Vec<_>, Vec<_>) =
            self.children.iter().partition(|(_, child)| child.kind == ChildKind::Launcher);
        let pids = |children: Vec<(&Pid, &GuardedChild)>| children.into_iter().map(|(pid, _)| *pid).collect();
        [Response::Kill(pids(agents)), Response::KillLaunchers(pids(launchers))]
    }

    fn pids_to_ask(&self) -> Vec<Pid> {
        let is_asked = |child: &GuardedChild| match child.kind {
            ChildKind::Agent(_) => true,
            ChildKind::Launcher => !self.ranks_there,
            ChildKind::Step => !self.agents_there,
        };
        self.children.iter().filter(|(_, child)| is_asked(child)).map(|(pid, _)| *pid).collect()
    }

    /// When the next [`Event::Tick`] is due, if at all.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ending(until) => Some(self.ask_again.map_or(until, |at| at.min(until))),
            Phase::Killing(until) => Some(until),
            Phase::Serving | Phase::Detached | Phase::Over => None,
        }
    }

    fn child_ended(&mut self, pid: Pid, status: ExitStatus, last_words: String, todo: &mut Vec<Response>) {
        let Some(GuardedChild { id, kind }) = self.children.remove(&pid) else { return };
        if let ChildKind::Agent(storage) = kind
            && status != ExitStatus::Code(0)
        {
            self.to_sweep.insert(storage);
        }
        todo.push(Response::Tell(FromGuard::Exited { id, status, last_words }));
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::message::Blob;

    use super::*;

    fn agent(id: u32) -> StartAgent {
        StartAgent { id: ProcessId(id), program: "agent".into(), ticket: Blob::default(), stage_base: None }
    }

    fn pid(n: i32) -> Pid {
        Pid::new(n).unwrap()
    }

    fn sweep(base: Option<&str>) -> Response {
        Response::Sweep("agent".into(), base.map(Into::into))
    }

    /// A guard with one agent of pid 100.
    fn serving(now: Instant) -> Policy {
        let mut policy = Policy::default();
        let started = policy.handle(Event::Said(ToGuard::StartAgent(agent(1))), now);
        assert_eq!(started, [Response::Start(agent(1))]);
        let told = policy.handle(Event::Started(ProcessId(1), pid(100)), now);
        assert_eq!(told, [Response::Tell(FromGuard::Started { id: ProcessId(1), pid: pid(100) })]);
        policy
    }

    fn exited(status: ExitStatus) -> Response {
        Response::Tell(FromGuard::Exited { id: ProcessId(1), status, last_words: String::new() })
    }

    #[test]
    fn a_step_gets_sigterm_only_before_its_agents_are_there() {
        let now = Instant::now();
        let step = StartStep { id: ProcessId(1), argv: Vec::new(), env: Vec::new(), ticket: Blob::default() };
        for there in [false, true] {
            let mut policy = Policy::default();
            let started = policy.handle(Event::Said(ToGuard::StartStep(step.clone())), now);
            assert_eq!(started, [Response::StartStep(step.clone())]);
            drop(policy.handle(Event::Started(ProcessId(1), pid(100)), now));
            if there {
                assert_eq!(policy.handle(Event::Said(ToGuard::AgentsThere), now), []);
            }
            let asked = if there { vec![] } else { vec![pid(100)] };
            assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(asked)]);
            let ended = Event::ChildEnded(pid(100), ExitStatus::Code(0), String::new());
            let left = policy.handle(ended, now);
            assert_eq!(left[1..], [Response::KillOrphans, Response::Leave]);
        }
    }

    #[test]
    fn a_killed_tool_gives_agents_time_and_then_kills_them() {
        let now = Instant::now();
        let mut policy = serving(now);
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(vec![pid(100)])]);
        assert_eq!(policy.deadline(), Some(now + PATIENCE));
        assert_eq!(policy.handle(Event::Tick { alone: false }, now + PATIENCE / 2), []);
        assert_eq!(
            policy.handle(Event::Tick { alone: false }, now + PATIENCE),
            [Response::Kill(vec![pid(100)]), Response::KillLaunchers(Vec::new())]
        );
        let killed = ExitStatus::from_wait_status(libc::SIGKILL);
        let end = policy.handle(Event::ChildEnded(pid(100), killed, String::new()), now + PATIENCE);
        assert_eq!(end[1..], [Response::KillOrphans, sweep(None), Response::Leave]);
    }

    #[test]
    fn agents_that_end_by_themselves_let_the_guard_go() {
        let now = Instant::now();
        let mut policy = serving(now);
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(vec![pid(100)])]);
        let end = policy.handle(Event::ChildEnded(pid(100), ExitStatus::Code(0), String::new()), now);
        assert_eq!(end, [exited(ExitStatus::Code(0)), Response::KillOrphans, Response::Leave]);
    }

    #[test]
    fn after_detach_the_tools_end_means_nothing() {
        let now = Instant::now();
        let mut policy = serving(now);
        assert_eq!(policy.handle(Event::Said(ToGuard::Detach), now), []);
        assert_eq!(policy.handle(Event::ToolGone, now), []);
        assert_eq!(policy.deadline(), None);
        let end = policy.handle(Event::ChildEnded(pid(100), ExitStatus::Code(0), String::new()), now);
        assert_eq!(end.last(), Some(&Response::Leave));
    }

    #[test]
    fn a_killed_agent_is_swept_after_while_the_tool_lives() {
        let now = Instant::now();
        let mut policy = serving(now);
        let killed = ExitStatus::from_wait_status(libc::SIGKILL);
        let end = policy.handle(Event::ChildEnded(pid(100), killed, String::new()), now);
        assert_eq!(end, [exited(killed)]);
        let turn_ends = |policy: &mut Policy| policy.handle(Event::Tick { alone: false }, now);
        assert_eq!(turn_ends(&mut policy), [Response::KillOrphans, sweep(None)]);
        assert_eq!(turn_ends(&mut policy), []);
    }

    #[test]
    fn agents_that_die_together_cost_one_sweep_for_each_directory() {
        let now = Instant::now();
        for tool_lives in [true, false] {
            let mut policy = Policy::default();
            for n in 1..=20 {
                let order = StartAgent { stage_base: (n > 10).then(|| "base".into()), ..agent(n) };
                drop(policy.handle(Event::Said(ToGuard::StartAgent(order)), now));
                drop(policy.handle(Event::Started(ProcessId(n), pid(n.cast_signed())), now));
            }
            if !tool_lives {
                drop(policy.handle(Event::ToolGone, now));
            }
            let asked = ExitStatus::from_wait_status(libc::SIGTERM);
            let ends = (1..=20).map(|n| Event::ChildEnded(pid(n), asked, String::new()));
            let turn: Vec<_> = ends.chain([Event::Tick { alone: false }]).collect();
            let todo = turn.into_iter().flat_map(|event| policy.handle(event, now));
            let swept: Vec<_> = todo.filter(|it| matches!(it, Response::Sweep(..))).collect();
            assert_eq!(swept, [sweep(None), sweep(Some("base"))], "{tool_lives}");
        }
    }

    #[test]
    fn a_killed_tools_socket_is_removed() {
        let now = Instant::now();
        let mut policy = Policy::default();
        assert_eq!(policy.handle(Event::Said(ToGuard::RemoveSocket("s".into())), now), []);
        assert_eq!(policy.handle(Event::ToolGone, now)[0], Response::RemoveSocket("s".into()));
    }

    #[test]
    fn a_job_is_cancelled_when_the_tool_is_gone_unless_it_was_let_go() {
        let now = Instant::now();
        let job = OwnedJob { wlm: "any".to_owned(), job: gantry_wlm::JobRef("7".to_owned()) };
        for kept in [true, false] {
            let mut policy = Policy::default();
            drop(policy.handle(Event::Said(ToGuard::AtLoss(Some(job.clone()))), now));
            if !kept {
                drop(policy.handle(Event::Said(ToGuard::AtLoss(None)), now));
            }
            let end = policy.handle(Event::ToolGone, now);
            assert_eq!(end.contains(&Response::Cancel(job.clone())), kept, "{end:?}");
        }
    }

    #[test]
    fn without_agents_the_guard_leaves_with_the_tool() {
        let now = Instant::now();
        let mut policy = Policy::default();
        let end = policy.handle(Event::ToolGone, now);
        assert_eq!(end, [Response::AskToGo(Vec::new()), Response::KillOrphans, Response::Leave]);
    }

    fn launcher(id: u32) -> StartLauncher {
        let id = ProcessId(id);
        StartLauncher { id, argv: vec!["run".into()], env: Vec::new(), cwd: "/".into(), driven: None }
    }

    /// A guard with one launcher of pid 200.
    fn launching(now: Instant) -> Policy {
        let mut policy = Policy::default();
        let started = policy.handle(Event::Said(ToGuard::StartLauncher(launcher(1))), now);
        assert_eq!(started, [Response::StartLauncher(launcher(1))]);
        drop(policy.handle(Event::Started(ProcessId(1), pid(200)), now));
        policy
    }

    #[test]
    fn a_launcher_gets_no_sigterm_and_its_agents_have_time_after_it() {
        let now = Instant::now();
        let mut policy = launching(now);
        drop(policy.handle(Event::Said(ToGuard::RanksThere), now));
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(Vec::new())]);
        assert!(!policy.checks_orphans());
        let end = policy.handle(Event::ChildEnded(pid(200), ExitStatus::Code(0), String::new()), now);
        assert_eq!(end, [exited(ExitStatus::Code(0))]);
        assert!(policy.checks_orphans());
        assert_eq!(policy.handle(Event::Tick { alone: false }, now), []);
        let leave = [Response::KillOrphans, Response::Leave];
        assert_eq!(policy.handle(Event::Tick { alone: true }, now), leave);
    }

    #[test]
    fn the_launcher_is_asked_for_its_job_while_it_lives() {
        let now = Instant::now();
        let mut policy = launching(now);
        let asked = policy.handle(Event::Said(ToGuard::TellJob), now);
        assert_eq!(asked, [Response::TellJob(Some(pid(200)))]);
        drop(policy.handle(Event::ChildEnded(pid(200), ExitStatus::Code(0), String::new()), now));
        assert_eq!(policy.handle(Event::Said(ToGuard::TellJob), now), [Response::TellJob(None)]);
    }

    #[test]
    fn the_launchers_table_is_read_while_it_lives() {
        let now = Instant::now();
        let mut policy = launching(now);
        let read = |launcher| [Response::ReadTable { launcher, wrapped: true }];
        let ask = |policy: &mut Policy| policy.handle(Event::Said(ToGuard::ReadTable { wrapped: true }), now);
        assert_eq!(ask(&mut policy), read(Some(pid(200))));
        drop(policy.handle(Event::ChildEnded(pid(200), ExitStatus::Code(0), String::new()), now));
        assert_eq!(ask(&mut policy), read(None));
    }

    #[test]
    fn a_launcher_without_ranks_is_asked_to_go() {
        let now = Instant::now();
        let mut policy = launching(now);
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(vec![pid(200)])]);
    }

    #[test]
    fn a_launcher_without_ranks_that_stays_is_asked_again() {
        let now = Instant::now();
        let mut policy = launching(now);
        drop(policy.handle(Event::ToolGone, now));
        let (mut at, asked) = (now, [Response::AskToGo(vec![pid(200)])]);
        for _ in 0..3 {
            assert_eq!(policy.handle(Event::Tick { alone: false }, at), []);
            at = policy.deadline().unwrap();
            assert_eq!(policy.handle(Event::Tick { alone: false }, at), asked);
        }
        let mut policy = launching(now);
        drop(policy.handle(Event::Said(ToGuard::RanksThere), now));
        drop(policy.handle(Event::ToolGone, now));
        assert_eq!(policy.deadline(), Some(now + PATIENCE), "its agents end the ranks");
    }

    #[test]
    fn a_launcher_that_does_not_end_is_killed_with_its_agents() {
        let now = Instant::now();
        let mut policy = launching(now);
        drop(policy.handle(Event::ToolGone, now));
        let late = policy.handle(Event::Tick { alone: false }, now + PATIENCE);
        assert_eq!(late, [Response::Kill(Vec::new()), Response::KillLaunchers(vec![pid(200)])]);
        let killed = ExitStatus::from_wait_status(libc::SIGKILL);
        let end = policy.handle(Event::ChildEnded(pid(200), killed, String::new()), now + PATIENCE);
        assert_eq!(end, [exited(killed)], "its helper process may end its ranks");
        let leave = [Response::Kill(Vec::new()), Response::KillOrphans, Response::Leave];
        let over = policy.handle(Event::Tick { alone: false }, now + PATIENCE + AFTER_LAUNCHER);
        assert_eq!(over, leave);
    }

    #[test]
    fn a_launcher_that_was_let_go_is_read_on() {
        let now = Instant::now();
        let mut policy = launching(now);
        drop(policy.handle(Event::Said(ToGuard::Detach), now));
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::Drain]);
        drop(policy.handle(Event::ChildEnded(pid(200), ExitStatus::Code(0), String::new()), now));
        assert_eq!(policy.deadline(), Some(now + PATIENCE));
        assert_eq!(policy.handle(Event::Tick { alone: true }, now), [Response::KillOrphans, Response::Leave]);
    }

    #[test]
    fn a_failed_start_is_reported_and_forgotten() {
        let now = Instant::now();
        let mut policy = Policy::default();
        drop(policy.handle(Event::Said(ToGuard::StartLauncher(launcher(1))), now));
        let failure = Failure::new(gantry_types::error::Kind::NotFound, "no such file");
        let told = policy.handle(Event::NotStarted(ProcessId(1), failure.clone()), now);
        assert_eq!(told, [Response::Tell(FromGuard::NotStarted { id: ProcessId(1), failure })]);
        assert_eq!(policy.handle(Event::ToolGone, now)[0], Response::AskToGo(Vec::new()));
    }
}
