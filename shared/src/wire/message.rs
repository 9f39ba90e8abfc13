//! What the frontend orders, what agents answer, and what agents report on their own.
//!
//! These types are the whole language of the overlay. They are types of their own, apart from the public API, so that either side can
//! change its API without changing the wire. Whoever changes them raises [`PROTOCOL_VERSION`], which is exchanged before anything else is
//! understood.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rendezvous::handle::Subjob;
use crate::secret::Secret;
use gantry_types::error::Failure;
use gantry_types::id::{AppId, DaemonId, NodeId, Pid, Rank, RequestId, SessionId};
use gantry_types::launch::Bind;
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::{NodeSet, RankSet};
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;

pub use super::blob::Blob;
use super::channel::{ChannelNotice, ChannelOrder};
pub use super::flow::{FlowId, OUTPUT_WINDOW_BYTES, Source, Word};
use super::frame;
use super::mpi::{JoinWorld, MpiEnd};
use super::rendezvous::{RendezvousNotice, RendezvousOrder};
pub use super::staging::{Content, Entry, EntrySet, Known, LibcNeeds, Mark, Place};
pub use super::stream::{Attached, BulkCount, BulkOrder, BulkSeat, Feeder};

/// The version of everything that is said on a link.
pub const PROTOCOL_VERSION: u16 = 12;

/// What an agent is told on its standard input, once, before it does anything: one frame. It is never in argv.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// Version of the program that wrote the ticket; the agent refuses another than its own.
    pub release: String,
    /// The app that the agent serves.
    pub app: AppId,
    /// The app's secret; every link proves that it knows it.
    pub secret: Secret,
    /// Addresses at which the frontend listens, best first. All are tried side by side.
    pub frontend: Vec<SocketAddr>,
    /// The name under which the WLM knows this node.
    pub host: String,
    /// The WLM's name, for daemons that ask.
    pub wlm: String,
    /// Where session storage goes when the user asked for a place.
    pub stage_base: Option<OsString>,
    /// Beginnings of names of variables that the agent's own environment says for all processes of its node, over what the frontend's says.
    pub node_variables: Vec<String>,
    /// How long to try to reach the frontend, or a parent, before giving up.
    pub patience: Duration,
    /// The app's place in a multijob.
    pub subjob: Option<Subjob>,
}

/// The first frame on a link, from the side that dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dial {
    /// An agent reports to the frontend.
    Agent(AgentHello),
    /// An agent reports to its parent in the tree.
    Child {
        /// The child's number.
        node: NodeId,
    },
    /// An agent wants to be fed with a stream of bulk data. Answered by [`Attached`].
    Bulk {
        /// The agent's number.
        node: NodeId,
        /// The stream's number.
        stream: u64,
    },
}

/// An agent's word about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// The ticket's host name, by which the frontend finds the agent's number.
    pub host: String,
    /// The agent's own pid on its node.
    pub pid: Pid,
    /// Where children can dial this agent.
    pub listen: Vec<SocketAddr>,
    /// The ranks that a launcher has brought here, where it was the launcher that brought the agent too.
    pub brought: Option<Brought>,
}

/// The frontend's answer to an agent's hello: its place in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seat {
    /// The agent has a place.
    Taken {
        /// The agent's number.
        node: NodeId,
        /// How many agents there are.
        nodes: u32,
        /// Most children of one parent.
        radix: u32,
        /// The parent's addresses; none: the frontend itself is the parent and this link stays.
        parent: Option<Vec<SocketAddr>>,
    },
    /// The agent is not wanted.
    Refused(Failure),
}

/// A frame on its way from the frontend to agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Answers bear this number; none: no answer is wanted.
    pub request: Option<RequestId>,
    /// Whom it is for.
    pub to: To,
    /// What to do.
    pub order: Order,
}

/// Whom an order is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// Every agent.
    All,
    /// These agents.
    Nodes(NodeSet),
}

impl To {
    /// Whether it is for this node.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        match self {
            Self::All => true,
            Self::Nodes(nodes) => nodes.contains(node),
        }
    }
}

/// A frame on its way from agents to the frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// Answers of some of the agents that an order went to; a batch, more may follow.
    Answers {
        /// The order's number.
        request: RequestId,
        /// Who answers what. Those who answer the same stand together.
        answers: Vec<(NodeSet, Result<Answer, Failure>)>,
    },
    /// Something happened at a node.
    Notice {
        /// Where.
        node: NodeId,
        /// What.
        notice: Notice,
    },
}

/// The first variant of [`Order`] and of [`Notice`], and nothing of what is in it.
#[derive(Deserialize)]
enum First {
    Flow,
}

impl Down {
    /// Whom a word of a flow is for, by the beginning of the frame. None for all other orders.
    #[must_use]
    pub fn peek_flow(body: &[u8]) -> Option<To> {
        let (_, to, First::Flow) = frame::peek::<(Option<RequestId>, To, First)>(body)?;
        Some(to)
    }
}

impl Up {
    /// Which node says a word of a flow, by the beginning of the frame. None for all else.
    #[must_use]
    pub fn peek_flow(body: &[u8]) -> Option<NodeId> {
        #[derive(Deserialize)]
        enum Head {
            Answers,
            Notice(NodeId, First),
        }
        match frame::peek(body)? {
            Head::Notice(node, First::Flow) => Some(node),
            Head::Answers => None,
        }
    }
}

/// What an agent can be told to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// A word of one of the node's flows. Not answered. Agents on the way do not decode it, so it stays the first variant.
    Flow {
        /// Which flow.
        flow: FlowId,
        /// What is said.
        word: Word,
    },
    /// Start this node's ranks. Answered by [`Answer::Ranks`], all or none.
    StartRanks(StartRanks),
    /// Look after processes that run already. Answered by [`Answer::Ranks`], all or none.
    AdoptRanks(AdoptRanks),
    /// Find processes that run already, and look after them. Answered by [`Answer::Ranks`], all or none.
    SeekRanks(SeekRanks),
    /// The ranks are part of this MPI world. Held ranks get their numbers by it.
    JoinWorld(JoinWorld),
    /// Accept connections from the nodes of other apps for a while, to try the way. Answered by [`Answer::Listens`].
    Listen {
        /// How long.
        within: Duration,
    },
    /// Try to connect to others that listen, each at any of its addresses. Answered by [`Answer::Unreached`].
    Reach {
        /// Their addresses.
        others: Vec<Vec<SocketAddr>>,
        /// How long.
        within: Duration,
    },
    /// Let held ranks go.
    Release,
    /// Send a signal to ranks, or kill them: a held rank gets no other signal than SIGKILL.
    Signal {
        /// Which signal.
        signal: Signal,
        /// Which ranks; none: all.
        ranks: Option<RankSet>,
    },
    /// Make a session's storage. Answered by [`Answer::Session`].
    OpenSession {
        /// The session's number.
        session: SessionId,
        /// The name of the app's directory, as [`choose_app_dir_name`](crate::storage::choose_app_dir_name) gives it.
        app_dir: String,
        /// Where the app's directory is to be; none: where this node would have it.
        base: Option<OsString>,
    },
    /// End a session: its daemons by SIGTERM, after `grace` by SIGKILL, then its storage.
    CloseSession {
        /// The session's number.
        session: SessionId,
        /// How long its daemons have.
        grace: Duration,
    },
    /// Make files available in a session. Answered by [`Answer::Missing`].
    Provide {
        /// The session's number.
        session: SessionId,
        /// What is wanted.
        entries: Vec<Entry>,
        /// What its programs need of the node's C library, if they need one.
        libc: Option<LibcNeeds>,
    },
    /// Unpack a bulk stream in a session: a tar archive of files that some nodes do not have. What a node has already it leaves
    /// as it is. All of it is there when this is answered, or nothing of it.
    Receive {
        /// The session's number.
        session: SessionId,
        /// The bulk stream's number.
        stream: u64,
        /// Bytes of the archive, unpacked; more are refused.
        bytes: u64,
        /// Files in the archive; more are refused.
        files: u32,
        /// Bytes of files that have the content of one before them in the archive, by its name, and are copied from it; more are refused.
        copied_bytes: u64,
        /// The stream is the archive compressed with zstd.
        compressed: bool,
    },
    /// Start a tool daemon. Answered by [`Answer::Daemon`].
    StartDaemon(StartDaemon),
    /// Send a signal to a tool daemon.
    SignalDaemon {
        /// Which daemon.
        daemon: DaemonId,
        /// Which signal.
        signal: Signal,
    },
    /// From now on the app outlives the frontend: the agent cleans up when its ranks have ended.
    Detach,
    /// The end: ranks are killed unless they were adopted; daemons and sessions go; then the agent answers and leaves.
    Leave {
        /// How long daemons have to end by themselves before they are asked to.
        patience: Duration,
        /// How long they have between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// Answer at once. For measuring and for knowing that a node is there.
    Ping,
    /// Receive a bulk stream and answer with its length and hash. For measuring.
    Sink {
        /// The bulk stream's number.
        stream: u64,
    },
    /// A child of this node breaks the rules: its link is to be closed with that reason. For the overlay in the agent; not answered.
    CutChild {
        /// Which child.
        child: NodeId,
        /// What it did.
        reason: String,
    },
    /// About bulk data's way itself.
    Bulk(BulkOrder),
    /// About data that ranks exchange.
    Rendezvous(RendezvousOrder),
    /// For the tool's daemons.
    Channel(ChannelOrder),
}

impl Order {
    /// The stream of bulk data that this announces, and the part of the agent that takes it.
    #[must_use]
    pub fn announces(&self) -> Option<(u64, Consumer)> {
        match self {
            Self::Receive { stream, .. } => Some((*stream, Consumer::Session)),
            Self::Sink { stream } => Some((*stream, Consumer::Sink)),
            Self::Rendezvous(RendezvousOrder::Stream { stream, .. }) => Some((*stream, Consumer::Rendezvous)),
            Self::Channel(ChannelOrder::Stream { stream, .. }) => Some((*stream, Consumer::Channel)),
            _ => None,
        }
    }
}

/// The part of an agent that takes a stream of bulk data. The order that announces the stream decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    /// A session's storage: [`Order::Receive`].
    Session,
    /// The counter of [`Order::Sink`].
    Sink,
    /// Ranks that wait for an aggregate.
    Rendezvous,
    /// Daemons that get a large message.
    Channel,
}

/// A program and its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// A path, or a name that is looked up in `env`'s PATH on the node.
    pub program: OsString,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment, before the agent adds its own variables.
    pub env: Vec<(OsString, OsString)>,
    /// Directory to start in.
    pub cwd: Option<OsString>,
}

/// Ranks to start. Every agent gets the whole order and takes its own slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRanks {
    /// What ranks run: every rank is in one of the sets.
    pub programs: Vec<(RankSet, Program)>,
    /// Number of ranks in the app.
    pub size: u32,
    /// Which ranks each node has, by node number.
    pub layout: Vec<RankSet>,
    /// Hold every rank before its first instruction.
    pub hold: bool,
    /// The rank whose standard input is a flow; all others read from /dev/null.
    pub stdin: Option<Rank>,
    /// Forward standard output and error as a flow; otherwise they go to /dev/null.
    pub output: bool,
    /// To what each rank is bound.
    pub bind: Bind,
    /// The ranks are part of an MPI world that is told by [`Order::JoinWorld`]; otherwise they are one by themselves.
    pub joins: bool,
}

/// Processes to look after. Every agent gets the whole order and takes its own slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptRanks {
    /// Number of ranks in the app.
    pub size: u32,
    /// Ranks and pids of each node, by node number.
    pub layout: Vec<Vec<(Rank, Pid)>>,
    /// In what state their launcher has left them.
    pub found: Found,
    /// The name of a program that may stand around a rank, which is then its first child.
    pub wrapper: Option<String>,
    /// Of held ranks: a pattern for the path of the program that is meant. Ranks that are another one are let go on, and held when one of theirs fits.
    pub hold_at: Option<String>,
}

/// In what state processes are that an agent is to look after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// They ran before anybody asked, and are left as they are found.
    Running,
    /// They were launched for us and are stopped at their first instruction, which the agent checks.
    Held,
    /// As [`Found::Held`]; let go as soon as the agent knows them.
    HeldToRun,
    /// They were launched for us and wait for their launcher somewhere after their first instruction: the agent stops them there, so that the launcher can go on.
    Waiting,
    /// As [`Found::Waiting`], but not stopped.
    WaitingToRun,
}

/// Processes to find and to look after, where only their nodes are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekRanks {
    /// Number of ranks in the app.
    pub size: u32,
    /// Ranks of each node, by node number.
    pub layout: Vec<RankSet>,
    /// What they are known by.
    pub marks: RankMarks,
    /// As [`AdoptRanks::wrapper`].
    pub wrapper: Option<String>,
}

/// What the ranks of an app have in the environment that they were started with, and other processes have not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMarks {
    /// Variables and values that every rank has.
    pub variables: Vec<(OsString, OsString)>,
    /// The variable that says which rank a process is.
    pub rank: OsString,
    /// The variable with the rank's own pid: the rank's children have the same environment.
    pub pid: OsString,
}

/// A tool daemon to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartDaemon {
    /// The daemon's number.
    pub daemon: DaemonId,
    /// The session it belongs to.
    pub session: SessionId,
    /// What it runs. A name without a slash is first looked for in the session's `bin`.
    pub program: Program,
    /// Where its output goes.
    pub output: DaemonOutput,
    /// Directories below the session's `lib`, for libraries of one name and different content: they come before it in LD_LIBRARY_PATH.
    pub lib_dirs: Vec<OsString>,
    /// The container instance, by its URI, in which it is started; none: on the node itself.
    pub container: Option<OsString>,
}

/// What an agent answers to an order that it carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done, nothing to add.
    Done,
    /// The node's ranks.
    Ranks(Vec<RankReport>),
    /// The session's root directory.
    Session(OsString),
    /// The entries that the node does not have.
    Missing(EntrySet),
    /// The daemon runs.
    Daemon(Pid),
    /// A bulk stream came through.
    Received {
        /// Its length in bytes.
        bytes: u64,
        /// BLAKE3 of the content.
        hash: [u8; 32],
    },
    /// How much bulk data went through.
    Bulk(BulkCount),
    /// A message is delivered, but for these daemons of the node: they have ended, or will not take it.
    Undelivered(Vec<(DaemonId, Failure)>),
    /// Where the node accepts connections.
    Listens(Vec<SocketAddr>),
    /// Which of the others could not be reached, by their places in [`Order::Reach`].
    Unreached(Vec<u32>),
}

/// A rank that runs or is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Which rank.
    pub rank: Rank,
    /// Its process.
    pub pid: Pid,
    /// The executable that the process runs (for a script: its interpreter).
    pub exe: OsString,
    /// Present when the rank is held: the proof.
    pub held: Option<HeldProof>,
}

/// What a launcher has brought to a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// How many ranks the app has, by what the launcher told them.
    pub size: u32,
    /// The ranks of this node, or why they could not be held; then none of them is left.
    pub ranks: Result<Vec<RankReport>, Failure>,
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.ranks.as_ref().map(Vec::len);
        f.debug_struct("Brought").field("size", &self.size).field("ranks", &ranks).finish()
    }
}

/// Why we say that a rank is held: what the kernel said of it after the hold was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProof {
    /// Program counter; it equals the address at which the kernel starts the program.
    pub pc: u64,
    /// The process state of `/proc/PID/stat`: `T`.
    pub state: char,
}

/// What happens at a node without being asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A word of one of the node's flows. Agents on the way do not decode it, so it stays the first variant.
    Flow {
        /// Which flow.
        flow: FlowId,
        /// What is said.
        word: Word,
    },
    /// A child agent has joined its parent in the tree.
    ChildJoined {
        /// The child.
        child: NodeId,
    },
    /// Agents can no longer be reached.
    NodesLost {
        /// Which.
        nodes: NodeSet,
        /// What was seen.
        reason: String,
    },
    /// The node is still there: said now and then over a way that does not show its end by itself.
    Alive,
    /// A node that is fed by the one that says this hangs: it has given no sign for the stall time, and gets no more of the stream.
    BulkStalled {
        /// The stream's number.
        stream: u64,
        /// Which node.
        fed: NodeId,
    },
    /// A rank ended.
    RankExited {
        /// Which.
        rank: Rank,
        /// How.
        status: ExitStatus,
    },
    /// A daemon ended.
    DaemonExited {
        /// Which.
        daemon: DaemonId,
        /// How.
        status: ExitStatus,
    },
    /// Data that ranks exchange.
    Rendezvous(RendezvousNotice),
    /// From the tool's daemons.
    Channel(ChannelNotice),
    /// The ranks' MPI world cannot go on: all ranks are to be killed.
    MpiFailed {
        /// Whose fault it is, or who has noticed it.
        rank: Rank,
        /// The exit code that the app is to have.
        code: i32,
        /// The reason.
        why: String,
        /// What has ended it.
        end: MpiEnd,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents pass on what they have read the beginning of; so the beginning must say what the whole says.
    #[test]
    fn the_beginning_of_a_frame_tells_a_flow_and_its_node() {
        let (flow, word) = (FlowId::Items, Word::data(vec![7; 300]));
        let to = || To::Nodes(NodeSet::from_range(NodeId(300)..=NodeId(400)));
        let down = |order| frame::encode_body(&Down { request: None, to: to(), order }).unwrap();
        assert_eq!(Down::peek_flow(&down(Order::Flow { flow, word: word.clone() })), Some(to()));
        for order in [Order::Release, Order::Ping, Order::Bulk(BulkOrder::Count)] {
            assert_eq!(Down::peek_flow(&down(order)), None);
        }
        let up = |notice| frame::encode_body(&Up::Notice { node: NodeId(300), notice }).unwrap();
        assert_eq!(Up::peek_flow(&up(Notice::Flow { flow, word })), Some(NodeId(300)));
        for notice in [Notice::Alive, Notice::ChildJoined { child: NodeId(0) }] {
            assert_eq!(Up::peek_flow(&up(notice)), None);
        }
        let answers = Up::Answers { request: RequestId(0), answers: Vec::new() };
        assert_eq!(Up::peek_flow(&frame::encode_body(&answers).unwrap()), None);
        assert_eq!((Down::peek_flow(&[]), Up::peek_flow(&[1])), (None, None), "cut off");
    }
}
