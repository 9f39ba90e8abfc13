//! The links to the children: they dial, and what they say goes up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::id::{AppId, NodeId};
use gantry_shared::secret::Secret;
use gantry_shared::wire::LinkError;
use gantry_shared::wire::frame;
use gantry_shared::wire::limits::{HANDSHAKE_DEADLINE, MAX_FRAME_BYTES};
use gantry_shared::wire::link::{Incoming, LinkReader, LinkWriter, accept};
use gantry_shared::wire::message::Dial;
use gantry_shared::wire::queue::{LinkQueue, WeakLinkQueue};
use gantry_shared::wire::tcp::tune;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::relay::{LinkTasks, SharedRelay};

/// Bytes of children's frames that may wait for the parent. Beyond it children are not read.
const ROOM_BYTES: usize = 8 * MAX_FRAME_BYTES;
/// Diallers that may be in their handshake at once, beside the children.
const STRANGERS: usize = 16;
/// How long a refused dialler is listened to, so that it reads why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// After a failed accept (too many open files, usually) others get a moment to close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Halves = (LinkReader, LinkWriter);

/// Waits for this agent's children, and closes the listener when all have come or the parent has gone.
pub(super) fn spawn(listener: TcpListener, relay: SharedRelay, app: AppId, secret: Secret) {
    let place = relay.lock().place();
    let awaited: BTreeSet<NodeId> = place.tree.children(place.node.0).map(NodeId).collect();
    if awaited.is_empty() {
        return;
    }
    let mut links = relay.lock().links();
    tokio::spawn(async move {
        tokio::select! {
            () = gather_children(listener, awaited, &relay, app, &secret) => {}
            _ = links.wait_for(|links| !links.parent) => {}
        }
    });
}

async fn gather_children(
    listener: TcpListener,
    mut awaited: BTreeSet<NodeId>,
    relay: &SharedRelay,
    app: AppId,
    secret: &Secret,
) {
    let room = Arc::new(Semaphore::new(ROOM_BYTES));
    let mut greetings = JoinSet::new();
    while !awaited.is_empty() {
        tokio::select! {
            accepted = listener.accept(), if greetings.len() < awaited.len() + STRANGERS => match accepted {
                Ok((stream, _)) => drop(greetings.spawn(greet(stream, app, secret.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an agent");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(greeted) = greetings.join_next() => match greeted.ok().flatten() {
                Some((halves, node)) if awaited.remove(&node) => start(halves, node, relay, &room),
                Some((halves, node)) => drop(greetings.spawn(async move {
                    refuse(halves.1, halves.0, &format!("node {node} is no child of this agent, or is here already")).await;
                    None
                })),
                None => {}
            },
        }
    }
}

/// Handshake and hello.
async fn greet(stream: TcpStream, app: AppId, secret: Secret) -> Option<(Halves, NodeId)> {
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
            Ok(Dial::Child { node }) => return Some(((reader, writer), node)),
            Ok(Dial::Agent(_)) => refuse(writer, reader, "this is an agent, not the frontend").await,
            Err(error) => refuse(writer, reader, &format!("not understood: {error}")).await,
        },
        Ok(Ok(Some(Incoming::Bulk(_)))) => refuse(writer, reader, "bulk data before a hello").await,
        Ok(Ok(None) | Err(_)) | Err(_) => tracing::debug!("a dialler said no hello"),
    }
    None
}

async fn refuse(writer: LinkWriter, mut reader: LinkReader, reason: &str) {
    tracing::warn!(reason, "a dialler was refused");
    let refused = async {
        writer.refuse(reason).await?;
        while reader.next().await?.is_some() {}
        Ok::<(), LinkError>(())
    };
    if !matches!(timeout(REFUSAL_TIME, refused).await, Ok(Ok(()))) {
        tracing::debug!("a refused dialler may not know why");
    }
}

fn start((reader, writer): Halves, node: NodeId, relay: &SharedRelay, room: &Arc<Semaphore>) {
    let (queue, writing) = LinkQueue::start(writer);
    let writer = tokio::spawn(async move {
        if let Err(error) = writing.await {
            tracing::debug!(%node, %error, "cannot write to an agent");
        }
    });
    // Held until the child is known, so that nothing of it comes before.
    let mut locked = relay.lock();
    let reading = read(reader, node, relay.clone(), queue.downgrade(), Arc::clone(room));
    let tasks = LinkTasks { reader: tokio::spawn(reading).abort_handle(), writer: writer.abort_handle() };
    locked.child_joined(node, queue, tasks);
}

async fn read(
    mut reader: LinkReader,
    node: NodeId,
    relay: SharedRelay,
    refusals: WeakLinkQueue,
    room: Arc<Semaphore>,
) {
    let (orderly, reason) = loop {
        let reason = match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => match frame::decode(&body) {
                Ok(up) => {
                    let room = acquire(&room, body.len()).await;
                    relay.lock().pass_up(node, up, body, room);
                    continue;
                }
                Err(error) => format!("not understood: {error}"),
            },
            Ok(Some(Incoming::Bulk(_))) => "not understood: bulk data goes downwards only".to_owned(),
            Ok(None) => break (true, "its agent has left".to_owned()),
            Err(error) if error.is_cut() => break (false, "its link was cut".to_owned()),
            Err(LinkError::Refused { reason, .. }) => break (false, format!("its agent refused: {reason}")),
            Err(error) => error.to_string(),
        };
        refusals.refuse(&reason);
        break (false, reason);
    };
    relay.lock().child_ended(node, orderly, &reason);
}

/// Waits for its turn; frames are smaller than the room.
async fn acquire(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).acquire_many_owned(u32::try_from(bytes).unwrap_or(0)).await.ok()
}
