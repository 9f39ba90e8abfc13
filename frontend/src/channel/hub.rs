//! Assigns what daemons send to its operation or session.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gantry_shared::wire::channel::{ChannelNotice, ChannelOrder, Member, MemberSet};
use gantry_shared::wire::flow::{FlowId, Word, parse_message_label};
use gantry_shared::wire::message::{Order, To};
use gantry_types::filter::Reduce;
use gantry_types::id::{DaemonId, NodeId, SessionId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::{Semaphore, mpsc};

use super::inbox::Inbox;
use crate::lock::lock;
use crate::overlay::Overlay;

/// Large messages that one session may send at once. Nodes take few streams at a time.
const STREAMS: usize = 4;

/// A filter of the tool's own, started for each reduction.
pub type StartFilter = Box<dyn Fn() -> Box<dyn Reduce> + Send + Sync>;

/// All channels of an app.
#[derive(Debug)]
pub(crate) struct Channels {
    overlay: Overlay,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    closed: bool,
    operations: HashMap<u64, (SessionId, mpsc::UnboundedSender<Coming>)>,
    ends: HashMap<SessionId, Weak<End>>,
}

/// Input of an operation.
#[derive(Debug)]
pub(crate) enum Coming {
    /// From a node.
    Notice(NodeId, ChannelNotice),
    /// The next bytes of a part of a node.
    Rest(NodeId, u32, Vec<u8>),
    /// Nodes are lost, and why.
    Lost(NodeSet, String),
}

/// The tool's end of a session's channel.
pub(crate) struct End {
    pub(super) inbox: Inbox,
    members: Mutex<BTreeMap<DaemonId, NodeSet>>,
    windows: Mutex<HashMap<Member, Arc<Semaphore>>>,
    pub(super) streams: Semaphore,
    pub(super) filters: Mutex<HashMap<String, StartFilter>>,
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End").field("members", &self.members).finish_non_exhaustive()
    }
}

impl End {
    /// Daemons that were started in the session.
    pub(super) fn members(&self) -> MemberSet {
        let mut all = MemberSet::default();
        for (daemon, nodes) in lock(&self.members).iter() {
            all.insert_all(*daemon, nodes);
        }
        all
    }

    /// Adds a running daemon.
    pub(crate) fn join(&self, daemon: DaemonId, nodes: NodeSet) {
        lock(&self.members).insert(daemon, nodes);
    }

    /// The window of messages on their way to a member.
    pub(super) fn window(&self, member: Member) -> Arc<Semaphore> {
        let window = || Arc::new(Semaphore::new(gantry_shared::wire::channel::CHANNEL_WINDOW_BYTES as usize));
        Arc::clone(lock(&self.windows).entry(member).or_insert_with(window))
    }
}

impl Channels {
    pub(crate) fn new(overlay: Overlay) -> Self {
        Self { overlay, inner: Mutex::default() }
    }

    /// Makes a session's end of the channel. It keeps what arrives from now on.
    pub(crate) fn open(&self, session: SessionId) -> Arc<End> {
        let end = Arc::new(End {
            inbox: Inbox::default(),
            members: Mutex::default(),
            windows: Mutex::default(),
            streams: Semaphore::new(STREAMS),
            filters: Mutex::default(),
        });
        let mut inner = lock(&self.inner);
        inner.ends.retain(|_, end| end.strong_count() > 0);
        inner.ends.insert(session, Arc::downgrade(&end));
        end
    }

    /// Begins an operation that will be sent to `nodes`.
    pub(super) fn begin(self: &Arc<Self>, session: SessionId, nodes: NodeSet) -> Operation {
        let (to, from) = mpsc::unbounded_channel();
        let mut inner = lock(&self.inner);
        inner.last += 1;
        let number = inner.last;
        if !inner.closed {
            inner.operations.insert(number, (session, to));
        }
        Operation { channels: Arc::clone(self), number, nodes, from }
    }

    /// Passes a node's notice to its operation.
    pub(crate) fn hear(&self, node: NodeId, notice: ChannelNotice) {
        let operation = match &notice {
            ChannelNotice::Part { operation, .. } | ChannelNotice::Missing { operation, .. } => *operation,
        };
        self.give(operation, Coming::Notice(node, notice));
    }

    /// Passes a node's word of the rest of a part to its operation.
    pub(crate) fn hear_part(&self, node: NodeId, operation: u64, part: u32, word: Word) {
        if let Word::Data { bytes, .. } = word {
            self.give(operation, Coming::Rest(node, part, bytes.0));
        }
    }

    fn give(&self, operation: u64, coming: Coming) {
        if let Some((_, to)) = lock(&self.inner).operations.get(&operation) {
            // The operation's future may be dropped at this moment.
            drop(to.send(coming));
        }
    }

    /// Handles a node's message of the flow of a daemon's messages.
    pub(crate) fn hear_daemon(&self, node: NodeId, daemon: DaemonId, word: Word) {
        let Word::Data { label, bytes } = word else { return };
        let (session, tag) = parse_message_label(label);
        let end = lock(&self.inner).ends.get(&session).and_then(Weak::upgrade);
        // Without an end the session's handle is gone, so no caller can take the message. The daemon ends soon too.
        if let Some(end) = end {
            end.inbox.add(Member { node, daemon }, tag, bytes.0);
        }
    }

    /// Tells all operations about lost nodes.
    pub(crate) fn lose(&self, nodes: &NodeSet, reason: &str) {
        for (_, to) in lock(&self.inner).operations.values() {
            drop(to.send(Coming::Lost(nodes.clone(), reason.to_owned())));
        }
    }

    /// Closes a session, or (none) everything. Waiting callers return.
    pub(crate) fn close(&self, session: Option<SessionId>) {
        let mut inner = lock(&self.inner);
        inner.closed |= session.is_none();
        inner.operations.retain(|_, (of, _)| session.is_some_and(|session| session != *of));
        let ends: Vec<_> =
            inner.ends.iter().filter(|(of, _)| session.is_none_or(|session| session == **of)).collect();
        for end in ends.into_iter().filter_map(|(_, end)| end.upgrade()) {
            end.inbox.close();
            end.streams.close();
        }
    }
}

/// A running operation. Dropping it ends it on all nodes.
#[derive(Debug)]
pub(super) struct Operation {
    channels: Arc<Channels>,
    number: u64,
    nodes: NodeSet,
    from: mpsc::UnboundedReceiver<Coming>,
}

impl Operation {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn tell(&self, to: To, order: ChannelOrder) {
        self.channels.overlay.tell(to, Order::Channel(order));
    }

    /// Gives a node credit for the rest of a part.
    pub(super) fn give_credit(&self, node: NodeId, part: u32, bytes: u32) {
        let flow = FlowId::Part { operation: self.number, part };
        self.channels.overlay.say(node, flow, Word::Credit(bytes));
    }

    /// The next input. None: the session is over.
    pub(super) async fn next(&mut self) -> Option<Coming> {
        self.from.recv().await
    }

    /// Has agents forward what they have collected, within that time.
    pub(super) fn hurry(&self, time: Duration) {
        let levels = self.channels.overlay.depth() + 1;
        let patience_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX) / levels;
        let order = ChannelOrder::Hurry { operation: self.number, patience_ms };
        self.tell(To::Nodes(self.nodes.clone()), order);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        lock(&self.channels.inner).operations.remove(&self.number);
        self.tell(To::Nodes(self.nodes.clone()), ChannelOrder::End { operation: self.number });
    }
}
