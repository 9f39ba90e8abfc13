//! Routes messages between links.
//!
//! Nothing here waits: queues take what must be written, and callers wait for room before they call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gantry_link::queue::LinkQueue;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{
    Answer, BulkCount, BulkOrder, BulkSeat, Consumer, Down, FlowId, Notice, Order, Reply, To, Up, Word,
};
use gantry_shared::wire::rendezvous::RendezvousNotice;
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::gather::{Answers, Fences};
use super::input::Input;
use super::place::{self, Place};
use crate::channel::{self, Effect, Hub, Later};
use crate::task;

mod gathered;

/// Locks the relay for a moment, never across an await.
pub(super) fn lock(relay: &Mutex<Relay>) -> MutexGuard<'_, Relay> {
    relay.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which links are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) parent: bool,
    /// Children that have joined and not ended.
    pub(super) children: usize,
}

/// What remains to do for this agent's streams after an order is passed on.
#[derive(Debug)]
pub(super) enum OwnPart {
    /// The agent has the order that announces a stream.
    Announced { stream: u64, announced: Announced },
    /// The order is about a stream itself.
    Bulk { request: Option<RequestId>, order: BulkOrder },
}

/// What a stream is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announced {
    /// The order that the agent answers at the stream's end.
    pub(super) request: Option<RequestId>,
    pub(super) consumer: Consumer,
}

/// All that this agent knows of the tree.
#[derive(Debug)]
pub(super) struct Relay {
    place: Place,
    /// None when the link to the parent is gone.
    parent: Option<LinkQueue>,
    children: BTreeMap<NodeId, Child>,
    inputs: Option<mpsc::UnboundedSender<Input>>,
    answers: Answers,
    fences: Fences,
    gathering: Arc<Notify>,
    /// Nodes of this subtree that can no longer be reached.
    away: NodeSet,
    /// The nodes of `away` that said goodbye. The frontend does not know, so this agent answers for them.
    left: NodeSet,
    links: watch::Sender<Links>,
    bulk: BulkCount,
    channels: Hub,
    /// Allows one merge at a time: a node's processors are there for the app.
    merging: Arc<Semaphore>,
    /// For tasks that come back to the relay later.
    pub(super) own: Weak<Mutex<Self>>,
}

/// The tasks of a child's link.
#[derive(Debug)]
pub(super) struct LinkTasks {
    pub(super) reader: AbortHandle,
    pub(super) writer: AbortHandle,
}

impl LinkTasks {
    /// Cuts the link, so that the peer sees no goodbye.
    fn cut(&self) {
        self.reader.abort();
        self.writer.abort();
    }
}

#[derive(Debug)]
struct Child {
    queue: LinkQueue,
    subtree: NodeSet,
    tasks: LinkTasks,
}

impl Relay {
    pub(super) fn new(
        place: Place,
        parent: LinkQueue,
        inputs: mpsc::UnboundedSender<Input>,
        gathering: Arc<Notify>,
    ) -> Self {
        let height = place.tree.depth().saturating_sub(place.tree.depth_of(place.node.0));
        Self {
            channels: Hub::new(place.node, height, place.find_own_subtree()),
            merging: Arc::new(Semaphore::new(1)),
            own: Weak::new(),
            place,
            parent: Some(parent),
            children: BTreeMap::new(),
            inputs: Some(inputs),
            answers: Answers::default(),
            fences: Fences::default(),
            gathering,
            away: NodeSet::default(),
            left: NodeSet::default(),
            links: watch::Sender::new(Links { parent: true, children: 0 }),
            bulk: BulkCount::default(),
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Which links are open. The receiver follows changes.
    pub(super) fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// A child has joined.
    pub(super) fn child_joined(&mut self, child: NodeId, queue: LinkQueue, tasks: LinkTasks) {
        let subtree = self.place.tree.find_subtree(child);
        self.children.insert(child, Child { queue, subtree, tasks });
        self.notice(Notice::ChildJoined { child });
        self.show();
    }

    /// Forwards a word of a flow unchanged if it is for other nodes only.
    ///
    /// # Errors
    /// Returns the body: it is for this node, or is no word of a flow.
    pub(super) fn pass_flow_down(&self, body: Vec<u8>) -> Result<(), Vec<u8>> {
        match Down::peek_flow(&body) {
            Some(to @ To::Nodes(_)) if !to.contains(self.place.node) => {
                self.send_to_children(&to, &body.into());
                Ok(())
            }
            _ => Err(body),
        }
    }

    /// Passes on an order from above. Returns the part for this agent's streams.
    pub(super) fn pass_down(&mut self, down: Down, body: Vec<u8>) -> Option<OwnPart> {
        let Down { request, to, order } = down;
        let own = to.contains(self.place.node);
        if let Some(request) = request
            && !(self.children.is_empty() && self.left.is_empty())
        {
            let asked = match &to {
                To::All => self.place.find_own_subtree(),
                To::Nodes(nodes) => nodes.intersection(&self.place.find_own_subtree()),
            };
            self.answers.expect(request, asked.difference(&self.away));
            self.answer_for(request, &asked.intersection(&self.left));
        }
        let announced = order.announces().filter(|_| own).map(|(stream, consumer)| OwnPart::Announced {
            stream,
            announced: Announced { request, consumer },
        });
        match order {
            Order::Bulk(BulkOrder::Link { stream, seats }) => {
                self.pass_seats(request, &to, stream, &seats);
                let own = seats.into_iter().filter(|seat| seat.node == self.place.node).collect();
                Some(OwnPart::Bulk { request, order: BulkOrder::Link { stream, seats: own } })
            }
            Order::Channel(order) => {
                self.send_to_children(&to, &body.into());
                let away = self.left.clone();
                self.channel(|hub| hub.obey(request, order, own, &away));
                announced
            }
            order => {
                self.send_to_children(&to, &body.into());
                if own { self.take_own(request, order).or(announced) } else { None }
            }
        }
    }

    /// Runs `act` on the channels and carries out its effects.
    pub(super) fn channel<T>(&mut self, act: impl FnOnce(&mut Hub) -> T) -> T {
        let done = act(&mut self.channels);
        for effect in self.channels.take_effects() {
            match effect {
                Effect::Answer(request, reply) => self.answer(request, reply),
                Effect::Up(notice) => self.notice(Notice::Channel(notice)),
                Effect::Say(flow, word) => self.notice(Notice::Flow { flow, word }),
                Effect::Credit(node, flow, bytes) => {
                    let to = To::Nodes(NodeSet::from_range(node..=node));
                    let order = Order::Flow { flow, word: Word::Credit(bytes) };
                    self.send_on(Down { request: None, to, order });
                }
                Effect::Merge(operation, batch) => self.merge(operation, batch),
                Effect::Later(what, after) => self.later(what, after),
            }
        }
        done
    }

    /// Merges on a thread that may block.
    fn merge(&self, operation: u64, batch: channel::Batch) {
        let (relay, turn) = (self.own.clone(), Arc::clone(&self.merging));
        task::spawn(async move {
            let Ok(_turn) = turn.acquire().await else { return };
            let merged = tokio::task::spawn_blocking(move || batch.merge()).await;
            if let (Ok(merged), Some(relay)) = (merged, relay.upgrade()) {
                lock(&relay).channel(|hub| hub.batch_merged(operation, merged));
            }
        });
    }

    fn later(&self, what: Later, after: Duration) {
        let relay = self.own.clone();
        task::spawn(async move {
            sleep(after).await;
            if let Some(relay) = relay.upgrade() {
                lock(&relay).channel(|hub| hub.due(what));
            }
        });
    }

    /// Sends each child the seats in a stream's tree of that child and of the nodes below it.
    fn pass_seats(&self, request: Option<RequestId>, to: &To, stream: u64, seats: &[BulkSeat]) {
        for child in self.children.values() {
            let seats: Vec<_> =
                seats.iter().filter(|seat| child.subtree.contains(seat.node)).cloned().collect();
            if seats.is_empty() {
                continue;
            }
            let order = Order::Bulk(BulkOrder::Link { stream, seats });
            // It is a part of an order that fitted in a frame.
            if let Ok(body) = frame::encode_body(&Down { request, to: to.clone(), order }) {
                child.queue.send(body.into());
            }
        }
    }

    fn send_to_children(&self, to: &To, body: &Arc<[u8]>) {
        for child in self.children.values() {
            let wanted = match to {
                To::All => true,
                To::Nodes(nodes) => !child.subtree.is_disjoint(nodes),
            };
            if wanted {
                child.queue.send(Arc::clone(body));
            }
        }
    }

    fn take_own(&mut self, request: Option<RequestId>, order: Order) -> Option<OwnPart> {
        match order {
            Order::Bulk(BulkOrder::Count) => {
                if let Some(request) = request {
                    self.answer(request, Ok(Answer::Bulk(self.bulk)));
                }
                None
            }
            Order::Bulk(order) => Some(OwnPart::Bulk { request, order }),
            Order::CutChild { child, reason } => {
                self.cut_child(child, &reason);
                None
            }
            order => {
                self.give(Input::Order { request, order });
                None
            }
        }
    }

    /// Sends an order of this agent's own further down.
    pub(super) fn send_on(&self, down: Down) {
        // Such orders are short, and fit in a frame.
        if let Ok(body) = frame::encode_body(&down) {
            self.send_to_children(&down.to, &body.into());
        }
    }

    /// Counts bulk data that has passed through.
    pub(super) fn count_bulk(&mut self, received: u64, sent: u64) {
        self.bulk.received += received;
        self.bulk.sent += sent;
    }

    /// Gives an input to this agent itself.
    pub(super) fn give(&mut self, input: Input) {
        if let Some(inputs) = &self.inputs {
            // A leaving agent no longer reads its inputs.
            drop(inputs.send(input));
        }
    }

    /// Forwards a word of a flow of `node` from a child unchanged, unless this node merges the part that it belongs to.
    ///
    /// Writing the frame to the parent releases `room`.
    ///
    /// # Errors
    /// As [`Relay::pass_up`].
    pub(super) fn pass_flow_up(
        &mut self,
        child: NodeId,
        (node, flow): (NodeId, FlowId),
        body: Vec<u8>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), String> {
        // The agent ignores a child whose link it has cut.
        let Some(known) = self.children.get(&child) else { return Ok(()) };
        place::check_node(&known.subtree, node)?;
        if let FlowId::Part { operation, part } = flow
            && self.channels.merges(operation)
            && let Ok(Up::Notice { notice: Notice::Flow { word: Word::Data { bytes, .. }, .. }, .. }) =
                frame::decode(&body)
        {
            self.channel(|hub| hub.feed(node, operation, part, bytes.0));
        } else {
            // The child may have passed it on unread. So the frontend finds out who has sent what is no data.
            self.send_in_order(node, body, room);
        }
        Ok(())
    }

    /// Sends a node's message behind what is gathered of it: the message must not overtake that.
    fn send_in_order(&mut self, node: NodeId, body: Vec<u8>, room: Option<OwnedSemaphorePermit>) {
        let (answers, puts) = (self.answers.take_of(node), self.fences.take_of(node));
        self.send_answers(answers);
        self.send_puts(puts);
        self.send_up(body.into(), room);
    }

    /// Takes a frame of a child, whose bytes are `body`. Writing it to the parent releases `room`.
    ///
    /// # Errors
    /// The child speaks for or about nodes that are not below it. The frontend checks the rest.
    pub(super) fn pass_up(
        &mut self,
        child: NodeId,
        up: Up,
        body: Vec<u8>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<(), String> {
        // The agent ignores a child whose link it has cut.
        let Some(subtree) = self.children.get(&child).map(|child| &child.subtree) else { return Ok(()) };
        self.place.check_speaker(subtree, &up)?;
        match up {
            Up::Answers { request, answers } => self.gather(request, answers, room),
            Up::Notice { node, notice } => {
                match notice {
                    Notice::NodesLost { nodes, .. } => self.forget(&nodes),
                    Notice::Channel(notice) => {
                        let goes_on = self.channel(|hub| hub.rise(node, notice)).is_some();
                        if !goes_on {
                            return Ok(());
                        }
                    }
                    Notice::Rendezvous(RendezvousNotice::Fence { number, puts }) => {
                        self.gather_puts(number, puts, room);
                        return Ok(());
                    }
                    _ => {}
                }
                self.send_in_order(node, body, room);
            }
        }
        Ok(())
    }

    /// The frontend has found that a child violates the protocol.
    fn cut_child(&mut self, child: NodeId, reason: &str) {
        let Some(known) = self.children.get(&child) else { return };
        known.tasks.reader.abort();
        known.queue.refuse(reason);
        self.child_ended(child, false, &format!("{reason}: its link was closed"));
    }

    /// The link to a child is over. A child that said goodbye is not lost: this agent answers for what it owes.
    pub(super) fn child_ended(&mut self, child: NodeId, orderly: bool, reason: &str) {
        let Some(ended) = self.children.remove(&child) else { return };
        // The child may wait for this goodbye as the proof that its own was read. Closing also ends its bulk data.
        ended.queue.close();
        if orderly {
            for (request, owed) in self.answers.find_owed(&ended.subtree) {
                self.answer_for(request, &owed);
            }
            let left = ended.subtree.difference(&self.away);
            self.channel(|hub| hub.lose(&left, true));
            self.left = self.left.union(&ended.subtree.difference(&self.away));
            self.away = self.away.union(&ended.subtree);
        } else {
            let lost = ended.subtree.difference(&self.away);
            self.forget(&ended.subtree);
            if !lost.is_empty() {
                self.notice(Notice::NodesLost { nodes: lost, reason: reason.to_owned() });
            }
        }
        self.show();
    }

    /// The links of those `nodes` that are connected children.
    pub(super) fn find_children(&self, nodes: &[NodeId]) -> Vec<(NodeId, LinkQueue)> {
        nodes.iter().filter_map(|node| Some((*node, self.children.get(node)?.queue.clone()))).collect()
    }

    /// The path to the frontend is over. Children see what this agent saw: a goodbye or a cut.
    pub(super) fn parent_ended(&mut self, orderly: bool, reason: String) {
        let Some(parent) = self.parent.take() else { return };
        if orderly {
            parent.close();
            for child in self.children.values() {
                child.queue.close();
            }
        } else {
            for child in std::mem::take(&mut self.children).into_values() {
                child.tasks.cut();
            }
        }
        self.answers = Answers::default();
        self.fences = Fences::default();
        self.channels.forget_all();
        self.give(Input::Gone { orderly, reason });
        self.inputs = None;
        self.show();
    }

    /// Tells the parent that it violates the protocol.
    pub(super) fn refuse_parent(&self, reason: &str) {
        if let Some(parent) = &self.parent {
            parent.refuse(reason);
        }
    }

    /// Gives this agent's own answer.
    pub(super) fn answer(&mut self, request: RequestId, reply: Reply) {
        let node = self.place.node;
        let nodes = NodeSet::from_range(node..=node);
        self.gather_reply(request, nodes, &reply);
    }

    /// Sends this agent's own notice.
    pub(super) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Rendezvous(RendezvousNotice::Fence { number, puts }) => {
                self.gather_puts(number, puts, None);
            }
            notice => self.send_notice(notice, None),
        }
    }

    fn send_notice(&mut self, notice: Notice, room: Option<OwnedSemaphorePermit>) {
        let node = self.place.node;
        // Notices have bounds, and fit in a frame.
        if let Ok(body) = frame::encode_body(&Up::Notice { node, notice }) {
            self.send_in_order(node, body, room);
        }
    }

    pub(super) fn say_goodbye(&mut self) {
        self.flush();
        if let Some(parent) = &self.parent {
            parent.close();
        }
    }

    fn forget(&mut self, nodes: &NodeSet) {
        self.away = self.away.union(nodes);
        let (answers, puts) = (self.answers.lose(nodes), self.fences.lose(nodes));
        self.send_answers(answers);
        self.send_puts(puts);
        self.channel(|hub| hub.lose(nodes, false));
    }

    fn send_up(&self, body: Arc<[u8]>, room: Option<OwnedSemaphorePermit>) {
        if let Some(parent) = &self.parent {
            parent.send_holding(body, room);
        }
    }

    fn show(&self) {
        let links = Links { parent: self.parent.is_some(), children: self.children.len() };
        self.links.send_if_modified(|shown| std::mem::replace(shown, links) != links);
    }
}
