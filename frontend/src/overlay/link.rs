//! A link of the root in use: a reading task and a writing task.
//!
//! The queue of unhandled messages is bounded for each link separately: a node that floods stalls only its own link.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_link::credit::Credit;
use gantry_link::greeting::Halves;
use gantry_link::link::{Incoming, LinkReader};
use gantry_link::queue::{LinkQueue, WeakLinkQueue};
use gantry_shared::wire::frame;
use gantry_shared::wire::frame::MAX_FRAME_BYTES;
use gantry_shared::wire::message::Up;
use gantry_types::id::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// Messages of all links that have arrived and are not yet handled. When the queue is full, readers wait.
pub(super) const ARRIVALS: usize = 256;

/// Bytes of one link that have arrived and are not yet handled. When there are more, its reader waits.
const ROOM_BYTES: usize = 2 * MAX_FRAME_BYTES;

/// The cost of every message in that room, beside its bytes.
const MESSAGE_COST_BYTES: usize = 256;

/// An event on the link of `node`.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) node: NodeId,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    /// A message, and the room that it occupies.
    Up(Up, Option<OwnedSemaphorePermit>),
    /// An undecodable message of a flow of this node.
    Garbled(NodeId),
    /// The last event of this link.
    Ended { orderly: bool, reason: String },
}

/// Starts the tasks of a link.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    node: NodeId,
    ((reader, writer), stall): (Halves, Duration),
    arrivals: mpsc::Sender<Arrival>,
) -> LinkQueue {
    let (queue, writing) = LinkQueue::start(writer, stall);
    let (refusals, credit) = (queue.downgrade(), queue.credit());
    tasks.spawn(async move {
        let news = read(node, reader, &arrivals, &refusals, &credit).await;
        // Fails only when arrivals are no longer handled.
        drop(arrivals.send(Arrival { node, news }).await);
    });
    tasks.spawn(async move {
        if let Err(error) = writing.await {
            tracing::debug!(%node, %error, "cannot write to an agent");
        }
    });
    queue
}

async fn read(
    node: NodeId,
    mut reader: LinkReader,
    arrivals: &mpsc::Sender<Arrival>,
    refusals: &WeakLinkQueue,
    credit: &Credit,
) -> News {
    let cut = |reason: String| News::Ended { orderly: false, reason };
    let room = Arc::new(Semaphore::new(ROOM_BYTES));
    loop {
        refusals.drained().await;
        if refusals.is_refused() {
            return cut("it was closed from here".to_owned());
        }
        let reason = match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => {
                let news = match frame::decode(&body) {
                    Ok(up) => {
                        let bytes = u32::try_from(body.len() + MESSAGE_COST_BYTES).unwrap_or(u32::MAX);
                        // The semaphore is never closed, and has room for the largest frame.
                        Ok(News::Up(up, Arc::clone(&room).acquire_many_owned(bytes).await.ok()))
                    }
                    Err(error) => match Up::peek_flow(&body) {
                        // Agents on the way forwarded it without decoding. So its origin violated the rules, not the
                        // link's node.
                        Some((from, _)) if from != node => Ok(News::Garbled(from)),
                        _ => Err(format!("protocol error: {error}")),
                    },
                };
                match news {
                    Ok(news) => match arrivals.send(Arrival { node, news }).await {
                        Ok(()) => continue,
                        Err(_) => return cut("the overlay is closed".to_owned()),
                    },
                    Err(reason) => reason,
                }
            }
            Ok(Some(Incoming::Credit(places))) => match credit.earn(places) {
                Ok(()) => continue,
                Err(error) => error.to_string(),
            },
            Ok(Some(Incoming::Bulk(_))) => "protocol error: bulk data only travels down the tree".to_owned(),
            Ok(None) => return News::Ended { orderly: true, reason: "its agent has left".to_owned() },
            Err(error) if error.is_cut() => return cut("its link was cut".to_owned()),
            Err(LinkError::Refused { reason, .. }) => return cut(format!("its agent refused: {reason}")),
            Err(error) => error.to_string(),
        };
        refusals.refuse(&reason);
        return cut(reason);
    }
}
