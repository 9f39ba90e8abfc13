//! How an agent joins the tree.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gantry_link::credit::STALL_TIME;
use gantry_link::greeting::build_mark;
use gantry_link::handshake::connect;
use gantry_link::limits::HANDSHAKE_DEADLINE;
use gantry_link::link::{Incoming, Link, LinkReader, LinkWriter};
use gantry_link::queue::{LAST_WORDS_TIME, LinkQueue};
use gantry_link::tcp::listen;
use gantry_shared::deadline::bounded;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::Brought;
use gantry_shared::wire::message::{AgentHello, Dial, Notice, Seat, Ticket};
use gantry_shared::wire::tree::Tree;
use gantry_types::id::{NodeId, Pid};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::dial::{Caller, dial, dial_telling, say};
use super::join_error::JoinError;
use super::place::Place;
use super::streams::Streams;
use super::uplink::{Joined, Uplink};
use super::{children, parent};
use crate::connection::Connection;
use crate::task;

/// How long the agent dials the frontend if it has another path. A network may drop packets without any error.
const DIAL_TIME: Duration = Duration::from_secs(2);

/// After this time without an answer the agent tries the other path as well.
///
/// An answer takes a millisecond within a cluster, and a quarter of a second around the world.
const ANSWER_TIME: Duration = Duration::from_millis(300);

/// The interval of heartbeats from an agent whose link another process forwards.
const SAY_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Joins the tree: reports to the frontend, with what a launcher has brought here, takes the assigned place, and starts
/// the relay.
///
/// Waits for the frontend and for the parent as long as the ticket says. Waits for the place as long as the frontend
/// lives, since only the frontend knows how long all agents may take.
///
/// # Errors
/// There is no place for this agent. It has undone what it had begun.
pub(crate) async fn join(ticket: &Ticket, brought: Option<Brought>) -> Result<Joined, JoinError> {
    join_with(ticket, brought, STALL_TIME).await
}

/// As [`join`], with another stall time of bulk data.
pub(super) async fn join_with(
    ticket: &Ticket,
    brought: Option<Brought>,
    stall: Duration,
) -> Result<Joined, JoinError> {
    let caller = Caller { app: ticket.app, secret: &ticket.secret };
    let dialled = dial(&ticket.frontend, caller, Instant::now() + bounded(ticket.patience)).await?;
    report(ticket, Reached::dialled(dialled)?, brought, stall).await
}

/// As [`join`], with the `connection` that has brought this agent as a second path.
///
/// If `dial_first`, the agent dials the frontend and uses the connection after [`ANSWER_TIME`] without an answer.
/// Otherwise it uses the connection at once. While it dials, the end of the connection means that the frontend is gone.
pub(crate) async fn join_over(
    ticket: &Ticket,
    mut connection: Connection,
    dial_first: bool,
) -> Result<Joined, JoinError> {
    if !dial_first {
        let link = link_over(ticket, connection).await?;
        return report(ticket, Reached { link, listener: None }, None, STALL_TIME).await;
    }
    let caller = Caller { app: ticket.app, secret: &ticket.secret };
    let (answered, until) = (Arc::default(), Instant::now() + bounded(ticket.patience.min(DIAL_TIME)));
    let mut dialling = std::pin::pin!(dial_telling(&ticket.frontend, caller, until, &answered));
    let dialled = tokio::select! {
        dialled = &mut dialling => Some(dialled),
        () = silence(&answered) => None,
        () = connection.ended() => return Err(JoinError::Gone),
    };
    let reached = match dialled {
        Some(Ok(dialled)) => {
            // The connection stays open as long as this process lives: its other end takes a close for the agent's end.
            task::spawn(async move { drop((pending::<()>().await, connection)) });
            Reached::dialled(dialled)?
        }
        Some(Err(_)) => {
            // The frontend cannot be dialled: the link uses the connection that started this agent.
            Reached { link: link_over(ticket, connection).await?, listener: None }
        }
        None => {
            // A distant frontend may answer yet. The other side accepts that a link it was asked for ends unused.
            let mut linking = std::pin::pin!(link_over(ticket, connection));
            tokio::select! {
                biased;
                Ok(dialled) = &mut dialling => Reached::dialled(dialled)?,
                link = &mut linking => Reached { link: link?, listener: None },
            }
        }
    };
    report(ticket, reached, None, STALL_TIME).await
}

/// Ends if no peer answers within [`ANSWER_TIME`].
async fn silence(answered: &Notify) {
    if timeout(ANSWER_TIME, answered.notified()).await.is_ok() {
        pending().await
    }
}

/// Opens a link over the connection that has brought this agent.
async fn link_over(ticket: &Ticket, mut connection: Connection) -> Result<Link, JoinError> {
    let word = format!("\n{} link\n", build_mark(ticket.app));
    connection.write_all(word.as_bytes()).await.map_err(|_| JoinError::Gone)?;
    // The other side listens only when all agents are there.
    let until = Instant::now() + bounded(ticket.patience.max(HANDSHAKE_DEADLINE));
    Ok(connect(connection, &ticket.secret, ticket.app.as_str().as_bytes(), until).await?)
}

/// A link to the frontend, and the listener for other agents.
struct Reached {
    link: Link,
    /// None: other agents cannot reach this one.
    listener: Option<TcpListener>,
}

impl Reached {
    /// Listens at the address by which this node reaches the frontend. Other agents dial it there.
    fn dialled((link, ours): (Link, IpAddr)) -> Result<Self, JoinError> {
        let listener = listen((ours, 0).into()).map_err(JoinError::Listen)?;
        Ok(Self { link, listener: Some(listener) })
    }
}

/// Says hello, takes the place, and starts the relay.
async fn report(
    ticket: &Ticket,
    Reached { link, listener }: Reached,
    brought: Option<Brought>,
    stall: Duration,
) -> Result<Joined, JoinError> {
    let caller = Caller { app: ticket.app, secret: &ticket.secret };
    let listen = listener.iter().map(TcpListener::local_addr).collect::<Result<_, _>>();
    let listen = listen.map_err(JoinError::Listen)?;
    let pid = i32::try_from(std::process::id()).ok().and_then(Pid::new);
    let pid = pid.ok_or_else(|| JoinError::Answer("this process has no pid".to_owned()))?;
    let hello = AgentHello { host: ticket.host.clone(), pid, listen, brought };
    let (mut reader, writer) = say(link, &Dial::Agent(hello)).await?;
    let (place, parent) = wait_for_seat(&mut reader).await?;
    let (reader, writer) = match parent {
        None => (reader, writer),
        Some(addresses) => {
            let halves = dial_parent(&addresses, place.node, caller, ticket.patience).await?;
            // Not earlier: a cut before this point tells the frontend that this agent has failed to join.
            task::spawn(async move { drop(timeout(LAST_WORDS_TIME, part(reader, writer)).await) });
            halves
        }
    };
    Ok(start(ticket, place, (reader, writer), listener, stall))
}

async fn dial_parent(
    addresses: &[SocketAddr],
    node: NodeId,
    caller: Caller<'_>,
    patience: Duration,
) -> Result<(LinkReader, LinkWriter), JoinError> {
    let (link, _) = dial(addresses, caller, Instant::now() + bounded(patience)).await?;
    say(link, &Dial::Child { node }).await
}

/// Returns the place, and where the parent listens if the parent is not the frontend.
async fn wait_for_seat(reader: &mut LinkReader) -> Result<(Place, Option<Vec<SocketAddr>>), JoinError> {
    match reader.next().await? {
        Some(Incoming::Frame(body)) => match frame::decode(&body)? {
            Seat::Refused(failure) => Err(JoinError::Refused(failure)),
            Seat::Taken { node, nodes, radix, parent } => {
                let radix = NonZeroU32::new(radix).filter(|_| node.0 < nodes);
                let radix = radix.ok_or_else(|| JoinError::Answer("there is no such place".to_owned()))?;
                Ok((Place { node, tree: Tree::new(nodes, radix) }, parent))
            }
        },
        Some(Incoming::Bulk(_) | Incoming::Credit(_)) => {
            Err(JoinError::Answer("bulk data arrived before the agent had its place".to_owned()))
        }
        None => Err(JoinError::Answer("the frontend closed the link".to_owned())),
    }
}

/// Sends heartbeats.
///
/// A process that forwards the link notices a cut only when it has bytes to forward. On a silent link this agent would
/// wait forever, and its ranks with it. The frontend does not acknowledge heartbeats, so a frontend that is stopped for
/// a while loses nothing.
async fn say_alive(up: Uplink) {
    loop {
        tokio::time::sleep(SAY_ALIVE_EVERY).await;
        up.notice(Notice::Alive);
    }
}

/// Exchanges goodbyes with the frontend. From now on this agent talks to its parent.
async fn part(mut reader: LinkReader, writer: LinkWriter) {
    writer.close().await.ok();
    while let Ok(Some(_)) = reader.next().await {}
}

fn start(
    ticket: &Ticket,
    place: Place,
    (reader, writer): (LinkReader, LinkWriter),
    listener: Option<TcpListener>,
    stall: Duration,
) -> Joined {
    let (inputs_to, inputs) = mpsc::unbounded_channel();
    let (queue, writing) = LinkQueue::start(writer, stall);
    tokio::spawn(async move {
        writing.await.ok();
    });
    let credit = queue.credit();
    let up = Uplink::new(place, queue, inputs_to);
    let streams = Streams::new(up.clone(), ticket.app, ticket.secret.clone(), stall);
    tokio::spawn(parent::read(reader, credit, streams.clone()));
    match listener {
        Some(listener) => children::spawn(listener, streams),
        None => drop(task::spawn(say_alive(up.clone()))),
    }
    Joined { node: place.node, nodes: place.tree.nodes(), inputs, up }
}
