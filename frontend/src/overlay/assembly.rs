//! The way of agents into the tree: each reports to the frontend, is told its place, and dials its parent.
//!
//! Anybody can dial. Who does not know the secret, is not expected or says nothing costs one task for a few seconds and
//! disturbs nobody else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{AppId, NodeId};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::limits::HANDSHAKE_DEADLINE;
use gantry_shared::wire::link::{Incoming, LinkReader, LinkWriter, accept};
use gantry_shared::wire::message::{AgentHello, Dial, Seat};
use gantry_shared::wire::queue::LinkQueue;
use gantry_shared::wire::tcp::tune;
use gantry_shared::wire::tree::Tree;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::link::{self, ARRIVALS, Arrival, News};
use super::root::Root;
use super::{Overlay, OverlayEvent};
use crate::error::{Error, Result};

/// Diallers that may be in their handshake at once, beside one for each agent that is expected.
const STRANGERS: usize = 64;
/// How long a refused agent is listened to, so that it reads why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// After a failed accept (too many open files, usually) others get a moment to close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Halves = (LinkReader, LinkWriter);

/// Agents on their way into the tree.
#[derive(Debug)]
pub(super) struct Assembly {
    app: AppId,
    secret: Secret,
    tree: Tree,
    hosts: Vec<String>,
    /// Node numbers without an agent, by host.
    free: HashMap<String, BTreeSet<NodeId>>,
    seated: BTreeMap<NodeId, Seated>,
    root: Option<Root>,
    events: Option<mpsc::UnboundedReceiver<OverlayEvent>>,
    arrivals: (mpsc::Sender<Arrival>, mpsc::Receiver<Arrival>),
    greetings: JoinSet<Option<(Halves, AgentHello)>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Seated {
    hello: AgentHello,
    queue: LinkQueue,
}

impl Assembly {
    pub(super) fn new(app: AppId, secret: Secret, radix: NonZeroU32, hosts: &[String]) -> Result<Self> {
        let nodes = u32::try_from(hosts.len()).map_err(|_| Error::invalid("too many hosts"))?;
        let mut free: HashMap<String, BTreeSet<NodeId>> = HashMap::new();
        for (node, host) in (0..nodes).zip(hosts) {
            free.entry(host.clone()).or_default().insert(NodeId(node));
        }
        Ok(Self {
            app,
            secret,
            tree: Tree::new(nodes, radix),
            hosts: hosts.to_vec(),
            free,
            seated: BTreeMap::new(),
            root: None,
            events: None,
            arrivals: mpsc::channel(ARRIVALS),
            greetings: JoinSet::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Waits until all agents hang in the tree.
    pub(super) async fn run(&mut self, listener: TcpListener) -> Result<()> {
        while self.seated.len() < self.hosts.len() {
            tokio::select! {
                accepted = listener.accept(), if self.greetings.len() < self.hosts.len() + STRANGERS => match accepted {
                    Ok((stream, _)) => self.greet(stream),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an agent");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(greeted) = self.greetings.join_next() => self.take_greeting(greeted.ok().flatten()),
                Some(arrival) = self.arrivals.1.recv() => self.free_seat(&arrival),
            }
        }
        self.assign()?;
        while self.root.as_ref().is_some_and(|root| !root.find_unjoined().is_empty()) {
            tokio::select! {
                Some(greeted) = self.greetings.join_next() => self.take_greeting(greeted.ok().flatten()),
                Some(arrival) = self.arrivals.1.recv() => self.take_arrival(arrival)?,
            }
        }
        Ok(())
    }

    /// The overlay, when [`Assembly::run`] has come to its end.
    pub(super) fn finish(self) -> Result<(Overlay, mpsc::UnboundedReceiver<OverlayEvent>)> {
        let (Some(root), Some(events)) = (self.root, self.events) else {
            return Err(Error::Protocol("agents have no places yet".to_owned()));
        };
        Ok((Overlay::start(root, self.secret, self.tasks, self.arrivals.1), events))
    }

    /// What is being waited for, and the hosts whose agents are missing.
    pub(super) fn find_missing(&self) -> (&'static str, Vec<String>) {
        match &self.root {
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

    /// Handshake and hello, in a task of their own.
    fn greet(&mut self, stream: TcpStream) {
        let (app, secret) = (self.app, self.secret.clone());
        self.greetings.spawn(async move {
            if let Err(error) = tune(&stream) {
                tracing::debug!(%error, "cannot tune a link");
            }
            let deadline = Instant::now() + HANDSHAKE_DEADLINE;
            let link = match accept(stream, &secret, app.as_str().as_bytes(), deadline).await {
                Ok(link) => link,
                Err(error) => {
                    tracing::debug!(%error, "a dialler was turned away");
                    return None;
                }
            };
            let (mut reader, writer) = link.split();
            match timeout_at(deadline, reader.next()).await {
                Ok(Ok(Some(Incoming::Frame(body)))) => match frame::decode(&body) {
                    Ok(Dial::Agent(hello)) => return Some(((reader, writer), hello)),
                    Ok(Dial::Child { .. }) => {
                        refuse((reader, writer), "the frontend is nobody's parent here").await
                    }
                    Err(error) => refuse((reader, writer), &format!("not understood: {error}")).await,
                },
                Ok(Ok(Some(Incoming::Bulk(_)))) => refuse((reader, writer), "bulk data before a hello").await,
                Ok(Ok(None) | Err(_)) | Err(_) => tracing::debug!("a dialler said no hello"),
            }
            None
        });
    }

    fn take_greeting(&mut self, greeted: Option<(Halves, AgentHello)>) {
        let Some((halves, hello)) = greeted else { return };
        match self.find_seat(&hello) {
            Ok(node) => {
                if let Some(free) = self.free.get_mut(&hello.host) {
                    free.remove(&node);
                }
                let queue = link::spawn(&mut self.tasks, node, halves, self.arrivals.0.clone());
                self.seated.insert(node, Seated { hello, queue });
            }
            Err(reason) => {
                tracing::warn!(host = hello.host, reason, "an agent was refused");
                self.greetings.spawn(async move {
                    refuse(halves, &reason).await;
                    None
                });
            }
        }
    }

    fn find_seat(&self, hello: &AgentHello) -> std::result::Result<NodeId, String> {
        let Some(free) = self.free.get(&hello.host) else {
            return Err(format!("no agent of {} is expected", hello.host));
        };
        let Some(node) = free.first() else {
            return Err(format!("there is an agent of {} already", hello.host));
        };
        if hello.listen.is_empty() && !self.tree.children(node.0).is_empty() {
            return Err("its children could not dial it: it listens nowhere".to_owned());
        }
        Ok(*node)
    }

    /// An agent that goes, or says something, before it has its place: it may come again.
    fn free_seat(&mut self, arrival: &Arrival) {
        let Some(seated) = self.seated.remove(&arrival.node) else { return };
        tracing::warn!(host = seated.hello.host, news = ?arrival.news, "an agent went before it had its place");
        if matches!(arrival.news, News::Up(_)) {
            seated.queue.refuse("it spoke before it had its place");
        }
        self.free.entry(seated.hello.host).or_default().insert(arrival.node);
    }

    /// Tells every agent its place.
    fn assign(&mut self) -> Result<()> {
        let seated = std::mem::take(&mut self.seated);
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
        self.root = Some(Root::new(self.tree, self.hosts.clone(), links, events));
        self.events = Some(receiver);
        Ok(())
    }

    /// Agents with a parent say goodbye here; that is no end of anything.
    fn take_arrival(&mut self, arrival: Arrival) -> Result<()> {
        let Some(root) = &mut self.root else { return Ok(()) };
        if self.tree.parent(arrival.node.0).is_none() {
            root.handle(arrival);
            return match root.away().is_empty() {
                true => Ok(()),
                false => {
                    let what = root.find_hosts(root.away().iter());
                    Err(Error::Lost {
                        what,
                        reason: "lost while agents were linked with each other".to_owned(),
                    })
                }
            };
        }
        match arrival.news {
            News::Ended { orderly: false, reason } if root.find_unjoined().contains(arrival.node) => {
                Err(Error::Lost { what: root.find_hosts([arrival.node]), reason })
            }
            News::Ended { .. } | News::Up(_) => Ok(()),
        }
    }
}

/// Tells an agent that it is not wanted, and gives it a moment to read it.
async fn refuse((mut reader, mut writer): Halves, reason: &str) {
    let refused = async {
        writer.send(&Seat::Refused(Failure::new(Kind::Invalid, reason)))?;
        writer.close().await?;
        while reader.next().await?.is_some() {}
        Ok::<(), gantry_shared::wire::LinkError>(())
    };
    if !matches!(timeout(REFUSAL_TIME, refused).await, Ok(Ok(()))) {
        tracing::debug!(reason, "a refused agent may not know why");
    }
}
