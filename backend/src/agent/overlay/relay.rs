//! What goes where. Nothing in here waits: queues take what is to be written, and whoever must be held back is held back
//! before it calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{NodeId, RequestId};
use gantry_shared::rank_set::NodeSet;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Answer, Down, Notice, Order, To, Up};
use gantry_shared::wire::queue::LinkQueue;
use gantry_shared::wire::tree::Tree;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Input;
use super::gather::{Batch, Gatherings};

/// What a node says to an order.
pub(crate) type Reply = Result<Answer, Failure>;

/// How long answers wait for others of the same request.
const GATHER_TIME: Duration = Duration::from_millis(5);
/// How long children have to say goodbye before this agent does.
const CHILDREN_TIME: Duration = Duration::from_secs(10);
/// How long the parent has to read the goodbye.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

/// This agent's place in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) tree: Tree,
}

impl Place {
    /// Whether `node` is reached by way of `child`.
    pub(super) fn is_behind(&self, child: NodeId, node: NodeId) -> bool {
        self.tree.next_hop(Some(self.node.0), node.0) == Some(child.0)
    }

    fn find_subtree(&self, node: NodeId) -> NodeSet {
        let mut nodes = NodeSet::default();
        for level in self.tree.subtree(node.0) {
            nodes.insert_range(NodeId(level.start)..=NodeId(level.end - 1));
        }
        nodes
    }
}

/// The relay, shared by the tasks of its links.
#[derive(Debug, Clone)]
pub(crate) struct SharedRelay {
    relay: Arc<Mutex<Relay>>,
    /// Answers have begun to gather.
    gathering: Arc<Notify>,
}

impl SharedRelay {
    pub(super) fn new(place: Place, parent: LinkQueue, inputs: mpsc::UnboundedSender<Input>) -> Self {
        let gathering = Arc::new(Notify::new());
        let relay = Relay::new(place, parent, inputs, Arc::clone(&gathering));
        let shared = Self { relay: Arc::new(Mutex::new(relay)), gathering };
        tokio::spawn(flush_in_time(Arc::downgrade(&shared.relay), Arc::clone(&shared.gathering)));
        shared
    }

    /// The relay for a moment, never across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, Relay> {
        lock(&self.relay)
    }

    /// See [`Uplink::close`](super::Uplink::close).
    pub(super) async fn close(&self) {
        let mut links = self.lock().links.subscribe();
        if timeout(CHILDREN_TIME, links.wait_for(|links| links.children == 0)).await.is_err() {
            tracing::warn!("agents further down did not say goodbye in time");
        }
        self.lock().say_goodbye();
        if timeout(GOODBYE_TIME, links.wait_for(|links| !links.parent)).await.is_err() {
            tracing::warn!("the parent did not answer the goodbye in time");
        }
    }
}

fn lock(relay: &Mutex<Relay>) -> MutexGuard<'_, Relay> {
    relay.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends what has gathered for a while, as long as there is a relay.
async fn flush_in_time(relay: std::sync::Weak<Mutex<Relay>>, gathering: Arc<Notify>) {
    loop {
        gathering.notified().await;
        sleep(GATHER_TIME).await;
        match relay.upgrade() {
            Some(relay) => lock(&relay).flush(),
            None => return,
        }
    }
}

/// Which links are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) parent: bool,
    /// Children that have come and not gone.
    pub(super) children: usize,
}

/// A stream of bulk data: who sees it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) stream: u64,
    pub(super) children: Vec<NodeId>,
    pub(super) own: bool,
}

/// All that this agent knows of the tree.
#[derive(Debug)]
pub(super) struct Relay {
    place: Place,
    /// None when it is gone.
    parent: Option<LinkQueue>,
    children: BTreeMap<NodeId, Child>,
    inputs: Option<mpsc::UnboundedSender<Input>>,
    gatherings: Gatherings,
    gathering: Arc<Notify>,
    /// Nodes of this subtree that cannot be reached any more.
    away: NodeSet,
    /// Those of them that have said goodbye: the frontend does not know, and is answered for them.
    left: NodeSet,
    links: watch::Sender<Links>,
}

/// The tasks of a child's link.
#[derive(Debug)]
pub(super) struct LinkTasks {
    pub(super) reader: AbortHandle,
    pub(super) writer: AbortHandle,
}

impl LinkTasks {
    /// Cuts the link: the peer sees that this was no goodbye.
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
    fn new(
        place: Place,
        parent: LinkQueue,
        inputs: mpsc::UnboundedSender<Input>,
        gathering: Arc<Notify>,
    ) -> Self {
        Self {
            place,
            parent: Some(parent),
            children: BTreeMap::new(),
            inputs: Some(inputs),
            gatherings: Gatherings::default(),
            gathering,
            away: NodeSet::default(),
            left: NodeSet::default(),
            links: watch::Sender::new(Links { parent: true, children: 0 }),
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Which links are open, now and later.
    pub(super) fn links(&self) -> watch::Receiver<Links> {
        self.links.subscribe()
    }

    /// A child has come.
    pub(super) fn child_joined(&mut self, child: NodeId, queue: LinkQueue, tasks: LinkTasks) {
        let subtree = self.place.find_subtree(child);
        self.children.insert(child, Child { queue, subtree, tasks });
        self.notice(Notice::ChildJoined { child });
        self.show();
    }

    /// An order from above. For a bulk stream: whom its chunks go to.
    pub(super) fn pass_down(&mut self, down: Down, body: Vec<u8>) -> Option<Route> {
        let Down { request, to, order } = down;
        let own = match &to {
            To::All => true,
            To::Nodes(nodes) => nodes.contains(self.place.node),
        };
        let wanted = |child: &Child| match &to {
            To::All => true,
            To::Nodes(nodes) => !child.subtree.is_disjoint(nodes),
        };
        if let Some(request) = request
            && !(self.children.is_empty() && self.left.is_empty())
        {
            let asked = match &to {
                To::All => self.place.find_subtree(self.place.node),
                To::Nodes(nodes) => nodes.intersection(&self.place.find_subtree(self.place.node)),
            };
            self.gatherings.expect(request, asked.difference(&self.away));
            self.answer_for(request, &asked.intersection(&self.left));
        }
        let body: Arc<[u8]> = body.into();
        let children: Vec<_> = self.children.iter().filter(|(_, child)| wanted(child)).collect();
        for (_, child) in &children {
            child.queue.send(Arc::clone(&body));
        }
        let route = match &order {
            Order::Sink { stream } => Some(Route {
                stream: *stream,
                children: children.iter().map(|(node, _)| **node).collect(),
                own,
            }),
            _ => None,
        };
        if own {
            self.give(Input::Order { request, order });
        }
        route
    }

    /// Hands something to this agent itself.
    pub(super) fn give(&mut self, input: Input) {
        if let Some(inputs) = &self.inputs {
            // The agent may be leaving and listen no more.
            drop(inputs.send(input));
        }
    }

    /// A frame of a child, whose bytes are `body`. `room` is given back when it is written to the parent.
    pub(super) fn pass_up(
        &mut self,
        child: NodeId,
        up: Up,
        body: Vec<u8>,
        room: Option<OwnedSemaphorePermit>,
    ) {
        match up {
            Up::Answers { request, mut answers } => {
                answers.retain(|(node, _)| self.believes(child, *node));
                self.gather(request, answers, body.len(), room);
            }
            Up::Notice { node, notice } => {
                if !self.believes(child, node) {
                    return;
                }
                if let Notice::NodesLost { nodes, .. } = &notice {
                    self.forget(&nodes.intersection(&self.place.find_subtree(node)));
                }
                let before = self.gatherings.take_of(node);
                self.send_batches(before);
                self.send_up(body.into(), room);
            }
        }
    }

    /// The link to a child is over. One that has said goodbye is no loss; what it owes is answered for it.
    pub(super) fn child_ended(&mut self, child: NodeId, orderly: bool, reason: &str) {
        let Some(ended) = self.children.remove(&child) else { return };
        tracing::debug!(%child, orderly, reason, "an agent further down has gone");
        if orderly {
            // It waits for our goodbye, so that it knows that its own was read.
            ended.queue.close();
            for (request, owed) in self.gatherings.find_owed(&ended.subtree) {
                self.answer_for(request, &owed);
            }
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

    /// Cuts off a child that does not keep up.
    pub(super) fn cut_child(&mut self, child: NodeId, reason: &str) {
        if let Some(child) = self.children.get(&child) {
            child.tasks.cut();
        }
        self.child_ended(child, false, reason);
    }

    /// Where bulk chunks for a child go.
    pub(super) fn find_child(&self, child: NodeId) -> Option<&LinkQueue> {
        self.children.get(&child).map(|child| &child.queue)
    }

    /// The way to the frontend is over. Children see what this agent saw: a goodbye or a cut.
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
        self.gatherings = Gatherings::default();
        self.give(Input::Gone { orderly, reason });
        self.inputs = None;
        self.show();
    }

    /// Tells the parent that it does not speak as it should.
    pub(super) fn refuse_parent(&self, reason: &str) {
        if let Some(parent) = &self.parent {
            parent.refuse(reason);
        }
    }

    /// This agent's own answer.
    pub(super) fn answer(&mut self, request: RequestId, reply: Reply) {
        let node = self.place.node;
        let mut answers = vec![(node, reply)];
        let bytes = match frame::encode_body(&answers) {
            Ok(body) => body.len(),
            Err(error) => {
                answers = vec![(node, Err(Failure::new(Kind::Invalid, format!("send the answer: {error}"))))];
                0
            }
        };
        self.gather(request, answers, bytes, None);
    }

    /// This agent's own notice.
    /// This agent's node and all below it.
    pub(super) fn find_own_subtree(&self) -> NodeSet {
        self.place.find_subtree(self.place.node)
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        let node = self.place.node;
        let before = self.gatherings.take_of(node);
        self.send_batches(before);
        match frame::encode_body(&Up::Notice { node, notice }) {
            Ok(body) => self.send_up(body.into(), None),
            Err(error) => tracing::warn!(%error, "a notice was not sent"),
        }
    }

    /// Sends what has gathered.
    fn flush(&mut self) {
        let batches = self.gatherings.take_all();
        self.send_batches(batches);
    }

    fn say_goodbye(&mut self) {
        self.flush();
        if let Some(parent) = &self.parent {
            parent.close();
        }
    }

    /// Answers for nodes that have left.
    fn answer_for(&mut self, request: RequestId, nodes: &NodeSet) {
        let gone = |node| (node, Err(Failure::new(Kind::Gone, "its agent has left")));
        let answers: Vec<_> = nodes.iter().map(gone).collect();
        if !answers.is_empty() {
            self.gather(request, answers, 0, None);
        }
    }

    fn believes(&self, child: NodeId, node: NodeId) -> bool {
        let behind = self.place.is_behind(child, node);
        if !behind {
            tracing::debug!(%child, %node, "an agent speaks for a node that is not behind it");
        }
        behind
    }

    fn forget(&mut self, nodes: &NodeSet) {
        self.away = self.away.union(nodes);
        let ready = self.gatherings.lose(nodes);
        self.send_batches(ready);
    }

    fn gather(
        &mut self,
        request: RequestId,
        answers: Vec<(NodeId, Reply)>,
        bytes: usize,
        room: Option<OwnedSemaphorePermit>,
    ) {
        let ready = self.gatherings.add(request, answers, bytes, room);
        self.send_batches(ready);
        if self.gatherings.is_waiting() {
            self.gathering.notify_one();
        }
    }

    fn send_batches(&mut self, batches: Vec<Batch>) {
        for Batch { request, answers, room } in batches {
            match frame::encode_body(&Up::Answers { request, answers }) {
                Ok(body) => self.send_up(body.into(), room),
                Err(error) => tracing::warn!(%error, "answers were not sent"),
            }
        }
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
