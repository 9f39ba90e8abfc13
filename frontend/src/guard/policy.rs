//! What the guard decides. Pure: the process around it reports what happens and carries out what is decided.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use gantry_shared::id::Pid;
use gantry_shared::status::ExitStatus;

use super::protocol::{FromGuard, ProcessId, StartAgent, ToGuard};

/// How long agents have to end by themselves once the tool is gone: a daemon's ten seconds between SIGTERM and SIGKILL, and as much again.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Something that happened to the guard.
#[derive(Debug)]
pub enum Event {
    /// The tool said something.
    Said(ToGuard),
    /// The tool is gone.
    ToolGone,
    /// An agent that was to be started runs.
    Started(ProcessId, Pid),
    /// A child of the guard's ended; of an agent, with the last that it wrote on standard error.
    ChildEnded(Pid, ExitStatus, String),
    /// Time has passed.
    Tick,
}

/// What is to be done about it, in this order.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Response {
    /// Start an agent; its fate comes back as an event or is reported to the tool at once.
    Start(StartAgent),
    /// Tell the tool, if it is still there.
    Tell(FromGuard),
    /// SIGTERM to each: an agent that has not reached the tool yet would go on trying.
    AskToGo(Vec<Pid>),
    /// SIGKILL to the process group of each.
    Kill(Vec<Pid>),
    /// SIGKILL to every child that is no agent: what a dead agent has left behind.
    KillOrphans,
    /// Remove a socket that the tool has left.
    RemoveSocket(OsString),
    /// Have dead agents' storage swept: by this executable, at this place.
    Sweep(OsString, Option<OsString>),
    /// Nothing is left to guard.
    Leave,
}

#[derive(Debug)]
struct Agent {
    id: ProcessId,
    program: OsString,
    stage_base: Option<OsString>,
}

/// Whether the tool is there, and if not, whether that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    Detached,
    /// The tool is gone and agents have until then.
    Ending(Instant),
    /// They did not use their time.
    Killing,
}

/// The guard's state.
#[derive(Debug)]
pub struct Policy {
    phase: Phase,
    tool_is_there: bool,
    starting: BTreeMap<ProcessId, StartAgent>,
    agents: BTreeMap<Pid, Agent>,
    sockets: Vec<OsString>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            phase: Phase::Serving,
            tool_is_there: true,
            starting: BTreeMap::new(),
            agents: BTreeMap::new(),
            sockets: Vec::new(),
        }
    }
}

impl Policy {
    /// The one place that decides.
    pub fn handle(&mut self, event: Event, now: Instant) -> Vec<Response> {
        let mut todo = Vec::new();
        match event {
            Event::Said(ToGuard::StartAgent(agent)) => {
                self.starting.insert(agent.id, agent.clone());
                todo.push(Response::Start(agent));
            }
            Event::Said(ToGuard::RemoveSocket(socket)) => self.sockets.push(socket),
            Event::Said(ToGuard::Detach) => self.phase = Phase::Detached,
            Event::ToolGone => {
                self.tool_is_there = false;
                todo.extend(self.sockets.drain(..).map(Response::RemoveSocket));
                if self.phase == Phase::Serving {
                    self.phase = Phase::Ending(now + PATIENCE);
                    todo.push(Response::AskToGo(self.agents.keys().copied().collect()));
                }
            }
            Event::Started(id, pid) => {
                if let Some(agent) = self.starting.remove(&id) {
                    self.agents
                        .insert(pid, Agent { id, program: agent.program, stage_base: agent.stage_base });
                    todo.push(Response::Tell(FromGuard::Started { id, pid }));
                }
            }
            Event::ChildEnded(pid, status, last_words) => {
                self.child_ended(pid, status, last_words, &mut todo)
            }
            Event::Tick => {}
        }
        if let Phase::Ending(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Killing;
            todo.push(Response::Kill(self.agents.keys().copied().collect()));
        }
        if !self.tool_is_there && self.agents.is_empty() {
            todo.push(Response::KillOrphans);
            todo.push(Response::Leave);
        }
        todo
    }

    /// When [`Event::Tick`] is due, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ending(until) => Some(until),
            Phase::Serving | Phase::Detached | Phase::Killing => None,
        }
    }

    /// The agent of that pid, if it is one.
    pub fn is_agent(&self, pid: Pid) -> bool {
        self.agents.contains_key(&pid)
    }

    fn child_ended(&mut self, pid: Pid, status: ExitStatus, last_words: String, todo: &mut Vec<Response>) {
        let Some(agent) = self.agents.remove(&pid) else { return };
        if status != ExitStatus::Code(0) {
            todo.push(Response::KillOrphans);
            todo.push(Response::Sweep(agent.program, agent.stage_base));
        }
        todo.push(Response::Tell(FromGuard::Exited { id: agent.id, status, last_words }));
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

    /// A guard that serves one agent of pid 100.
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
    fn a_killed_tool_gives_agents_time_and_then_kills_them() {
        let now = Instant::now();
        let mut policy = serving(now);
        assert_eq!(policy.handle(Event::ToolGone, now), [Response::AskToGo(vec![pid(100)])]);
        assert_eq!(policy.deadline(), Some(now + PATIENCE));
        assert_eq!(policy.handle(Event::Tick, now + PATIENCE / 2), []);
        assert_eq!(policy.handle(Event::Tick, now + PATIENCE), [Response::Kill(vec![pid(100)])]);
        let killed = ExitStatus::from_wait_status(libc::SIGKILL);
        let end = policy.handle(Event::ChildEnded(pid(100), killed, String::new()), now + PATIENCE);
        assert_eq!(end[0], Response::KillOrphans);
        assert_eq!(end[1], Response::Sweep("agent".into(), None));
        assert_eq!(end.last(), Some(&Response::Leave));
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
        assert_eq!(end, [Response::KillOrphans, Response::Sweep("agent".into(), None), exited(killed)]);
    }

    #[test]
    fn a_killed_tools_socket_is_removed() {
        let now = Instant::now();
        let mut policy = Policy::default();
        assert_eq!(policy.handle(Event::Said(ToGuard::RemoveSocket("s".into())), now), []);
        assert_eq!(policy.handle(Event::ToolGone, now)[0], Response::RemoveSocket("s".into()));
    }

    #[test]
    fn without_agents_the_guard_leaves_with_the_tool() {
        let now = Instant::now();
        let mut policy = Policy::default();
        let end = policy.handle(Event::ToolGone, now);
        assert_eq!(end, [Response::AskToGo(Vec::new()), Response::KillOrphans, Response::Leave]);
    }
}
