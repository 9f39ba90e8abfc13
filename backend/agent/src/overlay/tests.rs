//! Agents in a tree, over real TCP, under a frontend that the test plays.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_link::bulk::SealedChunk;
use gantry_link::credit::{STALL_TIME, WINDOW_CHUNKS};
use gantry_link::handshake::{accept, connect};
use gantry_link::link::{Incoming, Link, LinkReader, LinkWriter};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{
    Answer, BulkOrder, BulkSeat, Dial, Down, EncodedReply, FlowId, Notice, Order, Reply, Seat, Ticket, To,
    Up, Word,
};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, DaemonId, EntryIndex, NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use gantry_types::status::ExitStatus;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::join::join_with;
use super::join_error::JoinError;
use super::{Input, Joined, join};

mod bulk;
mod fences;
mod parts;

const SOON: Duration = Duration::from_secs(10);
/// The number of orders that link nodes.
const LINKING: u64 = 1000;

/// A frontend that the test plays, with its listener.
struct Front {
    app: AppId,
    secret: Secret,
    listener: TcpListener,
}

impl Front {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { app: AppId::random().unwrap(), secret: Secret::random().unwrap(), listener }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn ticket(&self, host: &str) -> Ticket {
        Ticket {
            subjob: None,
            app: self.app,
            secret: self.secret.clone(),
            frontend: vec![self.address()],
            host: host.to_owned(),
            wlm: "test".to_owned(),
            stage_base: None,
            node_variables: Vec::new(),
            patience: SOON,
        }
    }

    async fn accept(&self) -> Result<Peer, LinkError> {
        let (stream, _) = timeout(SOON, self.listener.accept()).await.unwrap().unwrap();
        let deadline = Instant::now() + SOON;
        Ok(Peer::new(accept(stream, &self.secret, self.app.as_str().as_bytes(), deadline).await?))
    }

    /// Accepts the next agent: its link, its host, and where it listens.
    async fn hello(&self) -> (Peer, String, Vec<SocketAddr>) {
        let mut peer = self.accept().await.unwrap();
        match peer.hear().await {
            Dial::Agent(hello) => (peer, hello.host, hello.listen),
            other => panic!("{other:?}"),
        }
    }

    async fn dial(&self, address: SocketAddr, secret: &Secret) -> Result<Peer, LinkError> {
        let stream = TcpStream::connect(address).await.unwrap();
        let link = connect(stream, secret, self.app.as_str().as_bytes(), Instant::now() + SOON).await?;
        Ok(Peer::new(link))
    }
}

struct Peer {
    reader: LinkReader,
    writer: LinkWriter,
    /// Credit for chunks.
    free: u32,
    /// Frames that arrived while the peer waited for credit.
    heard: VecDeque<Vec<u8>>,
}

impl Peer {
    fn new(link: Link) -> Self {
        let (reader, writer) = link.split();
        Self { reader, writer, free: WINDOW_CHUNKS, heard: VecDeque::new() }
    }

    async fn say<T: serde::Serialize>(&mut self, message: &T) {
        self.writer.send(message).unwrap();
        self.writer.flush().await.unwrap();
    }

    async fn say_body(&mut self, body: &[u8]) {
        self.writer.send_body(body).unwrap();
        self.writer.flush().await.unwrap();
    }

    async fn hear<T: serde::de::DeserializeOwned>(&mut self) -> T {
        frame::decode(&self.hear_body().await).unwrap()
    }

    async fn hear_body(&mut self) -> Vec<u8> {
        while self.heard.is_empty() {
            self.listen().await;
        }
        self.heard.pop_front().unwrap()
    }

    async fn listen(&mut self) {
        match timeout(SOON, self.reader.next()).await.unwrap().unwrap() {
            Some(Incoming::Frame(body)) => self.heard.push_back(body),
            Some(Incoming::Credit(places)) => self.free += places,
            other => panic!("heard {other:?}"),
        }
    }

    /// Sends a chunk when there is credit for it.
    async fn feed(&mut self, chunk: &SealedChunk) {
        while self.free == 0 {
            self.listen().await;
        }
        self.free -= 1;
        self.writer.send_bulk(chunk.clone()).unwrap();
        self.writer.flush().await.unwrap();
    }

    /// Gives agents their places in a stream's tree and waits until they are ready.
    async fn link(&mut self, stream: u64, seats: Vec<BulkSeat>) {
        let mut owed: BTreeSet<u32> = seats.iter().map(|seat| seat.node.0).collect();
        let to = To::Nodes(seats.iter().map(|seat| seat.node).collect());
        self.order(LINKING, to, Order::Bulk(BulkOrder::Link { stream, seats })).await;
        while !owed.is_empty() {
            let (request, answers) = self.answers().await;
            assert_eq!(request, LINKING);
            for (node, answer) in answers {
                assert_eq!(answer, Ok(Answer::Done), "node {node}");
                assert!(owed.remove(&node));
            }
        }
    }

    async fn order(&mut self, number: u64, to: To, order: Order) {
        self.say(&Down { request: Some(RequestId(number)), to, order }).await;
    }

    async fn answers(&mut self) -> (u64, Vec<(u32, Reply)>) {
        match self.hear().await {
            Up::Answers { request, answers } => {
                let each = |(nodes, reply): (NodeSet, EncodedReply)| {
                    let reply = reply.decode().unwrap();
                    nodes.iter().map(|node| (node.0, reply.clone())).collect::<Vec<_>>()
                };
                (request.0, answers.into_iter().flat_map(each).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn notice(&mut self) -> (u32, Notice) {
        match self.hear().await {
            Up::Notice { node, notice } => (node.0, notice),
            other => panic!("{other:?}"),
        }
    }

    async fn end(&mut self) -> Result<Option<Incoming>, LinkError> {
        timeout(SOON, self.reader.next()).await.unwrap()
    }
}

/// A frontend and `nodes` agents in a chain.
///
/// Returns the link of the first agent. The others have said goodbye to the frontend.
async fn chain(nodes: u32) -> (Front, Peer, Vec<Joined>, Vec<SocketAddr>) {
    chain_with(nodes, STALL_TIME).await
}

async fn chain_with(nodes: u32, stall: Duration) -> (Front, Peer, Vec<Joined>, Vec<SocketAddr>) {
    let front = Front::new().await;
    let joining: Vec<_> = (0..nodes)
        .map(|node| {
            let ticket = front.ticket(&node.to_string());
            tokio::spawn(async move { join_with(&ticket, None, stall).await })
        })
        .collect();
    let mut hellos = Vec::new();
    for _ in 0..nodes {
        let (peer, host, listen) = front.hello().await;
        hellos.push((host.parse::<u32>().unwrap(), peer, listen));
    }
    hellos.sort_by_key(|(node, ..)| *node);
    let listens: Vec<_> = hellos.iter().map(|(.., listen)| listen.clone()).collect();
    let mut first = None;
    for (node, mut peer, _) in hellos {
        let parent = node.checked_sub(1).map(|parent| listens[parent as usize].clone());
        peer.say(&Seat::Taken { node: NodeId(node), nodes, radix: 1, parent }).await;
        match first {
            None => first = Some(peer),
            Some(_) => {
                assert_eq!(peer.end().await.unwrap(), None);
                peer.writer.close().await.unwrap();
            }
        }
    }
    let mut first = first.unwrap();
    for _ in 1..nodes {
        assert!(matches!(first.notice().await, (_, Notice::ChildJoined { .. })));
    }
    let mut agents = Vec::new();
    for joining in joining {
        agents.push(timeout(SOON, joining).await.unwrap().unwrap().unwrap());
    }
    (front, first, agents, listens.into_iter().flatten().collect())
}

async fn input(agent: &mut Joined) -> Input {
    timeout(SOON, agent.inputs.recv()).await.unwrap().unwrap()
}

async fn order(agent: &mut Joined) -> (RequestId, Order) {
    match input(agent).await {
        Input::Order { request: Some(request), order } => (request, order),
        other => panic!("{other:?}"),
    }
}

async fn gone(agent: &mut Joined) -> (bool, String) {
    let gone = match input(agent).await {
        Input::Gone { orderly, reason } => (orderly, reason),
        other => panic!("{other:?}"),
    };
    assert!(agent.inputs.recv().await.is_none(), "it is the last input");
    gone
}

fn single(node: u32) -> NodeSet {
    NodeSet::from_range(NodeId(node)..=NodeId(node))
}

fn only(node: u32) -> To {
    To::Nodes(single(node))
}

fn daemon_exited() -> Notice {
    Notice::DaemonExited { daemon: DaemonId(1), status: ExitStatus::Unknown }
}

#[tokio::test]
async fn orders_reach_whom_they_are_for_and_answers_come_up_together() {
    let (_front, mut root, mut agents, _) = chain(3).await;
    assert_eq!(
        agents.iter().map(|agent| (agent.node.0, agent.nodes)).collect::<Vec<_>>(),
        [(0, 3), (1, 3), (2, 3)]
    );
    root.order(1, To::All, Order::Ping).await;
    for agent in &mut agents {
        let (request, order) = order(agent).await;
        assert_eq!(order, Order::Ping);
        agent.up.answer(request, Ok(Answer::Done));
    }
    let mut answered = Vec::new();
    while answered.len() < 3 {
        let (request, answers) = root.answers().await;
        assert_eq!(request, 1);
        answered.extend(answers.into_iter().map(|(node, _)| node));
    }
    answered.sort_unstable();
    assert_eq!(answered, [0, 1, 2]);
    root.order(2, only(1), Order::Release).await;
    let (request, got) = order(&mut agents[1]).await;
    assert_eq!((request, got), (RequestId(2), Order::Release));
    agents[1].up.answer(request, Err(Failure::new(Kind::NoAccess, "no")));
    assert_eq!(root.answers().await, (2, vec![(1, Err(Failure::new(Kind::NoAccess, "no")))]));
    assert!(agents[0].inputs.try_recv().is_err() && agents[2].inputs.try_recv().is_err());
}

#[tokio::test]
async fn answers_do_not_wait_for_ever_for_slow_nodes() {
    let (_front, mut root, mut agents, _) = chain(2).await;
    root.order(1, To::All, Order::Ping).await;
    let (request, _) = order(&mut agents[0]).await;
    agents[0].up.answer(request, Ok(Answer::Done));
    assert_eq!(root.answers().await, (1, vec![(0, Ok(Answer::Done))]));
    let (request, _) = order(&mut agents[1]).await;
    agents[1].up.answer(request, Ok(Answer::Done));
    assert_eq!(root.answers().await, (1, vec![(1, Ok(Answer::Done))]));
}

#[tokio::test]
async fn what_a_node_says_keeps_its_order() {
    let (_front, mut root, mut agents, _) = chain(2).await;
    for number in 0..20 {
        root.order(number, To::All, Order::Ping).await;
        let (request, _) = order(&mut agents[1]).await;
        agents[1].up.notice(daemon_exited());
        agents[1].up.answer(request, Ok(Answer::Done));
        agents[1].up.notice(Notice::Flow { flow: FlowId::Items, word: Word::Credit(1) });
        assert!(matches!(root.notice().await, (1, Notice::DaemonExited { .. })));
        assert_eq!(root.answers().await, (number, vec![(1, Ok(Answer::Done))]));
        assert!(matches!(root.notice().await, (1, Notice::Flow { .. })));
    }
}

#[tokio::test]
async fn words_of_flows_go_through_agents_that_cannot_read_them() {
    let (_front, mut root, agent, mut child) = parent_and_child().await;
    let whole = Up::Notice { node: NodeId(2), notice: Notice::Flow { flow: FlowId::Items, word: Word::End } };
    let mut body = frame::encode_body(&whole).unwrap();
    *body.last_mut().unwrap() = 99;
    child.say_body(&body).await;
    assert_eq!(root.hear_body().await, body, "it came as it was");
    let word = Order::Flow { flow: FlowId::Link(1), word: Word::End };
    let mut body = frame::encode_body(&Down { request: None, to: only(2), order: word }).unwrap();
    *body.last_mut().unwrap() = 99;
    root.say_body(&body).await;
    assert_eq!(child.hear_body().await, body);
    let mut inputs = agent.inputs;
    assert!(inputs.try_recv().is_err(), "none of it was for the agent between");
}

#[tokio::test]
async fn an_answer_that_is_too_large_becomes_a_failure() {
    let (_front, mut root, mut agents, _) = chain(1).await;
    root.order(1, To::All, Order::Ping).await;
    let (request, _) = order(&mut agents[0]).await;
    agents[0].up.answer(request, Ok(Answer::Missing((0..300_000).map(|i| EntryIndex(2 * i)).collect())));
    let (_, answers) = root.answers().await;
    assert!(matches!(&answers[..], [(0, Err(failure))] if failure.message().starts_with("send the answer")));
}

#[tokio::test]
async fn of_several_addresses_the_one_that_answers_is_taken() {
    let front = Front::new().await;
    // One address refuses. One accepts and sends nothing.
    let refused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut ticket = front.ticket("0");
    ticket.frontend = vec![refused, silent.local_addr().unwrap(), front.address()];
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    let (mut peer, ..) = timeout(Duration::from_secs(3), front.hello()).await.unwrap();
    peer.say(&Seat::Taken { node: NodeId(0), nodes: 1, radix: 1, parent: None }).await;
    joining.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_is_not_there_yet_is_tried_again_until_the_patience_is_over() {
    let mut front = Front::new().await;
    // Bound but not listening, so no other process can take the port meanwhile.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut ticket = front.ticket("0");
    ticket.frontend = vec![silent.local_addr().unwrap()];
    ticket.patience = Duration::from_millis(300);
    match join(&ticket, None).await {
        Err(JoinError::Unreachable { reasons }) => assert!(reasons[0].contains("refused"), "{reasons:?}"),
        other => panic!("{other:?}"),
    }
    ticket.patience = SOON;
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    tokio::task::yield_now().await;
    front.listener = silent.listen(16).unwrap();
    let (mut peer, ..) = front.hello().await;
    peer.say(&Seat::Taken { node: NodeId(0), nodes: 1, radix: 1, parent: None }).await;
    joining.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_agent_that_has_to_give_way_comes_again() {
    let front = Front::new().await;
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    for _ in 0..3 {
        // An overloaded listener closes connections like this.
        drop(front.listener.accept().await.unwrap());
    }
    let (mut root, host, _) = front.hello().await;
    assert_eq!(host, "0");
    root.say(&Seat::Taken { node: NodeId(0), nodes: 1, radix: 1, parent: None }).await;
    joining.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refusal_is_final_and_says_why() {
    let front = Front::new().await;
    let mut other = front.ticket("0");
    other.secret = Secret::random().unwrap();
    let (joined, accepted) = tokio::join!(join(&other, None), front.accept());
    assert!(accepted.is_err());
    assert!(
        matches!(joined, Err(JoinError::Unreachable { reasons }) if reasons[0].contains("another secret"))
    );
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    let (mut peer, ..) = front.hello().await;
    peer.say(&Seat::Refused(Failure::new(Kind::Invalid, "not you"))).await;
    assert_eq!(joining.await.unwrap().unwrap_err().to_string(), "take a place: not you");
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    drop(front.hello().await);
    assert!(matches!(joining.await.unwrap(), Err(JoinError::Link(error)) if error.is_cut()));
}

#[tokio::test]
async fn a_cut_above_is_seen_as_a_cut_all_the_way_down() {
    let (_front, root, mut agents, _) = chain(3).await;
    drop(root);
    for agent in &mut agents {
        assert_eq!(gone(agent).await, (false, "the link to the parent was cut".to_owned()));
        agent.up.notice(daemon_exited());
    }
    for agent in agents {
        timeout(Duration::from_secs(1), agent.up.close()).await.unwrap();
    }
}

#[tokio::test]
async fn a_goodbye_from_above_is_passed_down_and_answered() {
    let (_front, root, mut agents, _) = chain(3).await;
    let Peer { mut reader, writer, .. } = root;
    writer.close().await.unwrap();
    assert_eq!(timeout(SOON, reader.next()).await.unwrap().unwrap(), None);
    for agent in &mut agents {
        assert_eq!(gone(agent).await, (true, "the parent closed the link".to_owned()));
    }
    for agent in agents {
        timeout(Duration::from_secs(1), agent.up.close()).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_agent_is_named_with_all_behind_it_and_not_waited_for() {
    let front = Front::new().await;
    // A chain: a real agent, an agent played by the test, and a node without an agent.
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    let (mut root, _, listen) = front.hello().await;
    root.say(&Seat::Taken { node: NodeId(0), nodes: 3, radix: 1, parent: None }).await;
    let mut agent = joining.await.unwrap().unwrap();
    let mut child = front.dial(listen[0], &front.secret).await.unwrap();
    child.say(&Dial::Child { node: NodeId(1) }).await;
    assert_eq!(root.notice().await, (0, Notice::ChildJoined { child: NodeId(1) }));
    root.order(1, To::All, Order::Ping).await;
    let down: Down = child.hear().await;
    assert_eq!((down.request, &down.order), (Some(RequestId(1)), &Order::Ping));
    let answers = vec![(single(2), EncodedReply::of(&Ok(Answer::Done)).unwrap())];
    child.say(&Up::Answers { request: RequestId(1), answers }).await;
    assert_eq!(root.answers().await, (1, vec![(2, Ok(Answer::Done))]));
    drop(child);
    match root.notice().await {
        (0, Notice::NodesLost { nodes, reason }) => {
            assert_eq!((nodes.to_string(), reason), ("1-2".to_owned(), "its link was cut".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    let (request, _) = order(&mut agent).await;
    agent.up.answer(request, Ok(Answer::Done));
    assert_eq!(root.answers().await, (1, vec![(0, Ok(Answer::Done))]));
    // The agent listens for nodes to feed as long as it has a place.
    drop(root);
    assert!(!gone(&mut agent).await.0);
    timeout(SOON, async {
        while TcpStream::connect(listen[0]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// A real agent as node 0 of a chain of three, with a child that the test plays. Its parent is `root`.
async fn parent_and_child() -> (Front, Peer, Joined, Peer) {
    let front = Front::new().await;
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    let (mut root, _, listen) = front.hello().await;
    root.say(&Seat::Taken { node: NodeId(0), nodes: 3, radix: 1, parent: None }).await;
    let agent = joining.await.unwrap().unwrap();
    let mut child = front.dial(listen[0], &front.secret).await.unwrap();
    child.say(&Dial::Child { node: NodeId(1) }).await;
    assert_eq!(root.notice().await, (0, Notice::ChildJoined { child: NodeId(1) }));
    (front, root, agent, child)
}

#[tokio::test]
async fn a_child_that_speaks_for_nodes_that_are_not_below_it_is_cut_off() {
    let lost = |nodes| Notice::NodesLost { nodes, reason: "a lie".to_owned() };
    let done = EncodedReply::of(&Ok(Answer::Done)).unwrap();
    let answers = |text: &str| vec![(text.parse().unwrap(), done.clone())];
    let notice = |node, notice| Up::Notice { node: NodeId(node), notice };
    for (lie, why) in [
        (Up::Answers { request: RequestId(1), answers: answers("0,2") }, "answered for node 0"),
        (notice(0, Notice::Alive), "spoke for node 0"),
        (notice(7, Notice::Alive), "spoke for node 7"),
        (notice(0, Notice::Flow { flow: FlowId::Items, word: Word::End }), "spoke for node 0"),
        (notice(1, lost(single(0))), "reported the loss of node 0"),
        (notice(2, lost(single(1))), "reported the loss of node 1"),
    ] {
        let (_front, mut root, _agent, mut child) = parent_and_child().await;
        child.say(&lie).await;
        let reason = format!("it {why}, which is not below it: its link was closed");
        let nodes = "1-2".parse().unwrap();
        assert_eq!(root.notice().await, (0, Notice::NodesLost { nodes, reason: reason.clone() }));
        assert!(matches!(child.end().await, Err(LinkError::Refused { reason: told, .. }) if told == reason));
    }
}

#[tokio::test]
async fn a_child_is_cut_off_when_the_frontend_says_so() {
    let (_front, mut root, _agent, mut child) = parent_and_child().await;
    let reason = "it sent a second exit of rank 3".to_owned();
    let order = Order::CutChild { child: NodeId(1), reason: reason.clone() };
    root.say(&Down { request: None, to: only(0), order }).await;
    let closed = format!("{reason}: its link was closed");
    let nodes = "1-2".parse().unwrap();
    assert_eq!(root.notice().await, (0, Notice::NodesLost { nodes, reason: closed }));
    let end = loop {
        match child.end().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Err(LinkError::Refused { reason: told, .. }) if told == reason));
}

#[tokio::test]
async fn an_agent_that_leaves_is_no_loss_and_is_answered_for() {
    let (_front, mut root, mut agents, _) = chain(2).await;
    root.order(1, To::All, Order::Ping).await;
    let (request, _) = order(&mut agents[0]).await;
    agents[0].up.answer(request, Ok(Answer::Done));
    assert_eq!(root.answers().await.1, [(0, Ok(Answer::Done))]);
    let leaving = agents.pop().unwrap();
    timeout(Duration::from_secs(1), leaving.up.close()).await.unwrap();
    let left = || Err(Failure::new(Kind::Gone, "its agent has left"));
    assert_eq!(root.answers().await, (1, vec![(1, left())]));
    root.order(2, only(1), Order::Ping).await;
    assert_eq!(root.answers().await, (2, vec![(1, left())]));
    timeout(Duration::from_secs(3), agents.pop().unwrap().up.close()).await.unwrap();
    assert_eq!(root.end().await.unwrap(), None);
}

#[tokio::test]
async fn strangers_are_turned_away_and_disturb_nobody() {
    let front = Front::new().await;
    let ticket = front.ticket("0");
    let joining = tokio::spawn(async move { join(&ticket, None).await });
    let (mut root, _, listen) = front.hello().await;
    root.say(&Seat::Taken { node: NodeId(0), nodes: 2, radix: 1, parent: None }).await;
    let _agent = joining.await.unwrap().unwrap();
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(listen[0]).await.unwrap());
    }
    let mut garbage = TcpStream::connect(listen[0]).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(front.dial(listen[0], &Secret::random().unwrap()).await.is_err());
    let mut other = front.dial(listen[0], &front.secret).await.unwrap();
    other.say(&Dial::Child { node: NodeId(7) }).await;
    let refused = other.end().await.unwrap_err().to_string();
    assert!(refused.contains("node 7 is not a child of this agent"), "{refused}");
    let mut child = front.dial(listen[0], &front.secret).await.unwrap();
    child.say(&Dial::Child { node: NodeId(1) }).await;
    assert_eq!(root.notice().await, (0, Notice::ChildJoined { child: NodeId(1) }));
    // Malformed bytes from a child cost only that child its link.
    child.say(&0xffff_ffff_u64).await;
    assert!(matches!(root.notice().await, (0, Notice::NodesLost { .. })));
    assert!(matches!(child.end().await, Err(LinkError::Refused { .. })));
}
