//! The output of the hub for the relay, and of an operation for the hub.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::channel::{ChannelNotice, MemberSet};
use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::message::Answer;
use gantry_types::error::Failure;
use gantry_types::id::{DaemonId, NodeId, RequestId};

use super::filtering::Batch;

/// What the relay must do after an input.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Answers an order.
    Answer(RequestId, Result<Answer, Failure>),
    /// Sends a notice of this node up.
    Up(ChannelNotice),
    /// Sends a word of one of this node's flows up.
    Say(FlowId, Word),
    /// Gives a node further down credit for one of its flows.
    Credit(NodeId, FlowId, u32),
    /// Merges parts of an operation on a thread that may block. [`Hub::batch_merged`](super::Hub::batch_merged) takes the result.
    Merge(u64, Batch),
    /// Calls [`Hub::due`](super::Hub::due) with this value after the delay.
    Later(Later, Duration),
}

/// What a timer does when it fires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Later {
    /// The agents further down have had their time to send what they have.
    Expire(u64),
    /// A daemon has ended, but another process may hold its connection open.
    Close(DaemonId),
}

/// The node that a part comes from, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartKey {
    pub(super) node: NodeId,
    pub(super) part: u32,
}

/// Parts for a daemon to merge.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) daemon: DaemonId,
    pub(super) filter: String,
    pub(super) parts: Vec<Arc<Vec<u8>>>,
}

/// The output of an operation after an input.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Sends chunks of parts up.
    pub(super) chunks: Vec<Effect>,
    /// The missing members, and why.
    pub(super) missing: Vec<(MemberSet, Failure)>,
    /// Credit for parts of which more bytes may come.
    pub(super) credit: Vec<(PartKey, u32)>,
    /// Parts that a daemon is to merge.
    pub(super) job: Option<Job>,
    /// Parts that are too large to merge at once.
    pub(super) batch: Option<Batch>,
}
