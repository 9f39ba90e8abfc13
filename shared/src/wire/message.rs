//! Orders of the frontend, answers of agents, and notices that agents send on their own.
//!
//! These types are the whole protocol of the overlay. They are separate from the public API, so that either side can
//! change its API without changing the wire. A change of these types must raise [`PROTOCOL_VERSION`], which peers
//! exchange before anything else.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use gantry_types::error::Failure;
use gantry_types::id::{DaemonId, NodeId, Pid, Rank, RequestId, SessionId};
use gantry_types::launch::Bind;
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::{NodeSet, RankSet};
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;

pub use super::blob::Blob;
pub use super::build::PROTOCOL_VERSION;
use super::channel::{ChannelNotice, ChannelOrder};
pub use super::flow::{FlowId, OUTPUT_WINDOW_BYTES, Source, Word};
use super::frame;
use super::mpi::{JoinWorld, MpiEnd, MpiNote, PmixServer};
use super::rendezvous::{RendezvousNotice, RendezvousOrder};
pub use super::reply::EncodedReply;
pub use super::staging::{Content, Entry, EntrySet, Known, LibcNeeds, Mark, Place};
pub use super::stream::{Attached, BulkCount, BulkOrder, BulkSeat, Feeder};
pub use super::ticket::{Ticket, TicketError};

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
    /// An agent asks for a stream of bulk data. Answered by [`Attached`].
    Bulk {
        /// The agent's number.
        node: NodeId,
        /// The stream's number.
        stream: u64,
    },
}

/// An agent's facts about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// The ticket's host name, from which the frontend finds the agent's number.
    pub host: String,
    /// The agent's own pid on its node.
    pub pid: Pid,
    /// Addresses at which children can dial this agent.
    pub listen: Vec<SocketAddr>,
    /// The ranks that a launcher has brought here, if the launcher brought the agent too.
    pub brought: Option<Brought>,
}

/// The frontend's answer to an agent's hello: its place in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seat {
    /// The agent has a place.
    Taken {
        /// The agent's number.
        node: NodeId,
        /// Number of agents.
        nodes: u32,
        /// Most children of one parent.
        radix: u32,
        /// The parent's addresses. `None`: the frontend is the parent, and this link stays.
        parent: Option<Vec<SocketAddr>>,
    },
    /// The agent is refused.
    Refused(Failure),
}

/// A frame on its way from the frontend to agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Number of the answers; `None`: no answer is wanted.
    pub request: Option<RequestId>,
    /// The agents that it is for.
    pub to: To,
    /// The order.
    pub order: Order,
}

/// The agents that an order is for.
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
        /// The answers. Nodes with the same answer are grouped.
        answers: Vec<(NodeSet, EncodedReply)>,
    },
    /// Something happened at a node.
    Notice {
        /// The node.
        node: NodeId,
        /// The event.
        notice: Notice,
    },
}

/// Decodes only the tag of the first variant of [`Order`] and of [`Notice`], not its content.
#[derive(Deserialize)]
enum First {
    Flow,
}

impl Down {
    /// The receivers of a flow's word, from the beginning of the frame. `None` for all other orders.
    #[must_use]
    pub fn peek_flow(body: &[u8]) -> Option<To> {
        let (_, to, First::Flow) = frame::peek::<(Option<RequestId>, To, First)>(body)?;
        Some(to)
    }
}

impl Up {
    /// The sender of a flow's word and the flow, from the beginning of the frame. `None` for all other frames.
    #[must_use]
    pub fn peek_flow(body: &[u8]) -> Option<(NodeId, FlowId)> {
        #[derive(Deserialize)]
        enum Head {
            Answers,
            Notice(NodeId, First, FlowId),
        }
        match frame::peek(body)? {
            Head::Notice(node, First::Flow, flow) => Some((node, flow)),
            Head::Answers => None,
        }
    }
}

/// How much longer than [`Order::Leave`] gives its daemons an agent may take to answer it.
pub const LEAVE_SLACK: Duration = Duration::from_secs(10);

/// An order for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// A word of one of the node's flows. Not answered. First variant: agents on the way do not decode it.
    Flow {
        /// Which flow.
        flow: FlowId,
        /// The word.
        word: Word,
    },
    /// Start this node's ranks. Answered by [`Answer::Ranks`], all or none.
    StartRanks(StartRanks),
    /// Take over processes that run already. Answered by [`Answer::Ranks`], all or none.
    AdoptRanks(AdoptRanks),
    /// Find processes that run already, and take them over. Answered by [`Answer::Ranks`], all or none.
    SeekRanks(SeekRanks),
    /// The ranks are part of this MPI world. It gives held ranks their numbers.
    JoinWorld(JoinWorld),
    /// Accept connections from other apps' nodes for a while, as a test. Answered by [`Answer::Listens`].
    Listen {
        /// How long.
        within: Duration,
    },
    /// Try to connect to other nodes that listen, each at any of its addresses. Answered by [`Answer::Unreached`].
    Reach {
        /// Their addresses.
        others: Vec<Vec<SocketAddr>>,
        /// How long.
        within: Duration,
    },
    /// Release held ranks.
    Release,
    /// Send a signal to ranks, or kill them: a held rank gets no other signal than SIGKILL.
    Signal {
        /// Which signal.
        signal: Signal,
        /// The ranks; `None`: all.
        ranks: Option<RankSet>,
    },
    /// Make a session's storage. Answered by [`Answer::Session`].
    OpenSession {
        /// The session's number.
        session: SessionId,
        /// The name of the app's directory, as [`choose_app_dir_name`](crate::storage::choose_app_dir_name) gives it.
        app_dir: String,
        /// Parent directory of the app's directory; `None`: this node's own choice.
        base: Option<OsString>,
    },
    /// End a session: SIGTERM to its daemons, SIGKILL after `grace`, then remove its storage.
    CloseSession {
        /// The session's number.
        session: SessionId,
        /// Time for its daemons to end.
        grace: Duration,
    },
    /// Make files available in a session. Answered by [`Answer::Missing`].
    Provide {
        /// The session's number.
        session: SessionId,
        /// The wanted files.
        entries: Vec<Entry>,
        /// The manifest's needs of the node's C library, if there are any.
        libc: Option<LibcNeeds>,
    },
    /// Unpack a bulk stream in a session, all of it or none: a tar archive of files that some nodes lack.
    Receive {
        /// The session's number.
        session: SessionId,
        /// The bulk stream's number.
        stream: u64,
        /// Bytes of the archive, unpacked; more are refused.
        bytes: u64,
        /// Files in the archive; more are refused.
        files: u32,
        /// Largest number of bytes that are copied from earlier files of the archive with the same content.
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
    /// End everything: the agent kills ranks unless they were adopted, ends daemons and sessions, answers and leaves.
    Leave {
        /// Time for daemons to end by themselves before they get SIGTERM.
        patience: Duration,
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// Answer at once. For measurements and to check that a node is alive.
    Ping,
    /// Receive a bulk stream and answer with its length and hash. For measurements.
    Sink {
        /// The bulk stream's number.
        stream: u64,
    },
    /// A child of this node violates the protocol: close its link with that reason. Not answered.
    CutChild {
        /// The child.
        child: NodeId,
        /// The violation.
        reason: String,
    },
    /// About the path of bulk data itself.
    Bulk(BulkOrder),
    /// About data that ranks exchange.
    Rendezvous(RendezvousOrder),
    /// For the tool's daemons.
    Channel(ChannelOrder),
}

impl Order {
    /// The bulk stream that this order announces, and the part of the agent that takes it.
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

/// The part of an agent that takes a bulk stream, as decided by the order that announces the stream.
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

/// A program and its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// A path, or a name that is looked up in `env`'s PATH on the node.
    pub program: OsString,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment, before the agent adds its own variables.
    pub env: Vec<(OsString, OsString)>,
    /// How many variables at the end of `env` were set for this program. The agent sets none of them to the node's value.
    pub chosen: u32,
    /// Directory to start in.
    pub cwd: Option<OsString>,
}

/// Ranks to start. Every agent gets the whole order and takes its own slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRanks {
    /// The programs: every rank is in one of the sets.
    pub programs: Vec<(RankSet, Program)>,
    /// Number of ranks in the app.
    pub size: u32,
    /// The ranks of each node, by node number.
    pub layout: Vec<RankSet>,
    /// Hold every rank before its first instruction.
    pub hold: bool,
    /// The rank whose standard input is a flow; all others read from /dev/null.
    pub stdin: Option<Rank>,
    /// Forward standard output and error as a flow; otherwise they go to /dev/null.
    pub output: bool,
    /// What each rank is bound to.
    pub bind: Bind,
    /// The ranks are part of an MPI world that [`Order::JoinWorld`] announces; otherwise they are a world of their own.
    pub joins: bool,
    /// Agents serve PMIx to the ranks, which must be a world of their own; otherwise they serve PMI.
    pub pmix: Option<PmixServer>,
}

/// Processes to take over. Every agent gets the whole order and takes its own slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptRanks {
    /// Number of ranks in the app.
    pub size: u32,
    /// Ranks and pids of each node, by node number.
    pub layout: Vec<Vec<(Rank, Pid)>>,
    /// The state in which their launcher has left them.
    pub found: Found,
    /// The name of a program that may wrap a rank. Then the rank is its first child.
    pub wrapper: Option<String>,
    /// For held ranks: a pattern for the path of the wanted program. A rank that runs another program goes on, and is
    /// held when a program of it matches.
    pub hold_at: Option<String>,
}

/// The state of processes that an agent is to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// They ran before this order, and stay as they are.
    Running,
    /// They were launched for gantry and are stopped at their first instruction. The agent checks this.
    Held,
    /// As [`Found::Held`]; the agent releases them as soon as it knows them.
    HeldToRun,
    /// They were launched for gantry and wait for their launcher somewhere after their first instruction. The agent
    /// stops them there, so that the launcher can go on.
    Waiting,
    /// As [`Found::Waiting`], but not stopped.
    WaitingToRun,
}

/// Processes to find and to take over, of which only the nodes are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeekRanks {
    /// Number of ranks in the app.
    pub size: u32,
    /// Ranks of each node, by node number.
    pub layout: Vec<RankSet>,
    /// The marks that identify them.
    pub marks: RankMarks,
    /// As [`AdoptRanks::wrapper`].
    pub wrapper: Option<String>,
}

/// Marks of an app's ranks in the environment that they were started with. Other processes lack them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMarks {
    /// Variables and values that every rank has.
    pub variables: Vec<(OsString, OsString)>,
    /// The variable with a process's rank.
    pub rank: OsString,
    /// The variable with the rank's own pid. It tells the rank from its children, which have the same environment.
    pub pid: OsString,
}

/// A tool daemon to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartDaemon {
    /// The daemon's number.
    pub daemon: DaemonId,
    /// The session it belongs to.
    pub session: SessionId,
    /// Its program. A name without a slash is first searched in the session's `bin`.
    pub program: Program,
    /// The target of its output.
    pub output: DaemonOutput,
    /// Directories below the session's `lib`, for libraries with one name and different content. They precede `lib` in
    /// LD_LIBRARY_PATH.
    pub lib_dirs: Vec<OsString>,
    /// The URI of the container instance in which it starts; `None`: on the node itself.
    pub container: Option<OsString>,
}

/// An agent's answer to an order that it carried out.
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
    /// A bulk stream has arrived.
    Received {
        /// Its length in bytes.
        bytes: u64,
        /// BLAKE3 of the content.
        hash: [u8; 32],
    },
    /// The amount of bulk data that went through.
    Bulk(BulkCount),
    /// A message is delivered, except to these daemons of the node: they have ended, or will not take it.
    Undelivered(Vec<(DaemonId, Failure)>),
    /// Addresses at which the node accepts connections.
    Listens(Vec<SocketAddr>),
    /// The nodes that could not be reached, as indices into [`Order::Reach`].
    Unreached(Vec<u32>),
}

/// A node's answer to an order, or why the node did not carry it out.
pub type Reply = Result<Answer, Failure>;

/// A rank that runs or is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Which rank.
    pub rank: Rank,
    /// Its process.
    pub pid: Pid,
    /// The executable that the process runs (for a script: its interpreter).
    pub exe: OsString,
    /// The proof, if the rank is held.
    pub held: Option<HeldProof>,
}

/// The ranks that a launcher has brought to a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// Number of ranks of the app, as the launcher told them.
    pub size: u32,
    /// The ranks of this node, or why they could not be held. In that case none of them is left.
    pub ranks: Result<Vec<RankReport>, Failure>,
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.ranks.as_ref().map(Vec::len);
        f.debug_struct("Brought").field("size", &self.size).field("ranks", &ranks).finish()
    }
}

/// Proof that a rank is held: the kernel's state of it after the hold was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProof {
    /// Program counter; it equals the address at which the kernel starts the program.
    pub pc: u64,
    /// The process state of `/proc/PID/stat`: `T`.
    pub state: char,
}

/// A node's notice, which no order asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A word of one of the node's flows. Agents on the way do not decode it, so it stays the first variant.
    Flow {
        /// Which flow.
        flow: FlowId,
        /// The word.
        word: Word,
    },
    /// A child agent has joined its parent in the tree.
    ChildJoined {
        /// The child.
        child: NodeId,
    },
    /// Agents can no longer be reached.
    NodesLost {
        /// The nodes.
        nodes: NodeSet,
        /// The observed cause.
        reason: String,
    },
    /// Heartbeat of the node, sent at intervals over a transport that does not show the end of a connection.
    Alive,
    /// A node is stalled: it has given no sign to its feeder, the sender of this notice, for the stall time. It gets no
    /// more of the stream.
    BulkStalled {
        /// The stream's number.
        stream: u64,
        /// The stalled node.
        fed: NodeId,
    },
    /// A rank ended.
    RankExited {
        /// The rank.
        rank: Rank,
        /// How it ended.
        status: ExitStatus,
    },
    /// A daemon ended.
    DaemonExited {
        /// The daemon.
        daemon: DaemonId,
        /// How it ended.
        status: ExitStatus,
    },
    /// Data that ranks exchange.
    Rendezvous(RendezvousNotice),
    /// From the tool's daemons.
    Channel(ChannelNotice),
    /// The ranks' MPI world cannot go on: the frontend must kill all ranks.
    MpiFailed {
        /// The rank that caused it, or that has noticed it.
        rank: Rank,
        /// The exit code for the app.
        code: i32,
        /// The reason.
        why: String,
        /// The kind of its end.
        end: MpiEnd,
    },
    /// What the user should know about the ranks' MPI world, which goes on.
    MpiNote(MpiNote),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents forward a frame after reading its beginning. So the beginning must agree with the whole.
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
        assert_eq!(Up::peek_flow(&up(Notice::Flow { flow, word })), Some((NodeId(300), flow)));
        for notice in [Notice::Alive, Notice::ChildJoined { child: NodeId(0) }] {
            assert_eq!(Up::peek_flow(&up(notice)), None);
        }
        let answers = Up::Answers { request: RequestId(0), answers: Vec::new() };
        assert_eq!(Up::peek_flow(&frame::encode_body(&answers).unwrap()), None);
        assert_eq!((Down::peek_flow(&[]), Up::peek_flow(&[1])), (None, None), "cut off");
    }
}
