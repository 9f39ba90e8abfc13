//! How agents join the tree: each reports to the frontend, gets its place, and dials its parent.
//!
//! The door stays open until all agents have joined, and never opens again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use gantry_link::greeting::{Door, Halves};
use gantry_link::queue::LinkQueue;
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::Brought;
use gantry_shared::wire::message::{AgentHello, Dial, RankReport, Seat};
use gantry_shared::wire::tree::Tree;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::rank_set::RankSet;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::link::{self, ARRIVALS, Arrival, News};
use super::muster::{Refusal, Roll, check_hello};
use super::plan::Shape;
use super::root::{Nodes, Root};
use super::{Overlay, OverlayEvent};
use crate::error::{Error, Result};

/// Agents that may connect at once if their number is not known before.
const UNKNOWN: usize = 192;

/// Agents that join the tree.
#[derive(Debug)]
pub(super) struct Assembly {
    secret: Secret,
    tree: Tree,
    shape: Shape,
    hosts: Vec<String>,
    /// Node numbers without an agent, by host.
    free: HashMap<String, BTreeSet<NodeId>>,
    /// The agents that have reported with ranks.
    roll: Roll,
    seated: BTreeMap<NodeId, Seated>,
    /// The ranks that agents have brought, by node number.
    ranks: Vec<RankSet>,
    root: Option<Root>,
    events: Option<mpsc::UnboundedReceiver<OverlayEvent>>,
    arrivals: (mpsc::Sender<Arrival>, mpsc::Receiver<Arrival>),
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Seated {
    hello: AgentHello,
    queue: LinkQueue,
}

impl Assembly {
    pub(super) fn new(secret: Secret, shape: Shape, hosts: &[String]) -> Result<Self> {
        let nodes = u32::try_from(hosts.len()).map_err(|_| Error::invalid("too many hosts"))?;
        let mut free: HashMap<String, BTreeSet<NodeId>> = HashMap::new();
        for (node, host) in (0..nodes).zip(hosts) {
            free.entry(host.clone()).or_default().insert(NodeId(node));
        }
        Ok(Self {
            secret,
            tree: Tree::new(nodes, shape.radix),
            shape,
            hosts: hosts.to_vec(),
            free,
            roll: Roll::default(),
            seated: BTreeMap::new(),
            ranks: Vec::new(),
            root: None,
            events: None,
            arrivals: mpsc::channel(ARRIVALS),
            tasks: JoinSet::new(),
        })
    }

    /// Waits until all agents have joined the tree.
    pub(super) async fn run(&mut self, mut door: Door) -> Result<()> {
        let expected = self.hosts.len();
        while self.seated.len() < self.hosts.len() {
            tokio::select! {
                (halves, dial) = door.next(expected) => self.take_greeting(&mut door, halves, dial)?,
                Some(arrival) = self.arrivals.1.recv() => self.free_seat(&arrival),
            }
        }
        self.link(door).await
    }

    /// Waits for agents that a launcher starts, until all ranks have reported and the agents have joined the tree.
    /// Returns name and ranks of every node.
    pub(super) async fn muster(&mut self, mut door: Door) -> Result<Vec<(String, Vec<RankReport>)>> {
        let mut come = Vec::new();
        while !self.roll.is_complete() {
            let (halves, dial) = door.next(UNKNOWN).await;
            let Dial::Agent(mut hello) = dial else {
                door.refuse(halves, "the frontend is not a parent of this node".to_owned());
                continue;
            };
            if let Err(reason) = check_hello(&hello) {
                door.refuse(halves, reason);
                continue;
            }
            match self.roll.take(&hello.host, hello.brought.take()) {
                Ok(ranks) => come.push((halves, hello, ranks)),
                Err(Refusal::Launch(error)) => return Err(error),
                Err(Refusal::Agent(reason)) => door.refuse(halves, reason),
            }
        }
        let nodes = self.seat_all(come)?;
        self.link(door).await?;
        Ok(nodes)
    }

    /// Gives out node numbers in the order of the first ranks.
    fn seat_all(
        &mut self,
        mut come: Vec<(Halves, AgentHello, Vec<RankReport>)>,
    ) -> Result<Vec<(String, Vec<RankReport>)>> {
        come.sort_by_key(|(_, _, ranks)| ranks.iter().map(|report| report.rank).min());
        let count = u32::try_from(come.len()).map_err(|_| Error::invalid("too many hosts"))?;
        self.tree = Tree::new(count, self.tree.radix());
        let mut nodes = Vec::with_capacity(come.len());
        for (node, (halves, hello, ranks)) in (0..count).map(NodeId).zip(come) {
            self.ranks.push(ranks.iter().map(|report| report.rank).collect());
            nodes.push((hello.host.clone(), ranks));
            self.hosts.push(hello.host.clone());
            self.sit(node, halves, hello);
        }
        Ok(nodes)
    }

    /// Sends all agents their places and waits until they have joined.
    async fn link(&mut self, mut door: Door) -> Result<()> {
        let expected = self.hosts.len();
        self.assign()?;
        while self.root.as_ref().is_some_and(|root| !root.find_unjoined().is_empty()) {
            tokio::select! {
                (halves, dial) = door.next(expected) => self.take_greeting(&mut door, halves, dial)?,
                Some(arrival) = self.arrivals.1.recv() => self.take_arrival(arrival)?,
            }
        }
        Ok(())
    }

    /// The overlay, after [`Assembly::run`] has returned.
    pub(super) fn finish(self) -> Result<(Overlay, mpsc::UnboundedReceiver<OverlayEvent>)> {
        let (Some(root), Some(events)) = (self.root, self.events) else {
            return Err(Error::Internal("agents have no places yet".to_owned()));
        };
        Ok((Overlay::start(root, self.secret, self.tasks, self.arrivals.1), events))
    }

    /// What this waits for, and the hosts whose agents are missing.
    pub(super) fn find_missing(&self) -> (&'static str, Vec<String>) {
        match &self.root {
            None if self.hosts.is_empty() => {
                ("waiting for the launcher to bring ranks", self.roll.find_missing())
            }
            None => {
                let missing: BTreeSet<_> = self.free.values().flatten().collect();
                let mut hosts: Vec<_> =
                    missing.into_iter().filter_map(|node| self.hosts.get(node.index()).cloned()).collect();
                hosts.dedup();
                ("waiting for agents", hosts)
            }
            Some(root) => ("linking agents with each other", root.find_hosts(root.find_unjoined().iter())),
        }
    }

    fn take_greeting(&mut self, door: &mut Door, halves: Halves, dial: Dial) -> Result<()> {
        let Dial::Agent(mut hello) = dial else {
            door.refuse(halves, "the frontend is not a parent of this node".to_owned());
            return Ok(());
        };
        if let Some(Brought { ranks: Err(failure), .. }) = hello.brought.take() {
            // The starter of that host's agent reports that the agent will not come.
            let hosts = if hello.host.is_empty() { Vec::new() } else { vec![hello.host] };
            return Err(Error::Node { hosts, failure });
        }
        match self.find_seat(&hello) {
            Ok(node) => {
                if let Some(free) = self.free.get_mut(&hello.host) {
                    free.remove(&node);
                }
                self.sit(node, halves, hello);
            }
            Err(reason) => {
                tracing::warn!(host = hello.host, reason, "an agent was refused");
                door.refuse(halves, reason);
            }
        }
        Ok(())
    }

    fn sit(&mut self, node: NodeId, halves: Halves, hello: AgentHello) {
        let halves = (halves, self.shape.stall);
        let queue = link::spawn(&mut self.tasks, node, halves, self.arrivals.0.clone());
        self.seated.insert(node, Seated { hello, queue });
    }

    fn find_seat(&self, hello: &AgentHello) -> std::result::Result<NodeId, String> {
        check_hello(hello)?;
        let Some(free) = self.free.get(&hello.host) else {
            return Err(format!("no agent of {} is expected", hello.host));
        };
        let Some(node) = free.first() else {
            return Err(format!("there is an agent of {} already", hello.host));
        };
        Ok(*node)
    }

    /// Frees the place of an agent that left, or sent a message, before it had its place. It may connect again.
    fn free_seat(&mut self, arrival: &Arrival) {
        let Some(seated) = self.seated.remove(&arrival.node) else { return };
        tracing::warn!(host = seated.hello.host, news = ?arrival.news, "an agent went before it had its place");
        if matches!(arrival.news, News::Up(..)) {
            seated.queue.refuse("it sent a message before it had its place");
        }
        self.free.entry(seated.hello.host).or_default().insert(arrival.node);
    }

    /// Sends every agent its place.
    fn assign(&mut self) -> Result<()> {
        let seated = std::mem::take(&mut self.seated);
        if seated.values().any(|seat| seat.hello.listen.is_empty()) {
            // This agent cannot dial nor be dialled: its only link is the one on which it reported. Others on its
            // network may have the same problem. So every agent becomes the frontend's child.
            self.tree = Tree::new(self.tree.nodes(), self.tree.radix().max(node_count(&self.tree)));
        }
        let listen = seated.values().map(|seat| seat.hello.listen.clone()).collect();
        let mut links = BTreeMap::new();
        for (node, seat) in &seated {
            let parent = self.tree.parent(node.0).and_then(|parent| seated.get(&NodeId(parent)));
            let taken = Seat::Taken {
                node: *node,
                nodes: self.tree.nodes(),
                radix: self.tree.radix().get(),
                parent: parent.map(|parent| parent.hello.listen.clone()),
            };
            let body: Arc<[u8]> = match frame::encode_body(&taken) {
                Ok(body) => body.into(),
                Err(error) => return Err(Error::Protocol(format!("{}: {error}", seat.hello.host))),
            };
            seat.queue.send(body);
            match parent {
                Some(_) => seat.queue.close(),
                None => drop(links.insert(*node, seat.queue.clone())),
            }
        }
        let (events, receiver) = mpsc::unbounded_channel();
        let ranks = std::mem::take(&mut self.ranks);
        let nodes = Nodes { tree: self.tree, hosts: self.hosts.clone(), listen, ranks };
        self.root = Some(Root::new(nodes, self.shape, links, events));
        self.events = Some(receiver);
        Ok(())
    }

    /// Handles an event of a link. Agents with a parent close their link here; that is no loss.
    fn take_arrival(&mut self, arrival: Arrival) -> Result<()> {
        let Some(root) = &mut self.root else { return Ok(()) };
        if self.tree.parent(arrival.node.0).is_none() {
            root.handle(arrival);
            return match root.away().is_empty() {
                true => Ok(()),
                false => {
                    let what = root.find_hosts(root.away().iter());
                    let why = root.last_loss();
                    Err(Error::Lost {
                        what,
                        reason: format!("while agents were linked with each other: {why}"),
                    })
                }
            };
        }
        match arrival.news {
            News::Ended { orderly: false, reason } if root.find_unjoined().contains(arrival.node) => {
                Err(Error::Lost { what: root.find_hosts([arrival.node]), reason })
            }
            News::Ended { .. } | News::Up(..) | News::Garbled(_) => Ok(()),
        }
    }
}

/// The number of nodes of a tree. As a radix it makes all nodes the root's own children.
fn node_count(tree: &Tree) -> NonZeroU32 {
    NonZeroU32::new(tree.nodes()).unwrap_or(NonZeroU32::MIN)
}

/// The message that refuses an agent instead of giving it a place.
pub(super) fn build_refusal(reason: &str) -> Option<Vec<u8>> {
    frame::encode_body(&Seat::Refused(Failure::new(Kind::Invalid, reason))).ok()
}
