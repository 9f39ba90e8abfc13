//! An agent that knows the app's secret and violates the protocol. It is installed with a tool instead of the real
//! agent.
//!
//! On the node `HOSTILE_NODE` it acts according to `HOSTILE_MODE`. On every other node it becomes the real agent,
//! `HOSTILE_REAL`. It pretends to have ranks: their process is its own process. It attacks the frontend when the file
//! `HOSTILE_GO` exists. When it cannot send more, it creates the file `HOSTILE_GO.done` with the result.
//!
//! | modes | action |
//! | --- | --- |
//! | `lie-*` | sends false data, or data of another node |
//! | `replay-*` | repeats true data |
//! | `flood-*` | sends more than the limit, and reads nothing |
//! | `stall-*` | sends nothing more |
//! | `end-*` | ends |
#![expect(
    clippy::disallowed_methods,
    reason = "a test program reads its environment and becomes another program"
)]

use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use gantry_link::handshake::{accept, connect};
use gantry_link::link::{Incoming, Link, LinkReader, LinkWriter};
use gantry_shared::wire::channel::{ChannelNotice, Member, MemberSet};
use gantry_shared::wire::flow::{message_label, output_label};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{
    AgentHello, Answer, Blob, Dial, Down, EncodedReply, FlowId, HeldProof, Notice, Order, RankReport, Seat,
    Source, Ticket, To, Up, Word,
};
use gantry_shared::wire::rendezvous::{Gate, Key, RendezvousNotice, Want};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{DaemonId, NodeId, Pid, Rank, RequestId, SessionId};
use gantry_types::output::Stream;
use gantry_types::rank_set::NodeSet;
use gantry_types::rendezvous::Resource;
use gantry_types::status::ExitStatus;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

type Fault = Box<dyn std::error::Error>;

const SOON: Duration = Duration::from_secs(60);

/// If the peer takes no byte for this time, it will take none later.
const STUCK: Duration = Duration::from_secs(2);

/// How much it floods with at most.
const MOST_BYTES: usize = 512 << 20;
const MOST_MESSAGES: usize = 400_000;

/// How often it looks whether it is time.
const TICK: Duration = Duration::from_millis(20);

fn main() -> Result<(), Fault> {
    let mut told = Vec::new();
    std::io::stdin().lock().read_to_end(&mut told)?;
    let body = frame::read_frame(&mut told.as_slice())?.ok_or("no ticket")?;
    let ticket = Ticket::from_body(&body)?;
    if ticket.host != std::env::var("HOSTILE_NODE")? {
        match become_real(&told)? {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(act(ticket, std::env::var("HOSTILE_MODE")?))
}

fn become_real(told: &[u8]) -> Result<Infallible, Fault> {
    let (reader, mut writer) = std::io::pipe()?;
    // A ticket is smaller than a pipe.
    writer.write_all(told)?;
    drop(writer);
    let real = std::env::var_os("HOSTILE_REAL").ok_or("HOSTILE_REAL is not set")?;
    Err(Command::new(real).args(std::env::args_os().skip(1)).stdin(Stdio::from(reader)).exec().into())
}

/// A child: its number, and the two directions of its link.
type Child = (NodeId, LinkReader, LinkWriter);

/// The link and the place.
struct Agent {
    mode: String,
    pid: Pid,
    node: NodeId,
    writer: LinkWriter,
    downs: mpsc::UnboundedReceiver<Vec<u8>>,
    joining: mpsc::UnboundedReceiver<Child>,
    children: Vec<LinkWriter>,
    /// Messages of children.
    ups: (mpsc::UnboundedSender<Vec<u8>>, mpsc::UnboundedReceiver<Vec<u8>>),
}

async fn act(ticket: Ticket, mode: String) -> Result<(), Fault> {
    let frontend = *ticket.frontend.first().ok_or("no address")?;
    match mode.as_str() {
        "end-before-hello" => return Ok(()),
        "stall-before-hello" => {
            let _silent = TcpStream::connect(frontend).await?;
            return stay().await;
        }
        "stall-in-the-handshake" => {
            let mut half = TcpStream::connect(frontend).await?;
            half.write_all(&[0; 3]).await?;
            return stay().await;
        }
        "flood-garbage" => {
            let mut garbage = TcpStream::connect(frontend).await?;
            while garbage.write_all(&[0x67; 65536]).await.is_ok() {}
            return stay().await;
        }
        _ => {}
    }
    let (mut reader, mut writer) = dial(frontend, &ticket).await?.split();
    let host = if mode == "lie-name" { "elsewhere".to_owned() } else { ticket.host.clone() };
    let pid = Pid::new(i32::try_from(std::process::id())?).ok_or("no pid")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let listen = vec![listener.local_addr()?; if mode == "flood-addresses" { 10_000 } else { 1 }];
    say(&mut writer, &Dial::Agent(AgentHello { host, pid, listen, brought: None })).await?;
    if mode == "lie-early" {
        let notice = Notice::RankExited { rank: Rank(0), status: ExitStatus::Code(0) };
        say(&mut writer, &Up::Notice { node: NodeId(0), notice }).await?;
    }
    if mode == "end-after-hello" {
        return Ok(());
    }
    let Some(Incoming::Frame(body)) = reader.next().await? else { return Err("no place".into()) };
    let Seat::Taken { node, parent, .. } = frame::decode(&body)? else {
        return stay().await;
    };
    if mode == "stall-after-hello" {
        return stay().await;
    }
    if mode == "end-after-its-place" {
        return Ok(());
    }
    if let Some(parent) = parent {
        writer.close().await?;
        let parent = *parent.first().ok_or("no address of the parent")?;
        (reader, writer) = dial(parent, &ticket).await?.split();
        say(&mut writer, &Dial::Child { node }).await?;
    }
    let ((to_downs, downs), (to_joining, joining)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    tokio::spawn(accept_children(listener, ticket, to_joining));
    // A mode that requests answers and does not read them must not read at all.
    if mode.starts_with("flood-asked") {
        tokio::spawn(read_until(reader, to_downs, go()?));
    } else {
        tokio::spawn(read(reader, to_downs));
    }
    let ups = mpsc::unbounded_channel();
    Agent { mode, pid, node, writer, downs, joining, children: Vec::new(), ups }.serve().await
}

fn go() -> Result<PathBuf, Fault> {
    Ok(std::env::var_os("HOSTILE_GO").ok_or("HOSTILE_GO is not set")?.into())
}

/// Accepts all peers with the secret that call themselves a child.
async fn accept_children(listener: TcpListener, ticket: Ticket, joining: mpsc::UnboundedSender<Child>) {
    while let Ok((stream, _)) = listener.accept().await {
        let app = ticket.app.as_str().as_bytes();
        let Ok(link) = accept(stream, &ticket.secret, app, Instant::now() + SOON).await else { continue };
        let (mut reader, writer) = link.split();
        if let Ok(Some(Incoming::Frame(body))) = reader.next().await
            && let Ok(Dial::Child { node }) = frame::decode(&body)
            && joining.send((node, reader, writer)).is_err()
        {
            return;
        }
    }
}

/// How many bytes this process may still write to its parent.
static MAY_WRITE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bytes that were taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A stream that stops in the middle of a write.
struct Choked(TcpStream);

impl AsyncRead for Choked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Choked {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let room = MAY_WRITE.load(Ordering::Relaxed).min(from.len());
        if room == 0 {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.0).poll_write(cx, &from[..room]);
        if let Poll::Ready(Ok(count)) = written {
            TAKEN.fetch_add(count, Ordering::Relaxed);
            if MAY_WRITE.load(Ordering::Relaxed) < usize::MAX {
                MAY_WRITE.fetch_sub(count, Ordering::Relaxed);
            }
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn dial(address: SocketAddr, ticket: &Ticket) -> Result<Link, Fault> {
    let stream = Choked(TcpStream::connect(address).await?);
    Ok(connect(stream, &ticket.secret, ticket.app.as_str().as_bytes(), Instant::now() + SOON).await?)
}

/// Reads frames until the end.
async fn read(mut reader: LinkReader, to: mpsc::UnboundedSender<Vec<u8>>) {
    while let Ok(Some(incoming)) = reader.next().await {
        if let Incoming::Frame(body) = incoming
            && to.send(body).is_err()
        {
            return;
        }
    }
}

/// As [`read`], until that file exists. Then it keeps the link open and reads nothing.
async fn read_until(mut reader: LinkReader, to: mpsc::UnboundedSender<Vec<u8>>, go: PathBuf) {
    loop {
        tokio::select! {
            next = reader.next() => match next {
                Ok(Some(Incoming::Frame(body))) => if to.send(body).is_err() { return },
                Ok(Some(_)) => {}
                _ => return,
            },
            () = sleep(TICK) => if go.exists() { return stay().await },
        }
    }
}

async fn say<T: serde::Serialize>(writer: &mut LinkWriter, what: &T) -> Result<(), Fault> {
    writer.send(what)?;
    Ok(writer.flush().await?)
}

/// Waits until this process is killed.
async fn stay<T>() -> T {
    std::future::pending().await
}

impl Agent {
    /// Obeys as an agent would; breaks the rules when it is time.
    async fn serve(&mut self) -> Result<(), Fault> {
        let go = go()?;
        let mut misbehaved = false;
        loop {
            tokio::select! {
                down = self.downs.recv() => match down {
                    Some(body) => self.pass_down(&body).await?,
                    None => return Ok(()),
                },
                Some((child, reader, writer)) = self.joining.recv() => {
                    self.children.push(writer);
                    self.notice(Notice::ChildJoined { child }).await?;
                    tokio::spawn(read(reader, self.ups.0.clone()));
                }
                Some(body) = self.ups.1.recv() => {
                    self.writer.send_body(&body)?;
                    self.writer.flush().await?;
                }
                () = sleep(TICK), if !misbehaved => if go.exists() {
                    misbehaved = true;
                    let end = self.misbehave().await?;
                    let half = go.with_extension("half");
                    fs::write(&half, end)?;
                    fs::rename(half, go.with_extension("done"))?;
                },
            }
        }
    }

    async fn pass_down(&mut self, body: &[u8]) -> Result<(), Fault> {
        for child in &mut self.children {
            child.send_body(body)?;
            child.flush().await?;
        }
        let Down { request, to, order } = frame::decode(body)?;
        if self.is_for_us(&to) { self.obey(request, order).await } else { Ok(()) }
    }

    fn is_for_us(&self, to: &To) -> bool {
        match to {
            To::All => true,
            To::Nodes(nodes) => nodes.contains(self.node),
        }
    }

    async fn obey(&mut self, request: Option<RequestId>, order: Order) -> Result<(), Fault> {
        let answer = match order {
            Order::StartRanks(order) => match self.mode.as_str() {
                "stall-before-ranks" => return stay().await,
                "end-before-ranks" => std::process::exit(1),
                mode => {
                    let own = order.layout.get(self.node.index()).ok_or("no ranks")?;
                    let mut ranks: Vec<Rank> = own.iter().collect();
                    match mode {
                        "lie-report-of-another" => ranks.push(Rank(0)),
                        "lie-report-of-none" => ranks.push(Rank(999)),
                        "lie-report-twice" => ranks.extend(own.iter()),
                        "lie-report-short" => ranks.clear(),
                        _ => {}
                    }
                    Answer::Ranks(ranks.into_iter().map(|rank| report(self.pid, rank, order.hold)).collect())
                }
            },
            Order::OpenSession { .. } if self.mode == "stall-before-a-session" => return stay().await,
            Order::OpenSession { .. } => {
                let why = Failure::new(Kind::NoAccess, "open a session: this agent has none");
                return self.answer(request, Err(why)).await;
            }
            _ => Answer::Done,
        };
        if self.mode == "replay-answers" {
            self.answer(request, Ok(answer.clone())).await?;
        }
        self.answer(request, Ok(answer)).await
    }

    async fn answer(
        &mut self,
        request: Option<RequestId>,
        answer: Result<Answer, Failure>,
    ) -> Result<(), Fault> {
        let Some(request) = request else { return Ok(()) };
        let nodes = NodeSet::from_range(self.node..=self.node);
        say(&mut self.writer, &Up::Answers { request, answers: vec![(nodes, encoded(&answer))] }).await
    }

    async fn notice(&mut self, notice: Notice) -> Result<(), Fault> {
        say(&mut self.writer, &Up::Notice { node: self.node, notice }).await
    }

    /// One of its ranks. Every node has one, with the node's number.
    fn rank(&self) -> Rank {
        Rank(self.node.0)
    }

    /// Misbehaves, and returns the outcome of a flood.
    async fn misbehave(&mut self) -> Result<String, Fault> {
        if self.mode.starts_with("flood-") {
            return self.flood().await;
        }
        self.lie().await?;
        Ok(String::new())
    }

    async fn lie(&mut self) -> Result<(), Fault> {
        let (own, other) = (self.rank(), Rank(0));
        let (status, daemon) = (ExitStatus::Code(0), DaemonId(77));
        let stranger = NodeSet::from_range(NodeId(0)..=NodeId(0));
        match self.mode.as_str() {
            "lie-exit-of-another" => self.notice(Notice::RankExited { rank: other, status }).await,
            "lie-exit-of-none" => self.notice(Notice::RankExited { rank: Rank(999), status }).await,
            "replay-exit" => {
                self.notice(Notice::RankExited { rank: own, status }).await?;
                self.notice(Notice::RankExited { rank: own, status }).await
            }
            "lie-output-of-another" => self.notice(output(other, b"not mine\n".to_vec())).await,
            "replay-output-end" => {
                let end = Notice::Flow { flow: FlowId::Output(None), word: Word::End };
                self.notice(end.clone()).await?;
                self.notice(end).await
            }
            "lie-loss-of-another" => {
                self.notice(Notice::NodesLost { nodes: stranger, reason: "a lie".to_owned() }).await
            }
            "lie-child" => self.notice(Notice::ChildJoined { child: NodeId(0) }).await,
            "lie-daemon" => self.notice(Notice::DaemonExited { daemon, status }).await,
            "lie-stdin" => {
                self.notice(Notice::Flow { flow: FlowId::Input(own), word: Word::Credit(1 << 30) }).await
            }
            "lie-as-another" => {
                let notice = Notice::RankExited { rank: other, status };
                say(&mut self.writer, &Up::Notice { node: NodeId(0), notice }).await
            }
            "lie-answer-of-another" => {
                let answers = vec![(stranger, encoded(&Ok(Answer::Done)))];
                say(&mut self.writer, &Up::Answers { request: RequestId(1), answers }).await
            }
            "lie-answer-unasked" => self.answer(Some(RequestId(1 << 40)), Ok(Answer::Done)).await,
            "lie-link" => {
                self.notice(Notice::Flow { flow: FlowId::Link(9), word: Word::data(vec![0; 100]) }).await
            }
            "lie-in-no-language" => {
                let notice = Notice::Flow { flow: FlowId::Items, word: Word::End };
                let mut body = frame::encode_body(&Up::Notice { node: self.node, notice })?;
                body.pop();
                self.writer.send_body(&body)?;
                Ok(self.writer.flush().await?)
            }
            "lie-message" => {
                let label = message_label(SessionId(1), 1);
                let word = Word::Data { label, bytes: Blob(vec![0; 100]) };
                self.notice(Notice::Flow { flow: FlowId::Messages(daemon), word }).await
            }
            "lie-contribution" => {
                let of = MemberSet::of(Member { node: NodeId(0), daemon });
                let part = ChannelNotice::Part { operation: 9, part: 77, of, total: 1, bytes: Blob(vec![0]) };
                self.notice(Notice::Channel(part)).await
            }
            "stall-half-a-frame" => {
                MAY_WRITE.store(100, Ordering::Relaxed);
                let flushed = timeout(STUCK, self.notice(output(own, vec![b'x'; 1000]))).await;
                if flushed.is_ok() { Err("all of the frame was written".into()) } else { Ok(()) }
            }
            "end-at-once" => std::process::exit(1),
            "none" => stay().await,
            other => Err(format!("no mode {other}").into()),
        }
    }

    /// Sends one message repeatedly, until the peer takes no bytes for some time, or the limit is reached. Returns
    /// which of these happened, and the number of messages.
    async fn flood(&mut self) -> Result<String, Fault> {
        let own = self.rank();
        // Answers contain the name.
        let named =
            |expected| Gate { resource: Resource::Named("x".repeat(64).parse().expect("a name")), expected };
        let rendezvous = |notice| Notice::Rendezvous(notice);
        let notice = match self.mode.as_str() {
            "flood-output" => output(own, vec![b'x'; 32 * 1024]),
            "flood-small-output" => output(own, vec![b'x']),
            "flood-asked-refused" => {
                rendezvous(RendezvousNotice::Get(Key { of: named(None), want: Want::All }))
            }
            "flood-asked-get" => {
                rendezvous(RendezvousNotice::Get(Key { of: named(Some(4)), want: Want::All }))
            }
            "flood-asked-put" => {
                rendezvous(RendezvousNotice::Put { item: 1, of: named(Some(4)), rank: own, bytes: 1 << 20 })
            }
            "flood-asked-fence" => {
                let puts = vec![(self.node, Blob(vec![0; 1024]))];
                rendezvous(RendezvousNotice::Fence { number: 0, puts })
            }
            "flood-items" => Notice::Flow { flow: FlowId::Items, word: Word::data(vec![0; 128 * 1024]) },
            "flood-alive" => Notice::Alive,
            "flood-reasons" => {
                let nodes = NodeSet::from_range(self.node..=self.node);
                Notice::NodesLost { nodes, reason: "x".repeat(1_000_000) }
            }
            other => return Err(format!("no mode {other}").into()),
        };
        let body = frame::encode_body(&Up::Notice { node: self.node, notice })?;
        let (mut sent, mut count, mut end) = (0, 0, "all taken");
        while sent < MOST_BYTES && count < MOST_MESSAGES {
            // Send in batches, so that the system is not the bottleneck.
            for _ in 0..(65_536 / body.len()).max(1) {
                self.writer.send_body(&body)?;
                sent += body.len();
                count += 1;
            }
            end = loop {
                let before = TAKEN.load(Ordering::Relaxed);
                match timeout(STUCK, self.writer.flush()).await {
                    Ok(Ok(())) => break end,
                    Ok(Err(_)) => break "closed",
                    Err(_) if TAKEN.load(Ordering::Relaxed) == before => break "stuck",
                    Err(_) => {}
                }
            };
            if end != "all taken" {
                break;
            }
        }
        Ok(format!("{end} after {count} messages"))
    }
}

fn output(rank: Rank, bytes: Vec<u8>) -> Notice {
    let label = output_label(Source::Rank(rank), Stream::Stdout);
    Notice::Flow { flow: FlowId::Output(None), word: Word::Data { label, bytes: Blob(bytes) } }
}

fn report(pid: Pid, rank: Rank, held: bool) -> RankReport {
    RankReport { rank, pid, exe: "/bin/true".into(), held: held.then_some(HeldProof { pc: 1, state: 'T' }) }
}

fn encoded(answer: &Result<Answer, Failure>) -> EncodedReply {
    EncodedReply::of(answer).expect("an answer")
}
