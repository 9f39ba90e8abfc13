//! Flows: what is streamed between the frontend and one node, each with a window that its receiver enforces.
//!
//! A flow has a name on its node. Its sender says [`Word::Data`] as far as it has room, and [`Word::End`] behind that. Its receiver says [`Word::Credit`]
//! as it takes what came, and [`Word::End`] when it wants no more. A link keeps the order of words, so the end comes behind the data.
//!
//! | flow | begins with | window of the sender | what a message costs |
//! | --- | --- | --- | --- |
//! | [`Output`](FlowId::Output), up | the order that starts the processes | [`OUTPUT_WINDOW_BYTES`] | its bytes and [`OVERHEAD_BYTES`] |
//! | [`Input`](FlowId::Input), down | the order that starts the rank | [`OUTPUT_WINDOW_BYTES`] | its bytes |
//! | [`Messages`](FlowId::Messages), up | the order that starts the daemon | [`CHANNEL_WINDOW_BYTES`] | its bytes and [`OVERHEAD_BYTES`] |
//! | [`Items`](FlowId::Items), up | the node itself | [`ITEM_WINDOW_BYTES`] | its bytes |
//! | [`Link`](FlowId::Link), both ways | [`Word::Open`] | down [`LINK_WINDOW_BYTES`]; up the first credit | its bytes |
//!
//! [`Outflow`] and [`Inflow`] are the two ends. They hold numbers only, so there is nothing concurrent in them: their owner calls them from one place.

use std::fmt;

use gantry_types::id::{DaemonId, Rank, SessionId};
use gantry_types::output::Stream;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::channel::CHANNEL_WINDOW_BYTES;
use super::owed::Owed;
use super::rendezvous::ITEM_WINDOW_BYTES;
use super::runtime::LINK_WINDOW_BYTES;
use super::window::{OVERHEAD_BYTES, Overrun, Receiver};

/// How many bytes of output of one daemon, or of all ranks of a node, may be on their way before the reader has taken them. The same
/// holds for a rank's standard input the other way. It bounds the memory of both sides and lets the writer wait, as on a pipe.
pub const OUTPUT_WINDOW_BYTES: u32 = 256 * 1024;

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A rank's.
    Rank(Rank),
    /// A tool daemon's, on the node of the flow.
    Daemon(DaemonId),
}

/// A flow of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FlowId {
    /// What a daemon writes; none: what all ranks of the node write. A message's label is an [`output_label`].
    Output(Option<DaemonId>),
    /// A rank's standard input.
    Input(Rank),
    /// What a daemon sends to the tool unasked. A message's label is a [`message_label`].
    Messages(DaemonId),
    /// What the node's ranks register. A message's label is the item's number.
    Items,
    /// A rank's link to its job, by the agent's count.
    Link(u32),
}

/// What is said of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Up, of a link: it is there, and whose it is. Answered by credit or by the end.
    Open(Rank),
    /// The next bytes.
    Data {
        /// Which of those that share the flow they belong to.
        label: u64,
        /// The bytes.
        bytes: Blob,
    },
    /// So many bytes more may come.
    Credit(u32),
    /// From a link's receiver: what is there comes now, as far as [`LAST_WORDS_WINDOW_BYTES`](super::runtime::LAST_WORDS_WINDOW_BYTES) go, and then the end.
    Drain,
    /// From the sender: nothing more comes. From the receiver: nothing more is taken, and what the source still has is dropped.
    End,
}

impl Word {
    /// Bytes of a flow that has one source.
    #[must_use]
    pub fn data(bytes: Vec<u8>) -> Self {
        Self::Data { label: 0, bytes: Blob(bytes) }
    }
}

impl FlowId {
    /// What a node may send before it has any credit.
    #[must_use]
    pub const fn window_up(self) -> u32 {
        match self {
            Self::Output(_) => OUTPUT_WINDOW_BYTES,
            Self::Messages(_) => CHANNEL_WINDOW_BYTES,
            Self::Items => ITEM_WINDOW_BYTES,
            Self::Input(_) | Self::Link(_) => 0,
        }
    }

    /// What the frontend may send before it has any credit.
    #[must_use]
    pub const fn window_down(self) -> u32 {
        match self {
            Self::Input(_) => OUTPUT_WINDOW_BYTES,
            Self::Link(_) => LINK_WINDOW_BYTES,
            Self::Output(_) | Self::Messages(_) | Self::Items => 0,
        }
    }

    /// What a message of so many bytes costs.
    #[must_use]
    pub fn cost_of(self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.overhead())
    }

    /// What a message costs beside its bytes. Output and messages stay apart until the tool takes them; bytes of the others are put together, and an
    /// empty message says nothing there.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        match self {
            Self::Output(_) | Self::Messages(_) => OVERHEAD_BYTES,
            Self::Input(_) | Self::Items | Self::Link(_) => 0,
        }
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
        }
    }
}

/// The flow in which a process's output comes.
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

/// Whose output it is, by its flow and its label. None for a label that stands for no process.
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
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
pub fn parse_message_label(label: u64) -> (SessionId, u32) {
    (SessionId((label >> 32) as u32), label as u32)
}

/// The sender's end of a flow: how much it may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outflow {
    room: u32,
    overhead: u32,
}

impl Outflow {
    /// Of a node's end.
    #[must_use]
    pub const fn up(flow: FlowId) -> Self {
        Self { room: flow.window_up(), overhead: flow.overhead() }
    }

    /// How many of so many bytes can go in the next message.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> usize {
        usize::try_from(self.room.saturating_sub(self.overhead)).unwrap_or(usize::MAX).min(bytes)
    }

    /// A message is sent.
    pub fn send(&mut self, bytes: usize) {
        let cost = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.overhead);
        self.room = self.room.saturating_sub(cost);
    }

    /// The receiver has taken so much.
    pub fn earn(&mut self, bytes: u32) {
        self.room = self.room.saturating_add(bytes);
    }
}

/// The receiver's end of a flow: how much may come, and when the sender is told that there is room again.
#[derive(Debug, Clone, Copy)]
pub struct Inflow {
    window: Receiver,
    owed: Owed,
}

impl Inflow {
    /// Of a node's end.
    #[must_use]
    pub fn down(flow: FlowId) -> Self {
        Self { window: Receiver::new(flow.window_down()), owed: Owed::of(flow.window_down()) }
    }

    /// Bytes came.
    ///
    /// # Errors
    /// There was no room for them.
    pub fn arrive(&mut self, bytes: usize) -> Result<(), Overrun> {
        self.window.take(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Bytes that came were taken. Gives the credit that the sender is to get now, if any.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> Option<u32> {
        let due = self.owed.take(u32::try_from(bytes).unwrap_or(u32::MAX))?;
        self.window.grant(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests;
