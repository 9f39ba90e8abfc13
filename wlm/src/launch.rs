//! What a tool asks to be launched, and how a WLM says it will be done.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use async_trait::async_trait;
use gantry_shared::wire::hold::{AfterRank, Own};
use gantry_types::error::Failure;
use gantry_types::launch::{Bind, HoldMethod, HostsPolicy, Mixed, MixedPart, SendAgent};
use gantry_types::rank_set::RankSet;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::job::JobRef;
use crate::mpir::AtBreakpoint;
use crate::policy::LeftOut;

/// What a tool asks to be launched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// Exactly what one would give the launcher: its options, the program, the program's arguments.
    pub args: Vec<OsString>,
    /// Hold every rank before its first instruction.
    pub hold: bool,
    /// How they are held.
    pub hold_method: HoldMethod,
    /// What is held is not what the launcher starts but something behind it, which an agent of ours finds by tracing it.
    pub hold_behind: bool,
    /// Agents are to outlive the ranks.
    pub linger: bool,
    /// Hosts that are named and cannot be had: others that are named take their place, and where there are none it is done with fewer.
    pub without: Vec<String>,
    /// The launcher to use, where the user names one: a name to look up in PATH, or a path.
    pub launcher: Option<OsString>,
    /// Path of gantry's agent on this machine: it stands in programs' places where a launcher brings it.
    pub agent: PathBuf,
    /// Whether the agent is sent to the nodes.
    pub send_agent: SendAgent,
    /// A directory in which the launch may have files of its own: [`Brought::files`].
    pub scratch: PathBuf,
}

/// How a launch will be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// There is no launcher: agents start the ranks, and hold them if asked.
    Direct(Direct),
    /// A launcher starts the ranks, and brings the agents with them.
    Brought(Brought),
    /// The WLM has yet to give the nodes: a job is submitted in which agents are started, and these start the ranks. The WLM is a
    /// [`Queue`](crate::Queue).
    Queued(Queued),
    /// A launcher starts and stops the ranks, and says where they are: [`HoldMethod::Mpir`]. Agents come by [`Wlm::start_agents`](crate::Wlm).
    Driven(Driven),
}

/// A launch by a launcher that finds our agent in every program's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The launcher's executable and its arguments.
    pub argv: Vec<OsString>,
    /// Variables that the launcher needs beside those of its user. The agents' ticket is not among them.
    pub env: Vec<(OsString, OsString)>,
    /// Files to be written before the launcher starts, readable for this user only, and removed when the ranks are there.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// What ranks have of their own, of which the launcher knows nothing.
    pub own: Vec<Own>,
    /// The launcher runs the agent, without arguments, after each rank on its node. This is what the agent does then.
    pub after_rank: Option<AfterRank>,
}

/// A launch without a launcher on nodes that are given to a job of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// What the WLM wants to be told again when the job is submitted and when it has its nodes: the launch's arguments.
    pub args: Vec<OsString>,
}

/// A launch by a launcher that is run up to where it has stopped its ranks, and stands there, or goes on without having let them go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driven {
    /// The launcher's executable and its arguments, which are the user's.
    pub argv: Vec<OsString>,
    /// What is done with it once its ranks are stopped.
    pub at_breakpoint: AtBreakpoint,
}

/// A launch without a launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Direct {
    /// Names of the nodes, by node number.
    pub hosts: Vec<String>,
    /// Which ranks each node gets.
    pub layout: Vec<RankSet>,
    /// Hosts that are named besides, and get no ranks unless others cannot be had: [`Launch::without`].
    pub spare: Vec<String>,
    /// Opaque data of the WLM, returned to [`Wlm::start_agents`](crate::Wlm::start_agents).
    pub wlm_data: Vec<String>,
    /// The job that the nodes belong to, where the WLM has jobs.
    pub job: Option<JobRef>,
    /// What the ranks run. Every rank is in one part.
    pub parts: Vec<MixedPart>,
    /// To what each rank is bound.
    pub bind: Bind,
}

impl Direct {
    /// A launch of these ranks on these nodes.
    pub(crate) fn of_mixed(
        mixed: &Mixed,
        hosts: Vec<String>,
        layout: Vec<RankSet>,
        wlm_data: Vec<String>,
    ) -> Self {
        Self { hosts, layout, wlm_data, parts: mixed.parts.clone(), ..Self::default() }
    }

    /// Number of ranks of all nodes.
    pub fn size(&self) -> u64 {
        self.layout.iter().map(RankSet::len).sum()
    }
}

/// What the agent of a node reads on its standard input.
type Tickets = dyn Fn(&str) -> std::result::Result<Vec<u8>, Failure> + Send + Sync;

/// The agent's executable, and what each agent gets on its standard input.
pub struct AgentCommand {
    /// Path of the executable on the login side.
    pub program: PathBuf,
    /// Whether it is sent to the nodes.
    pub send: SendAgent,
    addresses: Vec<IpAddr>,
    deadline: Option<Instant>,
    watch: AgentWatch,
    links: AgentLinks,
    policy: HostsPolicy,
    left_out: LeftOut,
    tickets: Box<Tickets>,
}

impl AgentCommand {
    /// An agent whose standard input for the node `host` is `tickets(host)`.
    pub fn new(
        program: PathBuf,
        send: SendAgent,
        tickets: impl Fn(&str) -> std::result::Result<Vec<u8>, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            program,
            send,
            addresses: Vec::new(),
            deadline: None,
            watch: AgentWatch::default(),
            links: AgentLinks::default(),
            policy: HostsPolicy::All,
            left_out: LeftOut::default(),
            tickets: Box::new(tickets),
        }
    }

    /// By then all agents must have been started, and `watch` is told of those that end.
    #[must_use]
    pub fn watched_until(mut self, deadline: Instant, watch: AgentWatch) -> Self {
        (self.deadline, self.watch) = (Some(deadline), watch);
        self
    }

    /// Agents that cannot dial the frontend may have their link over what starts them: it is passed to `links`.
    #[must_use]
    pub fn linked_by(mut self, links: AgentLinks) -> Self {
        self.links = links;
        self
    }

    /// Nodes reach this machine at these addresses.
    #[must_use]
    pub fn reached_at(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// Where nodes reach this machine, if that is known: the most likely address first.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// So many hosts must be reached; `left_out` is told of the others. A WLM that does not know of policies wants all.
    #[must_use]
    pub fn on_hosts(mut self, policy: HostsPolicy, left_out: LeftOut) -> Self {
        (self.policy, self.left_out) = (policy, left_out);
        self
    }

    /// How many hosts must be reached.
    pub fn policy(&self) -> HostsPolicy {
        self.policy
    }

    /// Goes on without `host`, which the policy allows.
    pub fn leave_out(&self, host: String, why: Failure) {
        self.left_out.tell(host, why);
    }

    /// Where the WLM passes on links to agents that cannot dial.
    pub fn links(&self) -> AgentLinks {
        self.links.clone()
    }

    /// When all agents must have been started.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Who is to be told of agents that end, where the WLM sees that.
    pub fn watch(&self) -> AgentWatch {
        self.watch.clone()
    }

    /// What the agent of `host` reads on its standard input; an empty `host` for agents that ask for their node's name themselves. It holds the app's secret.
    ///
    /// # Errors
    /// The ticket cannot be encoded.
    pub fn ticket(&self, host: &str) -> std::result::Result<Vec<u8>, Failure> {
        (self.tickets)(host)
    }
}

impl fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Receives the ends of agents. A missing receiver is no error.
#[derive(Debug, Clone, Default)]
pub struct AgentWatch(Option<UnboundedSender<(String, Failure)>>);

impl AgentWatch {
    /// Host and last words of every agent that is seen to end are sent there.
    pub fn new(to: UnboundedSender<(String, Failure)>) -> Self {
        Self(Some(to))
    }

    /// The agent of `host` has ended, with these last words.
    pub fn ended(&self, host: String, words: Failure) {
        if let Some(to) = &self.0 {
            // Once all have their places, the end of an agent's link says more.
            drop(to.send((host, words)));
        }
    }
}

/// Receives links to agents that cannot dial: streams over the connection that brought the agent. A missing receiver is no error: such an agent notices it.
#[derive(Debug, Clone, Default)]
pub struct AgentLinks(Option<UnboundedSender<UnixStream>>);

impl AgentLinks {
    /// Streams are sent there.
    pub fn new(to: UnboundedSender<UnixStream>) -> Self {
        Self(Some(to))
    }

    /// An agent is at the other end of `stream` and is about to prove who it is.
    pub fn pass(&self, stream: UnixStream) {
        if let Some(to) = &self.0 {
            // After the launch there is no receiver: then the stream ends here, and with it the agent.
            drop(to.send(stream));
        }
    }
}

/// A command of the WLM that starts agents on other machines.
#[derive(Clone, PartialEq, Eq)]
pub struct StepStart {
    /// The executable's path and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads on its standard input, and gives every agent. It holds the app's secret, and is wiped.
    pub ticket: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for StepStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepStart").field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// Starts long-lived processes on this machine and owns them: the app's guard.
#[async_trait]
pub trait ProcessOwner: Send + Sync {
    /// Starts the agent of the node `name`: the executable `program` with `ticket` on its standard input. Returns when it is executed.
    ///
    /// # Errors
    /// It cannot be executed.
    async fn start_agent(&self, name: &str, program: &Path, ticket: Vec<u8>) -> Result<()>;

    /// Starts a command that runs as long as the agents that it starts on other machines. Returns when it is executed.
    ///
    /// # Errors
    /// It cannot be executed.
    async fn start_step(&self, start: StepStart) -> Result<()>;
}
