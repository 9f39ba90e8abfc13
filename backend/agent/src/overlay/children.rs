//! Incoming links: from children in the tree, and from nodes that this agent feeds with bulk data.

use std::collections::BTreeSet;
use std::sync::Arc;

use gantry_link::LinkError;
use gantry_link::credit::Credit;
use gantry_link::greeting::{Door, Halves};
use gantry_link::link::{Incoming, LinkReader};
use gantry_link::queue::{LinkQueue, WeakLinkQueue};
use gantry_shared::wire::frame;
use gantry_shared::wire::frame::MAX_FRAME_BYTES;
use gantry_shared::wire::message::{Dial, Up};
use gantry_types::id::NodeId;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::flow::FlowContext;
use super::relay::LinkTasks;
use super::streams::Streams;
use super::uplink::Uplink;

/// Bytes of children's frames that may wait for the parent. Beyond it the agent stops reading its children.
const ROOM_BYTES: usize = 8 * MAX_FRAME_BYTES;
/// The limit on dialling nodes that wait for a stream that this agent does not know yet.
const EARLY: usize = 64;

/// Accepts links from other agents until the parent is gone.
pub(super) fn spawn(listener: TcpListener, streams: Streams) {
    let FlowContext { relay, app, secret, .. } = streams.context();
    let place = relay.lock().place();
    let awaited: BTreeSet<NodeId> = place.tree.children(place.node.0).map(NodeId).collect();
    let mut links = relay.lock().links();
    let door = Door::new(listener, *app, secret.clone(), |_| None);
    tokio::spawn(async move {
        tokio::select! {
            () = keep(door, awaited, &streams) => {}
            _ = links.wait_for(|links| !links.parent) => {}
        }
    });
}

async fn keep(mut door: Door, mut awaited: BTreeSet<NodeId>, streams: &Streams) {
    let room = Arc::new(Semaphore::new(ROOM_BYTES));
    let mut early = JoinSet::new();
    loop {
        tokio::select! {
            (halves, dial) = door.next(awaited.len()) => match dial {
                Dial::Child { node } if awaited.remove(&node) => start(halves, node, streams, &room),
                Dial::Child { node } => {
                    door.refuse(halves, format!("node {node} is not a child of this agent, or is already connected"));
                }
                Dial::Bulk { node, stream } if early.len() < EARLY => {
                    let streams = streams.clone();
                    early.spawn(async move { streams.attach(stream, node, halves).await });
                }
                Dial::Bulk { .. } => door.refuse(halves, "too many connections wait for a stream here".to_owned()),
                Dial::Agent(_) => door.refuse(halves, "this is an agent, not the frontend".to_owned()),
            },
            Some(attached) = early.join_next() => {
                if let Ok(Some((halves, reason))) = attached {
                    door.refuse(halves, reason.to_owned());
                }
            }
        }
    }
}

fn start((reader, writer): Halves, node: NodeId, streams: &Streams, room: &Arc<Semaphore>) {
    let FlowContext { relay, stall, .. } = streams.context();
    let (queue, writing) = LinkQueue::start(writer, *stall);
    let writer = tokio::spawn(async move {
        writing.await.ok();
    });
    // The lock keeps the child's frames out until the relay knows the child.
    let mut locked = relay.lock();
    let reading = read(reader, node, relay.clone(), (queue.downgrade(), queue.credit()), Arc::clone(room));
    let tasks = LinkTasks { reader: tokio::spawn(reading).abort_handle(), writer: writer.abort_handle() };
    locked.child_joined(node, queue, tasks);
}

async fn read(
    mut reader: LinkReader,
    node: NodeId,
    relay: Uplink,
    (refusals, credit): (WeakLinkQueue, Arc<Credit>),
    room: Arc<Semaphore>,
) {
    let (orderly, reason) = loop {
        refusals.drained().await;
        let reason = match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => {
                let room = acquire(&room, body.len()).await;
                match pass(&relay, node, body, room) {
                    Ok(()) => continue,
                    Err(reason) => reason,
                }
            }
            Ok(Some(Incoming::Credit(places))) => match credit.earn(places) {
                Ok(()) => continue,
                Err(error) => error.to_string(),
            },
            Ok(Some(Incoming::Bulk(_))) => "protocol error: bulk data only travels down the tree".to_owned(),
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

/// Passes on a child's frame. Releases the lock before the child learns that it violates the protocol.
fn pass(
    relay: &Uplink,
    child: NodeId,
    body: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
) -> Result<(), String> {
    let passed = match Up::peek_flow(&body) {
        Some(flow) => relay.lock().pass_flow_up(child, flow, body, room),
        None => {
            let up = frame::decode(&body).map_err(|error| format!("protocol error: {error}"))?;
            relay.lock().pass_up(child, up, body, room)
        }
    };
    passed.map_err(|violation| format!("it {violation}: its link was closed"))
}

/// Waits for room. Every frame is smaller than the room.
async fn acquire(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).acquire_many_owned(u32::try_from(bytes).unwrap_or(0)).await.ok()
}
