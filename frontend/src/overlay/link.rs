//! A link of the root while it is in use: a task that reads and a task that writes.

use std::time::Duration;

use gantry_shared::id::NodeId;
use gantry_shared::wire::LinkError;
use gantry_shared::wire::credit::Credit;
use gantry_shared::wire::frame;
use gantry_shared::wire::greeting::Halves;
use gantry_shared::wire::link::{Incoming, LinkReader};
use gantry_shared::wire::message::Up;
use gantry_shared::wire::queue::{LinkQueue, WeakLinkQueue};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Messages that have arrived and are not yet handled, of all links. More make their readers wait.
pub(super) const ARRIVALS: usize = 256;

/// Something that came on the link of `node`.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) node: NodeId,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    Up(Up),
    /// The last that comes on this link.
    Ended {
        orderly: bool,
        reason: String,
    },
}

/// Puts a link to work.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    node: NodeId,
    ((reader, writer), stall): (Halves, Duration),
    arrivals: mpsc::Sender<Arrival>,
) -> LinkQueue {
    let (queue, writing) = LinkQueue::start_with(writer, stall);
    let (refusals, credit) = (queue.downgrade(), queue.credit());
    tasks.spawn(async move {
        let news = read(node, reader, &arrivals, &refusals, &credit).await;
        // Only when nobody handles arrivals any more.
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
    loop {
        let reason = match reader.next().await {
            Ok(Some(Incoming::Frame(body))) => match frame::decode(&body) {
                Ok(up) => {
                    if arrivals.send(Arrival { node, news: News::Up(up) }).await.is_err() {
                        return cut("the overlay is closed".to_owned());
                    }
                    continue;
                }
                Err(error) => format!("not understood: {error}"),
            },
            Ok(Some(Incoming::Credit(places))) => match credit.earn(places) {
                Ok(()) => continue,
                Err(error) => error.to_string(),
            },
            Ok(Some(Incoming::Bulk(_))) => "not understood: bulk data goes downwards only".to_owned(),
            Ok(None) => return News::Ended { orderly: true, reason: "its agent has left".to_owned() },
            Err(error) if error.is_cut() => return cut("its link was cut".to_owned()),
            Err(LinkError::Refused { reason, .. }) => return cut(format!("its agent refused: {reason}")),
            Err(error) => error.to_string(),
        };
        refusals.refuse(&reason);
        return cut(reason);
    }
}
