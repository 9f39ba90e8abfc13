//! The overlay in use: sends orders down and receives answers and notices.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_link::queue::LinkQueue;
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Answer, Down, FlowId, Notice, Order, Reply, To, Up, Word};
use gantry_shared::wire::tree::Tree;
use gantry_types::error::Failure;
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::{NodeSet, RankSet};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::OverlayEvent;
use super::admit::{Admission, Verdict, Violation};
use super::link::{Arrival, News};
use super::plan::{Plan, Shape};
use super::requests::{Requests, Settled};
use crate::error::{Error, Result};
use crate::lock::lock;

/// How long to wait for the agents' goodbyes.
const GOODBYE_TIME: Duration = Duration::from_secs(5);

/// The connection to all agents of an app. Clones are the same overlay. If the last one is dropped without
/// [`Overlay::close`], all links are cut, and agents take that for the frontend's death.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Arc<Mutex<Root>>,
    secret: Secret,
    /// Number of open links.
    open: watch::Receiver<usize>,
    /// Dropping the tasks ends them.
    tasks: Mutex<JoinSet<()>>,
}

impl Overlay {
    /// Starts handling what arrives.
    pub(super) fn start(
        root: Root,
        secret: Secret,
        mut tasks: JoinSet<()>,
        mut arrivals: mpsc::Receiver<Arrival>,
    ) -> Self {
        let open = root.open.subscribe();
        let root = Arc::new(Mutex::new(root));
        let handled = Arc::clone(&root);
        tasks.spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                lock(&handled).handle(arrival);
            }
        });
        Self { inner: Arc::new(Inner { root, secret, open, tasks: Mutex::new(tasks) }) }
    }

    /// Sends an order and returns the answer of every node that it is for, by node number. [`To::All`] is every node
    /// that is reachable now.
    ///
    /// Waits until each of them has answered or is lost. So when it fails with [`Error::Lost`], no node still executes
    /// the order. May be dropped at any time: later answers are ignored.
    ///
    /// # Errors
    /// [`Error::Lost`] names the nodes that were lost meanwhile; or had been before, in which case no node got the
    /// order. [`Error::TimedOut`] names the nodes that have not answered, [`Error::Gone`] after [`Overlay::close`],
    /// [`Error::Invalid`] for an order that is too large to send or a node that does not exist.
    pub(crate) async fn request(
        &self,
        to: To,
        order: Order,
        phase: &'static str,
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Reply)>> {
        let started = Instant::now();
        self.ask(to, order)?.settled(phase, started, deadline).await
    }

    /// Sends an order whose answers are collected from now on.
    pub(crate) fn ask(&self, to: To, order: Order) -> Result<Asked> {
        let (request, wanted, to) = {
            let mut root = lock(&self.inner.root);
            (root.requests.new_id(), root.find_wanted(&to)?, root.shorten(to))
        };
        // Outside the lock: orders may be large.
        let down = Down { request: Some(request), to, order };
        let body = encode(&down)?;
        let mut root = lock(&self.inner.root);
        // A node may have been lost since the first check.
        root.check_reachable(&wanted)?;
        let settled = match wanted.is_empty() {
            true => None,
            false => Some(root.requests.open(request, &wanted)),
        };
        root.send(&wanted, &down.order, &body);
        Ok(Asked { root: Arc::clone(&self.inner.root), request, settled })
    }

    /// Sends an order without an answer. Never waits; unreachable nodes do not get it.
    pub(crate) fn tell(&self, to: To, order: Order) {
        let wanted = lock(&self.inner.root).find_reachable(&to);
        let down = Down { request: None, to, order };
        match encode(&down) {
            Ok(body) => lock(&self.inner.root).send(&wanted, &down.order, &body),
            Err(error) => tracing::warn!(%error, "an order was not sent"),
        }
    }

    /// Sends a message of a node's flow. Never waits; an unreachable node does not get it.
    pub(crate) fn say(&self, node: NodeId, flow: FlowId, word: Word) {
        self.tell(To::Nodes(NodeSet::from_range(node..=node)), Order::Flow { flow, word });
    }

    /// Reports that bytes from one message of a node's flow were taken. The node gets the credit back, in portions.
    pub(crate) fn taken(&self, node: NodeId, flow: FlowId, bytes: usize) {
        let due = lock(&self.inner.root).admission.taken(node, flow, bytes);
        if let Some(due) = due {
            self.say(node, flow, Word::Credit(due));
        }
    }

    /// Says goodbye to all agents and waits for theirs, 5 s at most. Links of agents that have not answered by then are
    /// cut. Open requests fail.
    pub(crate) async fn close(&self) {
        lock(&self.inner.root).say_goodbye();
        let mut open = self.inner.open.clone();
        if timeout(GOODBYE_TIME, open.wait_for(|open| *open == 0)).await.is_err() {
            tracing::warn!("agents did not close their links in time");
        }
        lock(&self.inner.root).end();
        let tasks = std::mem::take(&mut *lock(&self.inner.tasks));
        drop(tasks);
    }

    /// The nodes that still owe an answer.
    pub(crate) fn owed(&self, request: RequestId) -> Vec<NodeId> {
        lock(&self.inner.root).requests.find_owed(request)
    }

    /// The number of links between the frontend and the farthest node.
    pub(crate) fn depth(&self) -> u32 {
        lock(&self.inner.root).tree.depth()
    }

    /// For sealing bulk data.
    pub(super) fn secret(&self) -> &Secret {
        &self.inner.secret
    }

    /// All nodes that can be reached now.
    pub(crate) fn reachable(&self) -> NodeSet {
        lock(&self.inner.root).find_reachable(&To::All)
    }

    pub(super) fn root(&self) -> &Arc<Mutex<Root>> {
        &self.inner.root
    }
}

fn encode(down: &Down) -> Result<Arc<[u8]>> {
    let body =
        frame::encode_body(down).map_err(|e| Error::invalid(format!("the order cannot be sent: {e}")))?;
    Ok(body.into())
}

/// An open request. Dropping it cancels it.
#[derive(Debug)]
pub(crate) struct Asked {
    root: Arc<Mutex<Root>>,
    request: RequestId,
    /// None: no node was asked.
    settled: Option<oneshot::Receiver<Settled>>,
}

/// The result of a request so far.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The nodes that succeeded, and their answers.
    pub(crate) answers: Vec<(NodeId, Answer)>,
    /// The nodes that failed, and why.
    pub(crate) failed: Vec<(NodeId, Failure)>,
    /// The nodes that were lost.
    pub(crate) lost: Vec<NodeId>,
    /// The nodes that have not answered.
    pub(crate) missing: Vec<NodeId>,
}

impl Outcome {
    /// Sorts these answers.
    pub(crate) fn of(answers: Vec<(NodeId, Reply)>) -> Self {
        let mut outcome = Self::default();
        for (node, reply) in answers {
            match reply {
                Ok(answer) => outcome.answers.push((node, answer)),
                Err(failure) => outcome.failed.push((node, failure)),
            }
        }
        outcome
    }
}

impl Asked {
    pub(super) fn new(
        root: Arc<Mutex<Root>>,
        request: RequestId,
        settled: oneshot::Receiver<Settled>,
    ) -> Self {
        Self { root, request, settled: Some(settled) }
    }

    pub(crate) fn request(&self) -> RequestId {
        self.request
    }

    /// Waits until all nodes have answered or are lost, or until the timeout expires.
    pub(crate) async fn outcome(mut self, deadline: Instant) -> Result<Outcome> {
        let (settled, missing) = self.wait(deadline).await?;
        Ok(Outcome { lost: settled.lost, missing, ..Outcome::of(settled.answers) })
    }

    pub(super) async fn settled(
        mut self,
        phase: &'static str,
        started: Instant,
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Reply)>> {
        let (Settled { answers, lost, reason }, missing) = self.wait(deadline).await?;
        let name = |nodes| lock(&self.root).find_hosts(nodes);
        if !missing.is_empty() {
            let after = deadline.saturating_duration_since(started);
            return Err(Error::TimedOut { phase, after, missing: name(missing) });
        }
        if lost.is_empty() { Ok(answers) } else { Err(Error::Lost { what: name(lost), reason }) }
    }

    /// The result at the deadline or earlier, and the nodes that still owe an answer then.
    async fn wait(&mut self, deadline: Instant) -> Result<(Settled, Vec<NodeId>)> {
        let Some(settled) = self.settled.as_mut() else { return Ok(Default::default()) };
        match timeout_at(deadline, &mut *settled).await {
            Ok(Ok(settled)) => Ok((settled, Vec::new())),
            Ok(Err(_closed)) => Err(gone()),
            Err(_late) => {
                let mut root = lock(&self.root);
                // The last answer may have come at this moment.
                match settled.try_recv() {
                    Ok(settled) => Ok((settled, Vec::new())),
                    Err(_) => Ok(root.requests.forget(self.request)),
                }
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        lock(&self.root).requests.forget(self.request);
    }
}

fn gone() -> Error {
    Error::Gone { what: "the connection to the agents".to_owned() }
}

/// A running stream, as the root knows it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) plan: Plan,
    /// The request that the nodes answer at its end.
    pub(super) request: Option<RequestId>,
}

/// The nodes of an app.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) tree: Tree,
    /// Their names, by number.
    pub(super) hosts: Vec<String>,
    /// Where their agents listen, by number.
    pub(super) listen: Vec<Vec<SocketAddr>>,
    /// The ranks that agents have brought, by number. Empty if no agent brings any.
    pub(super) ranks: Vec<RankSet>,
}

/// The root's state. Nothing in here waits.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) tree: Tree,
    hosts: Vec<String>,
    /// Where agents listen, by node number.
    pub(super) listen: Vec<Vec<SocketAddr>>,
    pub(super) bulk_radix: u32,
    /// Nodes that could not connect to another one for bulk data.
    pub(super) unlinked: NodeSet,
    pub(super) transfers: HashMap<u64, Transfer>,
    pub(super) stall: Duration,
    /// The links of the root's own children.
    links: BTreeMap<NodeId, LinkQueue>,
    /// Nodes that are no longer reachable.
    away: NodeSet,
    /// Nodes that have joined the tree.
    joined: NodeSet,
    /// The check of what nodes send.
    admission: Admission,
    /// Why the last nodes were lost.
    last_loss: String,
    pub(super) requests: Requests,
    events: Option<mpsc::UnboundedSender<OverlayEvent>>,
    open: watch::Sender<usize>,
    closing: bool,
}

impl Root {
    /// Makes a root whose own children are linked already.
    pub(super) fn new(
        Nodes { tree, hosts, listen, ranks }: Nodes,
        shape: Shape,
        links: BTreeMap<NodeId, LinkQueue>,
        events: mpsc::UnboundedSender<OverlayEvent>,
    ) -> Self {
        let mut admission = Admission::new(tree, hosts.clone());
        if !ranks.is_empty() {
            admission.bring(ranks);
        }
        Self {
            admission,
            last_loss: String::new(),
            tree,
            hosts,
            listen,
            bulk_radix: shape.bulk_radix,
            unlinked: NodeSet::default(),
            transfers: HashMap::new(),
            stall: shape.stall,
            joined: links.keys().copied().collect(),
            open: watch::Sender::new(links.len()),
            links,
            away: NodeSet::default(),
            requests: Requests::default(),
            events: Some(events),
            closing: false,
        }
    }

    /// Handles an event on the link of one of the root's own children.
    pub(super) fn handle(&mut self, Arrival { node: link, news }: Arrival) {
        match news {
            // Messages of a closed link are ignored.
            News::Up(..) | News::Garbled(_) if !self.links.contains_key(&link) => {}
            News::Up(up, room) => {
                if let Err((node, violation)) = self.take(link, up, room) {
                    self.expel(link, node, &violation);
                }
            }
            // It may have been in flight when the node was lost.
            News::Garbled(node) if self.away.contains(node) => {}
            News::Garbled(node) => {
                let (node, violation) = match self.speaks_for(link, node) {
                    Ok(()) => (node, Violation::new("sent a word of a flow that cannot be read")),
                    Err(violation) => (link, violation),
                };
                self.expel(link, node, &violation);
            }
            News::Ended { orderly, reason } => {
                // An agent with a parent has closed the link on which it reported. The root may see that late; it is no
                // loss.
                let Some(queue) = self.links.remove(&link) else { return };
                // The agent may wait for our goodbye to know that its own was read. The feeding task sees that the link
                // has ended.
                queue.close();
                let behind = self.tree.find_subtree(link);
                self.lose(&behind, reason, orderly || self.closing);
                self.open.send_replace(self.links.len());
            }
        }
    }

    /// Handles a message, or returns the violation and the node that is responsible for it.
    fn take(
        &mut self,
        link: NodeId,
        up: Up,
        room: Option<OwnedSemaphorePermit>,
    ) -> std::result::Result<(), (NodeId, Violation)> {
        match up {
            Up::Answers { request, answers } => {
                let behind = self.tree.find_subtree(link);
                for (nodes, reply) in answers {
                    if let Some(node) = nodes.difference(&behind).first() {
                        return Err((link, self.not_behind("answered", node)));
                    }
                    let unread = |_| (nodes.first().unwrap_or(link), Violation::unread());
                    let reply = reply.decode().map_err(unread)?;
                    for node in nodes.difference(&self.away).iter() {
                        if let Ok(answer) = &reply {
                            self.admission.answered(node, answer).map_err(|violation| (node, violation))?;
                        }
                        self.requests.answer(request, node, reply.clone()).map_err(|error| (node, error))?;
                    }
                }
            }
            Up::Notice { node, notice } => {
                self.speaks_for(link, node).map_err(|violation| (link, violation))?;
                // It may have been in flight when the node was lost.
                if !self.away.contains(node)
                    && self.admission.noticed(node, &notice).map_err(|violation| (node, violation))?
                        == Verdict::News
                {
                    self.take_notice(node, notice, room);
                }
            }
        }
        Ok(())
    }

    fn speaks_for(&self, link: NodeId, node: NodeId) -> std::result::Result<(), Violation> {
        match self.tree.next_hop(None, node.0) == Some(link.0) {
            true => Ok(()),
            false => Err(self.not_behind("spoke", node)),
        }
    }

    fn not_behind(&self, did: &str, node: NodeId) -> Violation {
        let host = self.hosts.get(node.index()).cloned().unwrap_or_else(|| format!("node {node}"));
        Violation::new(format!("{did} for {host}, which is not below it"))
    }

    /// Drops a node that breaks the rules, and the nodes behind it. If the node is further down, its parent closes its
    /// link.
    fn expel(&mut self, link: NodeId, node: NodeId, violation: &Violation) {
        let host = self.hosts.get(node.index()).cloned().unwrap_or_default();
        tracing::warn!(host, %violation, "a node breaks the rules");
        if link == node {
            if let Some(queue) = self.links.remove(&link) {
                queue.refuse(&format!("it {violation}"));
            }
            self.open.send_replace(self.links.len());
        } else if let Some(parent) = self.tree.parent(node.0).map(NodeId) {
            let order = Order::CutChild { child: node, reason: format!("it {violation}") };
            self.tell(NodeSet::from_range(parent..=parent), order);
        }
        let behind = self.tree.find_subtree(node);
        self.lose(&behind, format!("{host} {violation}: its link was closed"), false);
    }

    /// Nodes that have not joined the tree yet.
    pub(super) fn find_unjoined(&self) -> NodeSet {
        NodeSet::first_n(self.tree.nodes()).difference(&self.joined)
    }

    /// Nodes that are no longer reachable.
    pub(super) fn away(&self) -> &NodeSet {
        &self.away
    }

    /// Names of nodes, each once.
    pub(super) fn find_hosts(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<String> {
        let mut hosts: Vec<String> =
            nodes.into_iter().filter_map(|node| self.hosts.get(node.index()).cloned()).collect();
        hosts.dedup();
        hosts
    }

    fn take_notice(&mut self, node: NodeId, notice: Notice, room: Option<OwnedSemaphorePermit>) {
        match notice {
            Notice::ChildJoined { child } => drop(self.joined.insert(child)),
            Notice::NodesLost { nodes, reason } => self.lose(&nodes, reason, false),
            Notice::BulkStalled { stream, fed } => self.bulk_stalled(stream, Some(node), fed),
            Notice::Alive => {}
            notice => self.publish(OverlayEvent::Notice(node, notice, room)),
        }
    }

    /// Why the last lost nodes were lost.
    pub(super) fn last_loss(&self) -> &str {
        &self.last_loss
    }

    /// Publishes the event before the requests fail, so that a caller whose request fails finds the event.
    fn lose(&mut self, nodes: &NodeSet, reason: String, silently: bool) {
        let nodes = nodes.difference(&self.away);
        if nodes.is_empty() {
            return;
        }
        self.away = self.away.union(&nodes);
        self.last_loss.clone_from(&reason);
        if !silently {
            self.publish(OverlayEvent::Lost { nodes: nodes.clone(), reason: reason.clone() });
        }
        self.requests.lose(&nodes, &reason);
    }

    fn publish(&self, event: OverlayEvent) {
        if let Some(events) = &self.events {
            // The receiver may be gone.
            drop(events.send(event));
        }
    }

    fn find_wanted(&self, to: &To) -> Result<NodeSet> {
        if self.closing {
            return Err(gone());
        }
        let To::Nodes(nodes) = to else { return Ok(self.find_reachable(to)) };
        let strange = nodes.difference(&NodeSet::first_n(self.tree.nodes()));
        if let Some(node) = strange.first() {
            return Err(Error::invalid(format!(
                "there is no node {node}: the app has {}",
                self.tree.nodes()
            )));
        }
        self.check_reachable(nodes)?;
        Ok(nodes.clone())
    }

    pub(super) fn check_reachable(&self, nodes: &NodeSet) -> Result<()> {
        if self.closing {
            return Err(gone());
        }
        let lost = nodes.intersection(&self.away);
        if lost.is_empty() {
            return Ok(());
        }
        Err(Error::Lost { what: self.find_hosts(lost.iter()), reason: "the link to it is lost".to_owned() })
    }

    /// Replaces the set of all reachable nodes with [`To::All`].
    fn shorten(&self, to: To) -> To {
        match to {
            To::Nodes(nodes) if nodes == self.find_reachable(&To::All) => To::All,
            to => to,
        }
    }

    fn find_reachable(&self, to: &To) -> NodeSet {
        let nodes = match to {
            To::All => NodeSet::first_n(self.tree.nodes()),
            To::Nodes(nodes) => nodes.clone(),
        };
        nodes.difference(&self.away)
    }

    /// Opens a request for an order that is about to be sent to these nodes. There is at least one.
    pub(super) fn open_request(&mut self, wanted: &NodeSet) -> (RequestId, oneshot::Receiver<Settled>) {
        let request = self.requests.new_id();
        (request, self.requests.open(request, wanted))
    }

    /// The links by which `wanted` are reached.
    pub(super) fn links_to(&self, wanted: &NodeSet) -> impl Iterator<Item = (NodeId, &LinkQueue)> {
        let links = self.links.iter().map(|(node, link)| (*node, link));
        links.filter(|(node, _)| !self.tree.find_subtree(*node).is_disjoint(wanted))
    }

    /// Sends an order whose encoding is `body`.
    pub(super) fn send(&mut self, wanted: &NodeSet, order: &Order, body: &Arc<[u8]>) {
        if !self.closing {
            self.admission.ordered(wanted, order);
            for (_, link) in self.links_to(wanted) {
                link.send_now(Arc::clone(body));
            }
        }
    }

    /// Sends a short order without an answer.
    pub(super) fn tell(&mut self, to: NodeSet, order: Order) {
        let down = Down { request: None, to: To::Nodes(to.clone()), order };
        match encode(&down) {
            Ok(body) => self.send(&to, &down.order, &body),
            Err(error) => tracing::warn!(%error, "an order was not sent"),
        }
    }

    fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.closing, true) {
            for link in self.links.values() {
                link.close();
            }
        }
    }

    fn end(&mut self) {
        self.closing = true;
        self.links.clear();
        self.requests.clear();
        self.events = None;
        self.open.send_replace(0);
    }
}
