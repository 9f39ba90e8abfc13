//! The root with simulated agents, over real TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_link::handshake::connect;
use gantry_link::link::{Incoming, LinkReader, LinkWriter};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{
    AgentHello, Answer, Blob, BulkOrder, BulkSeat, Dial, Down, EncodedReply, EntrySet, Feeder, Notice, Order,
    Reply, Seat, To, Up,
};
use gantry_shared::wire::rendezvous::RendezvousNotice;
use gantry_shared::wire::tree::Tree;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, Pid, RequestId};
use gantry_types::rank_set::NodeSet;
use gantry_wlm::Reach;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::link::{Arrival, News};
use super::plan::Shape;
use super::root::{Nodes, Root};
use super::{Listener, Overlay, OverlayEvent};
use crate::error::{Error, Result};
use crate::lock::lock;

mod bulk;
mod expelled;
mod passed;
mod rendezvous;

const SOON: Duration = Duration::from_secs(10);
/// Only tests with a hanging node wait for it.
const STALL: Duration = Duration::from_secs(2);
const PHASE: &str = "testing";

type Assembled = Result<(Overlay, mpsc::UnboundedReceiver<OverlayEvent>)>;

/// The listening address that simulated agents report.
const NOWHERE: &str = "127.0.0.1:9";

/// An app whose frontend listens.
struct Stage {
    app: AppId,
    secret: Secret,
    address: SocketAddr,
    assembling: JoinHandle<Assembled>,
}

impl Stage {
    async fn new(hosts: &[&str], radix: u32, patience: Duration) -> Self {
        let (app, secret) = (AppId::random().unwrap(), Secret::random().unwrap());
        let listener = Listener::bind(app, secret.clone(), radix, 2, Reach::ThisMachine).await;
        let listener = listener.unwrap().with_stall(STALL);
        let address = listener.addresses()[0];
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let assembling =
            tokio::spawn(async move { listener.assemble(&hosts, Instant::now() + patience).await });
        Self { app, secret, address, assembling }
    }

    async fn dial(&self, secret: &Secret) -> std::result::Result<Peer, LinkError> {
        self.dial_on(TcpStream::connect(self.address).await.unwrap(), secret).await
    }

    async fn dial_on(&self, stream: TcpStream, secret: &Secret) -> std::result::Result<Peer, LinkError> {
        let link = connect(stream, secret, self.app.as_str().as_bytes(), Instant::now() + SOON).await?;
        let (reader, writer) = link.split();
        Ok(Peer { reader, writer, owed: 0 })
    }

    /// Connects an agent that has said hello.
    async fn agent(&self, host: &str) -> Peer {
        self.agent_on(TcpStream::connect(self.address).await.unwrap(), host).await
    }

    async fn agent_on(&self, stream: TcpStream, host: &str) -> Peer {
        let mut peer = self.dial_on(stream, &self.secret).await.unwrap();
        let listen = vec![NOWHERE.parse().unwrap()];
        let (host, pid) = (host.to_owned(), Pid::new(1).unwrap());
        peer.say(&Dial::Agent(AgentHello { host, pid, listen, brought: None })).await;
        peer
    }

    async fn assembled(self) -> Assembled {
        timeout(2 * SOON, self.assembling).await.unwrap().unwrap()
    }
}

/// An agent, or a peer that claims to be one.
struct Peer {
    reader: LinkReader,
    writer: LinkWriter,
    /// Chunks that were taken and whose credit was not given back.
    owed: u32,
}

impl Peer {
    async fn say<T: serde::Serialize>(&mut self, message: &T) {
        self.writer.send(message).unwrap();
        self.writer.flush().await.unwrap();
    }

    async fn hear<T: serde::de::DeserializeOwned>(&mut self) -> T {
        match timeout(SOON, self.reader.next()).await.unwrap().unwrap() {
            Some(Incoming::Frame(body)) => frame::decode(&body).unwrap(),
            other => panic!("heard {other:?}"),
        }
    }

    /// The next order. Bulk data before it is skipped and not acknowledged.
    async fn order_past_bulk(&mut self) -> Down {
        loop {
            match timeout(SOON, self.reader.next()).await.unwrap().unwrap() {
                Some(Incoming::Frame(body)) => return frame::decode(&body).unwrap(),
                Some(Incoming::Bulk(_)) => self.owed += 1,
                other => panic!("heard {other:?}"),
            }
        }
    }

    async fn give_credit(&mut self) {
        self.writer.send_credit(std::mem::take(&mut self.owed)).unwrap();
        self.writer.flush().await.unwrap();
    }

    /// Takes a place in a stream's tree for `node` and all nodes behind it. Returns the request, the stream and the
    /// seats.
    async fn seats(&mut self) -> (RequestId, u64, Vec<BulkSeat>) {
        match self.order_past_bulk().await {
            Down {
                request: Some(request), order: Order::Bulk(BulkOrder::Link { stream, seats }), ..
            } => (request, stream, seats),
            other => panic!("{other:?}"),
        }
    }

    async fn linked(&mut self, node: u32) -> u64 {
        let (request, stream, seats) = self.seats().await;
        assert_eq!(seats.iter().map(|seat| seat.node.0).collect::<Vec<_>>(), [node]);
        self.answer(request, node, Ok(Answer::Done)).await;
        stream
    }

    async fn announced(&mut self, stream: u64) -> RequestId {
        let down: Down = self.hear().await;
        assert_eq!(down.order, Order::Sink { stream });
        down.request.unwrap()
    }

    /// Why a stream was ended.
    async fn ended(&mut self, stream: u64) -> Failure {
        match self.order_past_bulk().await.order {
            Order::Bulk(BulkOrder::End { stream: ended, why }) if ended == stream => why,
            other => panic!("{other:?}"),
        }
    }

    /// The number that the agent was given.
    async fn seat(&mut self) -> u32 {
        match self.hear().await {
            Seat::Taken { node, .. } => node.0,
            Seat::Refused(failure) => panic!("refused: {failure}"),
        }
    }

    async fn order(&mut self) -> RequestId {
        self.hear::<Down>().await.request.unwrap()
    }

    async fn refusal(&mut self) -> String {
        match self.hear().await {
            Seat::Refused(failure) => failure.to_string(),
            Seat::Taken { node, .. } => panic!("took seat {node}"),
        }
    }

    async fn answer(&mut self, request: RequestId, node: u32, answer: std::result::Result<Answer, Failure>) {
        self.say(&Up::Answers { request, answers: vec![(single(node), EncodedReply::of(&answer).unwrap())] })
            .await;
    }

    async fn notice(&mut self, node: u32, notice: Notice) {
        self.say(&Up::Notice { node: NodeId(node), notice }).await;
    }
}

/// As many agents as hosts, all of them the root's own children, by node number.
async fn flat(hosts: &[&str]) -> (Overlay, mpsc::UnboundedReceiver<OverlayEvent>, Vec<Peer>) {
    let stage = Stage::new(hosts, 64, SOON).await;
    let mut peers = Vec::new();
    for host in hosts {
        peers.push(stage.agent(host).await);
    }
    let mut seated = Vec::new();
    for mut peer in peers {
        seated.push((peer.seat().await, peer));
    }
    seated.sort_by_key(|(node, _)| *node);
    let (overlay, events) = stage.assembled().await.unwrap();
    (overlay, events, seated.into_iter().map(|(_, peer)| peer).collect())
}

impl Overlay {
    fn has_no_requests(&self) -> bool {
        lock(self.root()).requests.is_empty()
    }
}

/// A request that runs concurrently with the test.
fn ask(overlay: &Overlay, to: To, patience: Duration) -> JoinHandle<Result<Vec<(NodeId, Reply)>>> {
    let overlay = overlay.clone();
    tokio::spawn(async move { overlay.request(to, Order::Ping, PHASE, Instant::now() + patience).await })
}

fn nodes(text: &str) -> To {
    To::Nodes(text.parse().unwrap())
}

fn single(node: u32) -> NodeSet {
    NodeSet::from_range(NodeId(node)..=NodeId(node))
}

fn news() -> Notice {
    Notice::Rendezvous(RendezvousNotice::Status(None))
}

async fn lost(events: &mut mpsc::UnboundedReceiver<OverlayEvent>) -> (String, String) {
    match timeout(SOON, events.recv()).await.unwrap() {
        Some(OverlayEvent::Lost { nodes, reason }) => (nodes.to_string(), reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_radix_of_zero_is_refused() {
    let (app, secret) = (AppId::random().unwrap(), Secret::random().unwrap());
    let bound = Listener::bind(app, secret, 0, 2, Reach::ThisMachine).await;
    assert!(matches!(bound, Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn orders_go_to_whom_they_are_for_and_answers_come_back_in_node_order() {
    let (overlay, _events, mut peers) = flat(&["a", "b", "c"]).await;
    overlay.tell(nodes("1"), Order::Release);
    let asked = ask(&overlay, nodes("1-2"), SOON);
    let told: Down = peers[1].hear().await;
    assert_eq!((told.request, told.order), (None, Order::Release));
    let request = peers[2].order().await;
    peers[2].answer(request, 2, Ok(Answer::Done)).await;
    assert_eq!(peers[1].order().await, request);
    peers[1].answer(request, 1, Ok(Answer::Missing(EntrySet::first_n(2)))).await;
    peers[1].answer(request, 1, Ok(Answer::Done)).await;
    let expected =
        vec![(NodeId(1), Ok(Answer::Missing(EntrySet::first_n(2)))), (NodeId(2), Ok(Answer::Done))];
    assert_eq!(asked.await.unwrap().unwrap(), expected);
    assert!(matches!(ask(&overlay, nodes("3"), SOON).await.unwrap(), Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn what_a_node_reported_before_it_answered_is_there_when_the_answer_is() {
    let (overlay, mut events, mut peers) = flat(&["a"]).await;
    for _ in 0..20 {
        let asked = ask(&overlay, To::All, SOON);
        let request = peers[0].order().await;
        peers[0].notice(0, news()).await;
        peers[0].answer(request, 0, Ok(Answer::Done)).await;
        asked.await.unwrap().unwrap();
        assert!(matches!(events.try_recv(), Ok(OverlayEvent::Notice(NodeId(0), Notice::Rendezvous(_), _))));
    }
}

#[tokio::test]
async fn strangers_are_turned_away_and_disturb_nobody() {
    let stage = Stage::new(&["a", "b"], 64, SOON).await;
    let mut a = stage.agent("a").await;
    // A peer that sends nothing until the end of the test.
    let _silent = TcpStream::connect(stage.address).await.unwrap();
    let mut garbage = TcpStream::connect(stage.address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    timeout(SOON, garbage.read_to_end(&mut said)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&said).contains("it is not gantry"));
    let refused = stage.dial(&Secret::random().unwrap()).await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("another secret or another app"), "{refused}");
    let mut unknown = stage.agent("elsewhere").await;
    assert_eq!(unknown.refusal().await, "no agent of elsewhere is expected");
    let mut second = stage.agent("a").await;
    assert_eq!(second.refusal().await, "there is an agent of a already");
    let mut child = stage.dial(&stage.secret).await.unwrap();
    child.say(&Dial::Child { node: NodeId(1) }).await;
    assert_eq!(child.refusal().await, "the frontend is not a parent of this node");
    let mut nonsense = stage.dial(&stage.secret).await.unwrap();
    nonsense.say(&0xffff_ffff_u64).await;
    assert!(nonsense.refusal().await.starts_with("protocol error"));
    let mut b = stage.agent("b").await;
    assert_eq!((a.seat().await, b.seat().await), (0, 1));
    stage.assembled().await.unwrap();
}

#[tokio::test]
async fn a_crowd_at_the_door_neither_keeps_agents_out_nor_slows_them_down() {
    let stage = Stage::new(&["a", "b"], 64, SOON).await;
    let mut crowd = Vec::new();
    for number in 0..400 {
        let mut stranger = TcpStream::connect(stage.address).await.unwrap();
        match number % 3 {
            0 => {}
            1 => drop(stranger.write_all(b"gtry").await),
            _ => drop(stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await),
        }
        crowd.push(stranger);
    }
    // All of them are still connected, as far as the door allows.
    let (mut a, mut b) = (stage.agent("a").await, stage.agent("b").await);
    assert_eq!((a.seat().await, b.seat().await), (0, 1));
    stage.assembled().await.unwrap();
    drop(crowd);
}

#[tokio::test]
async fn a_launch_that_fails_beside_strangers_speaks_of_them() {
    let (app, secret) = (AppId::random().unwrap(), Secret::random().unwrap());
    let listener = Listener::bind(app, secret, 2, 2, Reach::ThisMachine).await.unwrap();
    let (address, strangers) = (listener.addresses()[0], listener.strangers());
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    let failed = listener.assemble(&["a".to_owned()], Instant::now() + Duration::from_secs(2)).await;
    let error = strangers.explain(failed.map(drop).unwrap_err());
    assert_eq!(error.kind(), Kind::TimedOut);
    let text = error.to_string();
    let user = nix::unistd::geteuid();
    let expected = format!("100 connections from user {user} of this machine: sent nothing");
    assert!(text.starts_with("no answer within") && text.contains(&expected), "{text}");
    assert!(error.hint().unwrap().contains("ss -tnp"));
}

#[tokio::test]
async fn one_host_has_as_many_agents_as_it_is_named() {
    let stage = Stage::new(&["a", "a"], 64, SOON).await;
    let (mut first, mut second) = (stage.agent("a").await, stage.agent("a").await);
    let mut seats = [first.seat().await, second.seat().await];
    seats.sort_unstable();
    assert_eq!(seats, [0, 1]);
    stage.assembled().await.unwrap();
}

#[tokio::test]
async fn the_deadline_names_agents_that_never_came() {
    let stage = Stage::new(&["a", "b", "c"], 64, Duration::from_millis(300)).await;
    let _b = stage.agent("b").await;
    match stage.assembled().await {
        Err(Error::TimedOut { phase, missing, .. }) => {
            assert_eq!((phase, missing), ("waiting for agents", vec!["a".to_owned(), "c".to_owned()]));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_deadline_names_agents_that_do_not_reach_their_parent() {
    let stage = Stage::new(&["a", "b"], 1, Duration::from_millis(600)).await;
    let (mut a, mut b) = (stage.agent("a").await, stage.agent("b").await);
    assert_eq!((a.seat().await, b.seat().await), (0, 1));
    match stage.assembled().await {
        Err(Error::TimedOut { phase, missing, .. }) => {
            assert_eq!((phase, missing), ("linking agents with each other", vec!["b".to_owned()]));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_that_is_cut_before_it_has_its_place_may_come_again() {
    let stage = Stage::new(&["a", "b"], 64, SOON).await;
    drop(stage.agent("a").await);
    // The root may not have seen the cut yet, so retry as an agent does.
    let mut again = loop {
        let mut peer = stage.agent("a").await;
        match timeout(Duration::from_millis(200), peer.reader.next()).await {
            Ok(_refused) => {}
            Err(_seated) => break peer,
        }
    };
    let mut b = stage.agent("b").await;
    assert_eq!((again.seat().await, b.seat().await), (0, 1));
    stage.assembled().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_is_cut_while_the_tree_grows_fails_the_assembly_at_once() {
    let stage = Stage::new(&["a", "b"], 1, 3 * SOON).await;
    let (mut a, mut b) = (stage.agent("a").await, stage.agent("b").await);
    assert_eq!((a.seat().await, b.seat().await), (0, 1));
    drop(b);
    match stage.assembled().await {
        Err(Error::Lost { what, .. }) => assert_eq!(what, ["b"]),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nodes_further_down_answer_and_are_lost_through_their_parent() {
    let stage = Stage::new(&["a", "b", "c"], 1, SOON).await;
    let (mut a, mut b, mut c) = (stage.agent("a").await, stage.agent("b").await, stage.agent("c").await);
    assert_eq!((a.seat().await, b.seat().await, c.seat().await), (0, 1, 2));
    for peer in [b, c] {
        peer.writer.close().await.unwrap();
    }
    a.notice(0, Notice::ChildJoined { child: NodeId(1) }).await;
    a.notice(1, Notice::ChildJoined { child: NodeId(2) }).await;
    let (overlay, mut events) = stage.assembled().await.unwrap();
    let asked = ask(&overlay, To::All, SOON);
    let request = a.order().await;
    let done = |node| (NodeId(node), Ok(Answer::Done));
    // One answer of several.
    let both = vec![("0-1".parse().unwrap(), EncodedReply::of(&Ok(Answer::Done)).unwrap())];
    a.say(&Up::Answers { request, answers: both }).await;
    a.notice(1, Notice::NodesLost { nodes: single(2), reason: "cut".to_owned() }).await;
    assert_eq!(lost(&mut events).await, ("2".to_owned(), "cut".to_owned()));
    assert!(matches!(asked.await.unwrap(), Err(Error::Lost { what, .. }) if what == ["c"]));
    assert!(matches!(ask(&overlay, nodes("2"), SOON).await.unwrap(), Err(Error::Lost { .. })));
    let asked = ask(&overlay, To::All, SOON);
    let request = a.order().await;
    let each = |node| (single(node), EncodedReply::of(&Ok(Answer::Done)).unwrap());
    a.say(&Up::Answers { request, answers: vec![each(1), each(0)] }).await;
    assert_eq!(asked.await.unwrap().unwrap(), [done(0), done(1)]);
    drop(a);
    assert_eq!(lost(&mut events).await, ("0-1".to_owned(), "its link was cut".to_owned()));
}

#[tokio::test]
async fn a_link_that_is_cut_between_order_and_answer_loses_that_node_only() {
    let (overlay, mut events, mut peers) = flat(&["a", "b"]).await;
    let asked = ask(&overlay, To::All, SOON);
    let mut b = peers.pop().unwrap();
    let request = b.order().await;
    drop(b);
    assert_eq!(lost(&mut events).await, ("1".to_owned(), "its link was cut".to_owned()));
    assert!(!asked.is_finished(), "node 0 still works on it");
    assert_eq!(peers[0].order().await, request);
    peers[0].answer(request, 0, Ok(Answer::Done)).await;
    assert!(matches!(asked.await.unwrap(), Err(Error::Lost { what, .. }) if what == ["b"]));
    assert!(overlay.has_no_requests());
}

#[tokio::test]
async fn an_oversized_record_closes_only_the_link_that_it_came_on() {
    let stage = Stage::new(&["a", "b"], 64, SOON).await;
    let mut a = stage.agent("a").await;
    let stream = TcpStream::connect(stage.address).await.unwrap().into_std().unwrap();
    let mut raw = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut b = stage.agent_on(TcpStream::from_std(stream).unwrap(), "b").await;
    assert_eq!((a.seat().await, b.seat().await), (0, 1));
    let (overlay, mut events) = stage.assembled().await.unwrap();
    // A bulk record that claims 16 MiB.
    raw.write_all(&[1, 0xff, 0xff, 0xff]).await.unwrap();
    assert_eq!(
        lost(&mut events).await,
        ("1".to_owned(), "carry a bulk chunk of more than 262177 bytes".to_owned())
    );
    let refused = timeout(SOON, b.reader.next()).await.unwrap();
    assert!(matches!(refused, Err(LinkError::Refused { .. })), "{refused:?}");
    let asked = ask(&overlay, To::All, SOON);
    let request = a.order().await;
    a.answer(request, 0, Ok(Answer::Done)).await;
    assert_eq!(asked.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn nonsense_from_an_agent_closes_its_link_with_the_reason() {
    let (_overlay, mut events, mut peers) = flat(&["a"]).await;
    peers[0].say(&0xffff_ffff_u64).await;
    assert!(lost(&mut events).await.1.starts_with("protocol error"));
    assert!(matches!(peers[0].reader.next().await, Err(LinkError::Refused { .. })));
}

#[tokio::test]
async fn the_deadline_of_a_request_names_who_has_not_answered() {
    let (overlay, _events, mut peers) = flat(&["a", "b"]).await;
    let asked = ask(&overlay, To::All, Duration::from_millis(300));
    let request = peers[1].order().await;
    peers[1].answer(request, 1, Ok(Answer::Done)).await;
    match asked.await.unwrap() {
        Err(Error::TimedOut { phase, missing, .. }) => {
            assert_eq!((phase, missing), (PHASE, vec!["a".to_owned()]))
        }
        other => panic!("{other:?}"),
    }
    // Its answer comes late and is ignored.
    peers[0].answer(request, 0, Ok(Answer::Done)).await;
    assert!(overlay.has_no_requests());
}

#[tokio::test]
async fn a_dropped_request_is_forgotten() {
    let (overlay, _events, mut peers) = flat(&["a"]).await;
    let asked = ask(&overlay, To::All, SOON);
    peers[0].order().await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    assert!(overlay.has_no_requests());
}

#[tokio::test]
async fn closing_says_goodbye_to_all_and_may_be_done_twice() {
    let (overlay, mut events, mut peers) = flat(&["a", "b"]).await;
    let agents: Vec<_> = peers
        .drain(..)
        .map(|peer| {
            tokio::spawn(async move {
                let Peer { mut reader, writer, .. } = peer;
                assert_eq!(reader.next().await.unwrap(), None);
                writer.close().await.unwrap();
            })
        })
        .collect();
    timeout(Duration::from_secs(4), overlay.close()).await.unwrap();
    timeout(Duration::from_secs(4), overlay.close()).await.unwrap();
    for agent in agents {
        agent.await.unwrap();
    }
    assert!(events.recv().await.is_none(), "a goodbye is no loss");
    assert!(matches!(ask(&overlay, To::All, SOON).await.unwrap(), Err(Error::Gone { .. })));
    overlay.tell(To::All, Order::Release);
}

#[tokio::test]
async fn an_agent_that_says_goodbye_is_answered_and_owes_nothing() {
    let (overlay, mut events, mut peers) = flat(&["a"]).await;
    let asked = ask(&overlay, To::All, SOON);
    peers[0].order().await;
    let Peer { mut reader, writer, .. } = peers.pop().unwrap();
    writer.close().await.unwrap();
    assert_eq!(timeout(SOON, reader.next()).await.unwrap().unwrap(), None);
    assert!(
        matches!(asked.await.unwrap(), Err(Error::Lost { reason, .. }) if reason == "its agent has left")
    );
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn a_dropped_overlay_cuts_its_agents_off() {
    let (overlay, events, mut peers) = flat(&["a"]).await;
    drop((overlay, events));
    assert!(timeout(SOON, peers[0].reader.next()).await.unwrap().unwrap_err().is_cut());
}

/// An agent with a parent says goodbye on the link on which it reported. The frontend may read that only after the
/// whole tree has been built. It once took that for the loss of the agent and all nodes behind it.
#[test]
fn a_goodbye_on_the_reporting_link_that_is_read_late_loses_nothing() {
    let (events, mut receiver) = mpsc::unbounded_channel();
    let tree = Tree::new(7, NonZeroU32::MIN.saturating_add(1));
    let hosts = (0..7).map(|n| format!("n{n}")).collect();
    let shape = Shape { radix: tree.radix(), bulk_radix: 2, stall: STALL };
    let mut root = Root::new(
        Nodes { tree, hosts, listen: Vec::new(), ranks: Vec::new() },
        shape,
        BTreeMap::new(),
        events,
    );
    root.handle(Arrival {
        node: NodeId(4),
        news: News::Ended { orderly: true, reason: "goodbye".to_owned() },
    });
    assert!(root.away().is_empty());
    assert!(receiver.try_recv().is_err());
}
