//! What a tool's frontend and its daemons say to each other: on the overlay, and between a daemon and its node's agent.
//!
//! A *channel* joins the frontend and all tool daemons of one session. Downwards go messages, each answered by the node when its daemons have taken it
//! in. Upwards go *parts*: what a daemon contributes to an operation, or what an agent has made of several contributions. A part's first chunk goes
//! without being asked for; the rest on credit that its next consumer gives: the agent that merges it, or the frontend.
//!
//! Nothing here bounds how many tags a tool uses, but every tag costs some bytes on each side for as long as the session lives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gantry_types::error::Failure;
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId, SessionId};
use gantry_types::rank_set::NodeSet;

pub use super::window::{OVERHEAD_BYTES, cost_of};
pub use gantry_types::filter::concatenate::Member;

use super::blob::Blob;

/// How many bytes of messages may be on their way to one daemon, or unasked from it, before the other side has taken them.
pub const CHANNEL_WINDOW_BYTES: u32 = 256 * 1024;

/// The most bytes of a part or of a message in one frame.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The most bytes of an unasked message of a daemon, and of one from the frontend that is sent as it is; what the frontend sends and is larger goes as bulk data.
pub const MAX_MESSAGE_BYTES: usize = 128 * 1024;

/// The most bytes of one contribution, and of what a filter makes of many.
pub const MAX_PART_BYTES: u64 = 64 * 1024 * 1024;

/// How much of a part is asked for at a time.
pub const PART_WINDOW_BYTES: u32 = 256 * 1024;

/// Numbers of parts from here up are not those of daemons: an agent has made them.
pub const FIRST_MADE: u32 = u32::MAX - 0xffff;

/// Members of a channel; one daemon on ten thousand nodes costs as much as on one.
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

    /// Whether it has this member.
    #[must_use]
    pub fn contains(&self, member: Member) -> bool {
        self.0.get(&member.daemon).is_some_and(|nodes| nodes.contains(member.node))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.values().map(NodeSet::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // From the wire an empty set of nodes may come.
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

    /// The members of either.
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

/// What the frontend orders on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelOrder {
    /// A message for members. A node answers when those on it have taken it in: [`Answer::Done`](super::message::Answer), or
    /// [`Answer::Undelivered`](super::message::Answer) where some never will.
    Message {
        /// The channel's session.
        session: SessionId,
        /// Whom it is for.
        to: MemberSet,
        /// The tag.
        tag: u32,
        /// The message, of [`MAX_MESSAGE_BYTES`] at most.
        bytes: Blob,
    },
    /// As a message; its bytes are a bulk stream.
    Stream {
        /// The channel's session.
        session: SessionId,
        /// Whom it is for.
        to: MemberSet,
        /// The tag.
        tag: u32,
        /// The bulk stream's number.
        stream: u64,
    },
    /// A contribution of each of these members is wanted. Answered by no answer but by parts, and by who is missing.
    Collect {
        /// The channel's session.
        session: SessionId,
        /// The operation's number, used once in an app.
        operation: u64,
        /// The tag.
        tag: u32,
        /// Who is to contribute.
        of: MemberSet,
        /// What agents make of the parts on their way up; none: they pass them on.
        filter: Option<Filter>,
    },
    /// Time is running out: who has not contributed is missing, and what there is comes up.
    Hurry {
        /// The operation's number.
        operation: u64,
        /// How long an agent waits for those below it, in milliseconds for every level that there is.
        patience_ms: u32,
    },
    /// Nobody waits for the operation any more.
    End {
        /// The operation's number.
        operation: u64,
    },
    /// So many bytes more of a part may be sent.
    More {
        /// The operation's number.
        operation: u64,
        /// Where the part comes from.
        node: NodeId,
        /// The part's number there.
        part: u32,
        /// How many.
        bytes: u32,
    },
}

/// What comes up on a channel without being an answer, but for a daemon's unasked messages, which are a [flow](super::flow::FlowId::Messages). Where it
/// comes from says the notice that it is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelNotice {
    /// A chunk of a part.
    Part {
        /// The operation's number.
        operation: u64,
        /// The part's number on its node: the daemon's whose contribution it is, or one from [`FIRST_MADE`].
        part: u32,
        /// Whose contributions are in it; with its first chunk only.
        of: MemberSet,
        /// How many bytes all of it has.
        total: u64,
        /// The next of them, [`CHUNK_BYTES`] at most.
        bytes: Blob,
    },
    /// Nothing comes from these members.
    Missing {
        /// The operation's number.
        operation: u64,
        /// Who.
        of: MemberSet,
        /// Why.
        why: Failure,
    },
}

/// What a daemon says on its connection once it has opened the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromDaemon {
    /// An unasked message for the frontend.
    Message {
        /// The tag.
        tag: u32,
        /// The message.
        bytes: Blob,
    },
    /// A chunk of a contribution.
    Part {
        /// The tag.
        tag: u32,
        /// How many contributions with this tag came before.
        round: u64,
        /// How many bytes all of it has.
        total: u64,
        /// The next of them.
        bytes: Blob,
    },
    /// The rest of a contribution does not come.
    GiveUp {
        /// The tag.
        tag: u32,
        /// Which contribution.
        round: u64,
    },
    /// The program has taken so much of its messages.
    Taken {
        /// What they cost.
        cost: u32,
    },
    /// This daemon merges what is for the filter of this name.
    Serve {
        /// The filter's name.
        filter: String,
    },
    /// What the daemon has made of parts; in chunks.
    Merged {
        /// The number that the parts bore.
        job: u64,
        /// The next bytes, or why there are none.
        bytes: Result<Blob, Failure>,
        /// Whether they are the last.
        last: bool,
    },
}

/// What an agent says to a daemon that has opened the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// The next bytes of a message. One message comes after the other.
    Message {
        /// The tag.
        tag: u32,
        /// The bytes.
        bytes: Blob,
        /// Whether the message ends with them.
        last: bool,
    },
    /// The message whose first bytes have come does not come to its end.
    Cut {
        /// Why.
        why: Failure,
    },
    /// The daemon may send so many bytes more of unasked messages.
    Credit {
        /// How many.
        bytes: u32,
    },
    /// A contribution's first chunk no longer counts against the window of those that wait to be asked for.
    Begun {
        /// The tag.
        tag: u32,
        /// Which contribution.
        round: u64,
    },
    /// So many bytes more of a contribution may be sent.
    More {
        /// The tag.
        tag: u32,
        /// Which contribution.
        round: u64,
        /// How many.
        bytes: u32,
    },
    /// Nobody waits for a contribution any more.
    Over {
        /// The tag.
        tag: u32,
        /// Which contribution.
        round: u64,
    },
    /// A chunk of a part that is to be merged with others.
    Merge {
        /// The filter's name; a daemon may serve several.
        filter: String,
        /// The number that the answer bears.
        job: u64,
        /// The bytes.
        bytes: Blob,
        /// Whether the part ends with them.
        part_ends: bool,
        /// Whether it was the last part.
        last: bool,
    },
    /// The connection is closed, and why.
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
    fn a_set_of_many_nodes_is_small_on_the_wire() {
        let mut all = MemberSet::default();
        all.insert_all(DaemonId(1), &NodeSet::first_n(1_000_000));
        assert!(postcard::to_stdvec(&all).unwrap().len() < 16);
        let empty = postcard::to_stdvec(&BTreeMap::from([(DaemonId(1), NodeSet::default())])).unwrap();
        assert!(postcard::from_bytes::<MemberSet>(&empty).unwrap().is_empty());
    }
}
