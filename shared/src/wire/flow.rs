//! Flows: streams of bytes between the frontend and one node, each with a window that its receiver enforces.
//!
//! A flow has a name on its node. Its sender sends [`Word::Data`] as long as it has room, and then [`Word::End`]. Its
//! receiver sends [`Word::Credit`] as it takes the data, and [`Word::End`] to stop the sender. A link keeps the order
//! of words, so the end arrives after the data.
//!
//! | flow | begins with | window of the sender | cost of a message |
//! | --- | --- | --- | --- |
//! | [`Output`](FlowId::Output), up | start of the processes | [`OUTPUT_WINDOW_BYTES`] | bytes + [`OVERHEAD_BYTES`] |
//! | [`Input`](FlowId::Input), down | start of the rank | [`OUTPUT_WINDOW_BYTES`] | bytes |
//! | [`Messages`](FlowId::Messages), up | start of the daemon | [`CHANNEL_WINDOW_BYTES`] | bytes + [`OVERHEAD_BYTES`] |
//! | [`Items`](FlowId::Items), up | the node itself | [`ITEM_WINDOW_BYTES`] | bytes |
//! | [`Link`](FlowId::Link), both ways | [`Word::Open`] | down [`LINK_WINDOW_BYTES`]; up the first credit | bytes |
//! | [`Part`](FlowId::Part), up | [`ChannelNotice::Part`](super::channel::ChannelNotice::Part) | the first credit | bytes |
//!
//! [`Outflow`] and [`Inflow`] are the two ends. They hold only numbers, and their owner calls them from one place. So
//! they need no lock. A daemon and its agent have flows by the same rules:
//! [`DaemonFlow`](super::channel::DaemonFlow). So have the two ends of a link, for chunks of bulk data.

use std::fmt;

use gantry_types::id::{DaemonId, Rank, SessionId};
use gantry_types::output::Stream;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::rendezvous::ITEM_WINDOW_BYTES;
use super::runtime::LINK_WINDOW_BYTES;
use super::window::{CHANNEL_WINDOW_BYTES, OVERHEAD_BYTES, Outstanding, Overrun, Owed, Receiver};

/// The most unacknowledged bytes of output of one daemon, or of all ranks of a node.
///
/// The same limit holds for a rank's standard input, in the other direction. It bounds the memory of both sides and
/// makes the writer wait, as on a pipe.
pub const OUTPUT_WINDOW_BYTES: u32 = 256 * 1024;

/// The process that an output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A rank.
    Rank(Rank),
    /// A tool daemon on the node of the flow.
    Daemon(DaemonId),
}

/// A flow of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FlowId {
    /// Output of a daemon, or of all ranks of the node for `None`. A message's label is an [`output_label`].
    Output(Option<DaemonId>),
    /// A rank's standard input.
    Input(Rank),
    /// A daemon's unrequested messages to the tool. A message's label is a [`message_label`].
    Messages(DaemonId),
    /// Items that the node's ranks register. A message's label is the item's number.
    Items,
    /// A rank's link to its job, with the agent's number for it.
    Link(u32),
    /// The rest of a part of a channel operation. The next agent that merges the operation receives it, or else the
    /// frontend.
    Part {
        /// The operation's number.
        operation: u64,
        /// The part's number on its node.
        part: u32,
    },
}

/// A word on a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Up, on a link: opens it for this rank. Answered by credit or by the end.
    Open(Rank),
    /// The next bytes.
    Data {
        /// Tells apart the sources that share the flow.
        label: u64,
        /// The bytes.
        bytes: Blob,
    },
    /// Credit for this many more bytes.
    Credit(u32),
    /// From a link's receiver: send the available data now, up to
    /// [`LAST_WORDS_WINDOW_BYTES`](super::runtime::LAST_WORDS_WINDOW_BYTES), and then the end.
    Drain,
    /// From the sender: no more data follows. From the receiver: it takes no more data, and the source's remaining data
    /// is dropped.
    End,
}

impl Word {
    /// Bytes of a flow with one source.
    #[must_use]
    pub fn data(bytes: Vec<u8>) -> Self {
        Self::Data { label: 0, bytes: Blob(bytes) }
    }
}

impl FlowId {
    /// The windows of the node and of the frontend before they get any credit, and the cost of a message besides its
    /// bytes.
    ///
    /// Output and messages stay separate until the tool takes them. Bytes of the other flows are joined, and an empty
    /// message means nothing there.
    const fn terms(self) -> (u32, u32, u32) {
        match self {
            Self::Output(_) => (OUTPUT_WINDOW_BYTES, 0, OVERHEAD_BYTES),
            Self::Messages(_) => (CHANNEL_WINDOW_BYTES, 0, OVERHEAD_BYTES),
            Self::Items => (ITEM_WINDOW_BYTES, 0, 0),
            Self::Input(_) => (0, OUTPUT_WINDOW_BYTES, 0),
            Self::Link(_) => (0, LINK_WINDOW_BYTES, 0),
            Self::Part { .. } => (0, 0, 0),
        }
    }

    /// A node's window before it gets any credit.
    #[must_use]
    pub const fn window_up(self) -> u32 {
        self.terms().0
    }

    /// The frontend's window before it gets any credit.
    #[must_use]
    pub const fn window_down(self) -> u32 {
        self.terms().1
    }

    /// The cost of a message of that many bytes.
    #[must_use]
    pub fn cost_of(self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.overhead())
    }

    /// The cost of a message besides its bytes.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        self.terms().2
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(None) => f.write_str("output of its ranks"),
            Self::Output(Some(daemon)) => write!(f, "output of daemon {daemon}"),
            Self::Input(rank) => write!(f, "standard input of rank {rank}"),
            Self::Messages(daemon) => write!(f, "messages of daemon {daemon}"),
            Self::Items => f.write_str("rendezvous items"),
            Self::Link(link) => write!(f, "link {link}"),
            Self::Part { operation, part } => write!(f, "contribution {part} to operation {operation}"),
        }
    }
}

/// The flow that carries a process's output.
#[must_use]
pub fn output_of(source: Source) -> FlowId {
    match source {
        Source::Rank(_) => FlowId::Output(None),
        Source::Daemon(daemon) => FlowId::Output(Some(daemon)),
    }
}

/// The label of a process's output in its flow.
#[must_use]
pub fn output_label(source: Source, stream: Stream) -> u64 {
    let rank = match source {
        Source::Rank(rank) => rank.0,
        Source::Daemon(_) => 0,
    };
    (u64::from(rank) << 1) | u64::from(stream == Stream::Stderr)
}

/// The process of an output, from its flow and its label. `None` for a label that means no process.
#[must_use]
pub fn parse_output_label(group: Option<DaemonId>, label: u64) -> Option<(Source, Stream)> {
    let stream = if label & 1 == 0 { Stream::Stdout } else { Stream::Stderr };
    let source = match (group, label >> 1) {
        (None, rank) => Source::Rank(Rank(u32::try_from(rank).ok()?)),
        (Some(daemon), 0) => Source::Daemon(daemon),
        (Some(_), _) => return None,
    };
    Some((source, stream))
}

/// The label of a daemon's message.
#[must_use]
pub fn message_label(session: SessionId, tag: u32) -> u64 {
    (u64::from(session.0) << 32) | u64::from(tag)
}

/// The session and the tag of a daemon's message.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "each half of the label is one number")]
pub fn parse_message_label(label: u64) -> (SessionId, u32) {
    (SessionId((label >> 32) as u32), label as u32)
}

/// The sender's end of a flow: how much it may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outflow {
    room: u32,
    overhead: u32,
    sent: Outstanding,
}

impl Outflow {
    /// A sender that may send this much now. A message costs `overhead` besides its bytes.
    #[must_use]
    pub const fn new(window: u32, overhead: u32) -> Self {
        Self { room: window, overhead, sent: Outstanding::NONE }
    }

    /// The sender's end on a node.
    #[must_use]
    pub const fn up(flow: FlowId) -> Self {
        Self::new(flow.window_up(), flow.overhead())
    }

    /// How many of these bytes fit into the next message.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> usize {
        usize::try_from(self.room.saturating_sub(self.overhead)).unwrap_or(usize::MAX).min(bytes)
    }

    /// Whether a message of that many bytes may be sent now.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.cost_of(bytes) <= self.room
    }

    /// Whether the receiver has taken all that was sent.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.sent == Outstanding::NONE
    }

    /// Counts a message that is sent.
    pub fn send(&mut self, bytes: usize) {
        let cost = self.cost_of(bytes);
        self.room = self.room.saturating_sub(cost);
        self.sent.send(cost);
    }

    /// Counts credit from a receiver that may grant any.
    pub fn earn(&mut self, bytes: u32) {
        self.room = self.room.saturating_add(bytes);
    }

    /// Counts credit from a receiver that only returns what it was sent.
    ///
    /// # Errors
    /// It was not sent that much. Nothing is counted.
    pub fn earn_back(&mut self, bytes: u32) -> Result<(), Overrun> {
        self.sent.give_back(bytes)?;
        self.earn(bytes);
        Ok(())
    }

    fn cost_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.overhead)
    }
}

/// The receiver's end of a flow: how much may arrive, and when the sender gets new credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inflow {
    window: Receiver,
    owed: Owed,
}

impl Inflow {
    /// A receiver whose sender may send this much now.
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { window: Receiver::new(window), owed: Owed::of(window) }
    }

    /// The receiver's end for a flow from the frontend.
    #[must_use]
    pub fn down(flow: FlowId) -> Self {
        Self::new(flow.window_down())
    }

    /// Counts what has arrived: its cost.
    ///
    /// # Errors
    /// There was no room for it.
    pub fn arrive(&mut self, bytes: usize) -> Result<(), Overrun> {
        self.window.take(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Counts what the receiver has taken. Returns the credit to send now, if any.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> Option<u32> {
        let due = self.owed.take(u32::try_from(bytes).unwrap_or(u32::MAX))?;
        self.window.grant(due);
        Some(due)
    }

    /// How much the sender may send.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.window.room()
    }
}

#[cfg(test)]
mod tests;
