//! The tool's launch request, and the WLM's plan for it.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use gantry_shared::wire::hold::{AfterRank, Own};
use gantry_types::error::Failure;
use gantry_types::launch::{Bind, HoldMethod, HostsPolicy, Mixed, MixedPart, Mpi, SendAgent};
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use zeroize::Zeroizing;

use crate::error::Result;
use crate::job::JobRef;
use crate::mpir::AtBreakpoint;

/// The tool's launch request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// The arguments exactly as for the launcher: its options, the program, the program's arguments.
    pub args: Vec<OsString>,
    /// Hold every rank before its first instruction.
    pub hold: bool,
    /// The hold method.
    pub hold_method: HoldMethod,
    /// Do not hold the program that the launcher starts, but one behind it. An agent finds it by tracing.
    pub hold_behind: bool,
    /// The agents outlive the ranks.
    pub linger: bool,
    /// Named hosts that are unavailable. Other named hosts replace them. If there are none, fewer hosts are used.
    pub without: Vec<String>,
    /// The launcher, if the user names one: a name to look up in PATH, or a path.
    pub launcher: Option<OsString>,
    /// Path of gantry's agent on this machine. It replaces the programs if a launcher starts it.
    pub agent: PathBuf,
    /// Whether the agent is sent to the nodes.
    pub send_agent: SendAgent,
    /// A directory for the launch's own files: [`Brought::files`].
    pub scratch: PathBuf,
}

/// The plan of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// There is no launcher. Agents start the ranks, and hold them if requested.
    Direct(Direct),
    /// A launcher starts the ranks together with the agents.
    Brought(Brought),
    /// The WLM has not assigned nodes yet. A job is submitted in which agents run, and the agents start the ranks. The
    /// WLM is a [`Queue`](crate::Queue).
    Queued(Queued),
    /// A launcher starts and stops the ranks, and shows where they are: [`HoldMethod::Mpir`].
    /// [`Wlm::start_agents`](crate::Wlm) starts the agents.
    Driven(Driven),
}

/// A launch by a launcher that starts our agent in place of every program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The launcher's executable and its arguments.
    pub argv: Vec<OsString>,
    /// Variables for the launcher, in addition to those of its user. The agents' ticket is not among them.
    pub env: Vec<(OsString, OsString)>,
    /// Files to write before the launcher starts. Only this user can read them. They are removed when the ranks have
    /// started.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Settings of single ranks that the launcher does not know.
    pub own: Vec<Own>,
    /// The action of the agent after a rank has ended. The launcher runs the agent for it, without arguments, on the
    /// rank's node.
    pub after_rank: Option<AfterRank>,
}

/// A launch without a launcher, on the nodes of a new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The launch's arguments. The WLM needs them again to submit the job, and when the job has its nodes.
    pub args: Vec<OsString>,
}

/// A launch by a launcher that runs until it has stopped its ranks. It stays there, or continues without releasing
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driven {
    /// The launcher's executable and the user's arguments for it.
    pub argv: Vec<OsString>,
    /// The action once its ranks are stopped.
    pub at_breakpoint: AtBreakpoint,
}

/// A launch without a launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Direct {
    /// Names of the nodes, by node number.
    pub hosts: Vec<String>,
    /// The ranks of each node.
    pub layout: Vec<RankSet>,
    /// Additional named hosts. They get ranks only if others are unavailable: [`Launch::without`].
    pub spare: Vec<String>,
    /// Opaque data of the WLM, returned to [`Wlm::start_agents`](crate::Wlm::start_agents).
    pub wlm_data: Vec<String>,
    /// The job of the nodes, if the WLM has jobs.
    pub job: Option<JobRef>,
    /// The programs of the ranks. Every rank is in one part.
    pub parts: Vec<MixedPart>,
    /// The binding of each rank.
    pub bind: Bind,
    /// The server by which the ranks become one MPI world.
    pub mpi: Mpi,
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

    /// The number of ranks on all nodes.
    pub fn size(&self) -> u64 {
        self.layout.iter().map(RankSet::len).sum()
    }
}

/// Builds the standard input of the agent of a node.
type Tickets = dyn Fn(&str) -> std::result::Result<Vec<u8>, Failure> + Send + Sync;

/// The agent's executable, and the standard input of each agent.
#[derive(Clone)]
pub struct AgentCommand {
    /// Path of the executable on the login side.
    pub program: PathBuf,
    /// Whether to send it to the nodes.
    pub send: SendAgent,
    /// The addresses at which nodes reach this machine, if they are known. The most likely one comes first.
    pub addresses: Vec<IpAddr>,
    /// The deadline for starting all agents.
    pub deadline: Option<Instant>,
    /// The receiver of agents' ends, for a WLM that sees them: the host, and the agent's last messages. Once all agents
    /// have their links, the end of a link says more.
    pub watch: Reports<(String, Failure)>,
    /// The receiver of links for agents that cannot dial the frontend: streams over the connection that started the agent.
    /// Without a receiver a stream is closed, and its agent ends.
    pub links: Reports<UnixStream>,
    /// How many hosts must be reached. A WLM without support for policies needs all hosts.
    pub policy: HostsPolicy,
    /// The receiver of hosts that have no agent and will not get one, as the policy allows, with the reason.
    pub left_out: Reports<(String, Failure)>,
    tickets: Arc<Tickets>,
}

impl AgentCommand {
    /// An agent that gets `tickets(host)` on its standard input on the node `host`.
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
            watch: Reports::default(),
            links: Reports::default(),
            policy: HostsPolicy::All,
            left_out: Reports::default(),
            tickets: Arc::new(tickets),
        }
    }

    /// The standard input of the agent on `host`. With an empty `host` the agent asks for its node's name itself. It
    /// contains the app's secret.
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

/// The sender of one kind of news of a launch. That nobody receives them is no error.
#[derive(Debug)]
pub struct Reports<T>(Option<UnboundedSender<T>>);

impl<T> Reports<T> {
    /// `to` gets the news.
    pub fn new(to: UnboundedSender<T>) -> Self {
        Self(Some(to))
    }

    /// Sends them, or drops them if nobody receives them.
    pub fn tell(&self, news: T) {
        if let Some(to) = &self.0 {
            drop(to.send(news));
        }
    }
}

impl<T> Default for Reports<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Reports<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A WLM command that starts agents on other machines.
#[derive(Clone, PartialEq, Eq)]
pub struct StepStart {
    /// The executable's path and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input, which every agent gets. It contains the app's secret, and is wiped.
    pub ticket: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for StepStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepStart").field("argv", &self.argv).finish_non_exhaustive()
    }
}

/// Starts long-lived processes on this machine and owns them. This is the app's guard.
#[async_trait]
pub trait ProcessOwner: Send + Sync {
    /// Starts the agent of the node `name`: the executable `program` with `ticket` on its standard input. Returns after
    /// its exec.
    ///
    /// # Errors
    /// It cannot be executed.
    async fn start_agent(&self, name: &str, program: &Path, ticket: Vec<u8>) -> Result<()>;

    /// Starts a command that runs as long as the agents that it starts on other machines. Returns after its exec.
    ///
    /// # Errors
    /// It cannot be executed.
    async fn start_step(&self, start: StepStart) -> Result<()>;
}
