//! The channel protocol between a tool's frontend and its daemons: on the overlay, and between a daemon and its node's
//! agent.
//!
//! A *channel* connects the frontend and all tool daemons of one session. Messages go down. The node acknowledges each
//! one when its daemons have taken it. *Parts* go up: the contribution of a daemon to an operation, or the result that
//! an agent has made of several contributions. A part's first chunk goes without a request. The rest is a
//! [flow](super::flow) to its next consumer: the agent that merges it, or the frontend.
//!
//! The number of tags is not bounded here, but every tag costs some bytes on each side for the lifetime of the session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gantry_types::error::Failure;
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId, SessionId};
use gantry_types::rank_set::NodeSet;

pub use super::window::{CHANNEL_WINDOW_BYTES, OVERHEAD_BYTES, cost_of};
pub use gantry_types::filter::concatenate::Member;

use super::blob::Blob;
use super::flow::{Inflow, Outflow, Word};

/// The most bytes of a part or of a message in one frame.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The most bytes of an unrequested message of a daemon, and of a frontend's message in one frame. The frontend sends
/// larger messages as bulk data.
pub const MAX_MESSAGE_BYTES: usize = 128 * 1024;

/// The most bytes of one contribution, and of a filter's result.
pub const MAX_PART_BYTES: u64 = 64 * 1024 * 1024;

/// The most unacknowledged bytes of the rest of a part.
pub const PART_WINDOW_BYTES: u32 = 256 * 1024;

/// Part numbers from here up belong to parts that agents have made. Lower ones are daemons' numbers.
pub const FIRST_MADE: u32 = u32::MAX - 0xffff;

/// Bytes in chunks of at most [`CHUNK_BYTES`], at least one chunk, and whether each is the last.
pub fn chunks_of(bytes: &[u8]) -> impl Iterator<Item = (Blob, bool)> {
    let count = bytes.len().div_ceil(CHUNK_BYTES).max(1);
    (1..=count).map(move |number| {
        let chunk = (number - 1) * CHUNK_BYTES..bytes.len().min(number * CHUNK_BYTES);
        (Blob(bytes[chunk].to_vec()), number == count)
    })
}

/// Members of a channel. One daemon on ten thousand nodes costs as much as on one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSet(BTreeMap<DaemonId, NodeSet>);

impl MemberSet {
    /// One member.
    #[must_use]
    pub fn of(member: Member) -> Self {
        std::iter::once(member).collect()
    }

    /// Adds a daemon on several nodes.
    pub fn insert_all(&mut self, daemon: DaemonId, nodes: &NodeSet) {
        if !nodes.is_empty() {
            let here = self.0.entry(daemon).or_default();
            *here = here.union(nodes);
        }
    }

    /// Whether the set contains this member.
    #[must_use]
    pub fn contains(&self, member: Member) -> bool {
        self.0.get(&member.daemon).is_some_and(|nodes| nodes.contains(member.node))
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.values().map(NodeSet::len).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // A peer may send an empty set of nodes.
        self.0.values().all(NodeSet::is_empty)
    }

    /// All members, by daemon and then by node.
    pub fn iter(&self) -> impl Iterator<Item = Member> + '_ {
        self.0.iter().flat_map(|(daemon, nodes)| nodes.iter().map(|node| Member { node, daemon: *daemon }))
    }

    /// The daemons that are members on this node.
    pub fn daemons_on(&self, node: NodeId) -> impl Iterator<Item = DaemonId> + '_ {
        self.0.iter().filter(move |(_, nodes)| nodes.contains(node)).map(|(daemon, _)| *daemon)
    }

    /// The nodes that have a member.
    #[must_use]
    pub fn nodes(&self) -> NodeSet {
        self.0.values().fold(NodeSet::default(), |all, nodes| all.union(nodes))
    }

    /// The members on these nodes.
    #[must_use]
    pub fn on(&self, nodes: &NodeSet) -> Self {
        self.map(|_, here| here.intersection(nodes))
    }

    /// The members that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.map(|daemon, nodes| {
            other.0.get(daemon).map_or_else(|| nodes.clone(), |gone| nodes.difference(gone))
        })
    }

    /// The members that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.map(|daemon, nodes| {
            other.0.get(daemon).map_or_else(NodeSet::default, |both| nodes.intersection(both))
        })
    }

    /// The members of both sets together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (daemon, nodes) in &other.0 {
            all.insert_all(*daemon, nodes);
        }
        all
    }

    fn map(&self, make: impl Fn(&DaemonId, &NodeSet) -> NodeSet) -> Self {
        let sets = self.0.iter().map(|(daemon, nodes)| (*daemon, make(daemon, nodes)));
        Self(sets.filter(|(_, nodes)| !nodes.is_empty()).collect())
    }
}

impl FromIterator<Member> for MemberSet {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        let mut sets = BTreeMap::<DaemonId, NodeSet>::new();
        for Member { node, daemon } in members {
            sets.entry(daemon).or_default().insert(node);
        }
        Self(sets)
    }
}

/// An order of the frontend on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelOrder {
    /// A message for members. A node answers when its members have taken it: [`Answer::Done`](super::message::Answer),
    /// or [`Answer::Undelivered`](super::message::Answer) if some never will.
    Message {
        /// The channel's session.
        session: SessionId,
        /// The members that get it.
        to: MemberSet,
        /// The tag.
        tag: u32,
        /// The message, of [`MAX_MESSAGE_BYTES`] at most.
        bytes: Blob,
    },
    /// As a message, with its bytes in a bulk stream.
    Stream {
        /// The channel's session.
        session: SessionId,
        /// The members that get it.
        to: MemberSet,
        /// The tag.
        tag: u32,
        /// The bulk stream's number.
        stream: u64,
    },
    /// Requests a contribution of each of these members. The reply is parts and reports of missing members, not an
    /// answer.
    Collect {
        /// The channel's session.
        session: SessionId,
        /// The operation's number, used once in an app.
        operation: u64,
        /// The tag.
        tag: u32,
        /// The members that are to contribute.
        of: MemberSet,
        /// The filter that agents apply to the parts on their way up. `None`: agents forward them unchanged.
        filter: Option<Filter>,
    },
    /// The timeout is near: members that have not contributed are missing, and the available parts go up.
    Hurry {
        /// The operation's number.
        operation: u64,
        /// How long an agent waits for the nodes below it, in milliseconds for each level below it.
        patience_ms: u32,
    },
    /// Cancels the operation: it has no receiver any more.
    End {
        /// The operation's number.
        operation: u64,
    },
}

/// A notice on a channel, other than an answer.
///
/// The enclosing notice names its node. A daemon's unrequested messages are not among these; they are a
/// [flow](super::flow::FlowId::Messages).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelNotice {
    /// A part begins. Its rest, if there is any, is a [flow](super::flow::FlowId::Part).
    Part {
        /// The operation's number.
        operation: u64,
        /// The part's number on its node: the number of the contributing daemon, or one from [`FIRST_MADE`].
        part: u32,
        /// The members whose contributions are in it.
        of: MemberSet,
        /// Size of the whole part in bytes.
        total: u64,
        /// Its first bytes: [`CHUNK_BYTES`], or all.
        bytes: Blob,
    },
    /// These members contribute nothing.
    Missing {
        /// The operation's number.
        operation: u64,
        /// The members.
        of: MemberSet,
        /// The reason.
        why: Failure,
    },
}

/// A flow between a daemon that has opened the channel and its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DaemonFlow {
    /// The daemon's unrequested messages to the tool. A message's label is its tag.
    Messages,
    /// The tool's messages to the daemon. Their bytes come as [`ToDaemon::Message`].
    Inbox,
    /// First chunks of contributions that no operation has requested yet. They come as [`FromDaemon::Part`].
    Early,
    /// The rest of a contribution. [`Word::End`] of the daemon gives it up, and of the agent means that it has no
    /// receiver any more.
    Part {
        /// The tag.
        tag: u32,
        /// Number of earlier contributions with this tag.
        round: u64,
    },
}

impl DaemonFlow {
    /// The sender's window before it gets any credit, and the cost of a message besides its bytes.
    const fn terms(self) -> (u32, u32) {
        match self {
            Self::Messages | Self::Inbox | Self::Early => (CHANNEL_WINDOW_BYTES, OVERHEAD_BYTES),
            Self::Part { .. } => (0, 0),
        }
    }

    /// The sender's window before it gets any credit.
    #[must_use]
    pub const fn window(self) -> u32 {
        self.terms().0
    }

    /// The sender's end.
    #[must_use]
    pub const fn outflow(self) -> Outflow {
        let (window, overhead) = self.terms();
        Outflow::new(window, overhead)
    }

    /// The receiver's end.
    #[must_use]
    pub fn inflow(self) -> Inflow {
        Inflow::new(self.window())
    }
}

/// A daemon's message on its connection after it has opened the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// A word of a flow.
    Flow {
        /// Which flow.
        flow: DaemonFlow,
        /// The word.
        word: Word,
    },
    /// A contribution begins. Its rest, if there is any, is [`DaemonFlow::Part`].
    Part {
        /// The tag.
        tag: u32,
        /// Number of earlier contributions with this tag.
        round: u64,
        /// Size of the whole contribution in bytes.
        total: u64,
        /// Its first bytes: [`CHUNK_BYTES`], or all.
        bytes: Blob,
    },
    /// This daemon merges parts for the filter of this name.
    Serve {
        /// The filter's name.
        filter: String,
    },
    /// The result of a merge, in chunks.
    Merged {
        /// The number of the operation whose parts were merged.
        operation: u64,
        /// The next bytes, or why there are none.
        bytes: Result<Blob, Failure>,
        /// Whether they are the last.
        last: bool,
    },
}

/// An agent's message to a daemon that has opened the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// A word of a flow.
    Flow {
        /// Which flow.
        flow: DaemonFlow,
        /// The word.
        word: Word,
    },
    /// The next bytes of a message. Messages do not interleave.
    Message {
        /// The tag.
        tag: u32,
        /// The bytes.
        bytes: Blob,
        /// Whether the message ends with them.
        last: bool,
    },
    /// The rest of a message that has begun will not arrive.
    Cut {
        /// Why.
        why: Failure,
    },
    /// A chunk of a part that is to be merged with others.
    Merge {
        /// The filter's name; a daemon may serve several.
        filter: String,
        /// The number of the operation. No more of its parts come before the answer.
        operation: u64,
        /// The bytes.
        bytes: Blob,
        /// Whether the part ends with them.
        part_ends: bool,
        /// Whether it was the last part.
        last: bool,
    },
    /// The agent closes the connection, for this reason.
    Refused(Failure),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[(u32, u32)]) -> MemberSet {
        members
            .iter()
            .map(|(node, daemon)| Member { node: NodeId(*node), daemon: DaemonId(*daemon) })
            .collect()
    }

    #[test]
    fn sets_of_members_are_sets_of_pairs() {
        let (one, other) = (set(&[(0, 1), (1, 1), (1, 2)]), set(&[(1, 1), (7, 2)]));
        assert_eq!((one.len(), one.difference(&other)), (3, set(&[(0, 1), (1, 2)])));
        assert_eq!(one.intersection(&other), set(&[(1, 1)]));
        assert_eq!(one.union(&other), set(&[(0, 1), (1, 1), (1, 2), (7, 2)]));
        assert_eq!(one.on(&NodeSet::first_n(1)), set(&[(0, 1)]));
        assert_eq!(one.daemons_on(NodeId(1)).collect::<Vec<_>>(), [DaemonId(1), DaemonId(2)]);
        assert_eq!(one.difference(&one), MemberSet::default());
        assert!(one.contains(Member { node: NodeId(1), daemon: DaemonId(2) }));
        assert!(!one.contains(Member { node: NodeId(0), daemon: DaemonId(2) }));
        assert_eq!(one.iter().collect::<MemberSet>(), one);
        assert_eq!(one.nodes(), NodeSet::first_n(2));
    }

    #[test]
    fn chunks_are_all_of_the_bytes_and_never_none() {
        for (bytes, expected) in
            [(0, 1), (1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (3 * CHUNK_BYTES, 3)]
        {
            let bytes: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let chunks: Vec<_> = chunks_of(&bytes).collect();
            assert_eq!(chunks.iter().flat_map(|(chunk, _)| chunk.0.clone()).collect::<Vec<_>>(), bytes);
            assert_eq!(chunks.iter().position(|(_, last)| *last), Some(expected - 1));
            assert_eq!(chunks.len(), expected);
        }
    }

    #[test]
    fn a_set_of_many_nodes_is_small_on_the_wire() {
        let mut all = MemberSet::default();
        all.insert_all(DaemonId(1), &NodeSet::first_n(1_000_000));
        assert!(postcard::to_stdvec(&all).unwrap().len() < 16);
        let empty = postcard::to_stdvec(&BTreeMap::from([(DaemonId(1), NodeSet::default())])).unwrap();
        assert!(postcard::from_bytes::<MemberSet>(&empty).unwrap().is_empty());
    }
}
