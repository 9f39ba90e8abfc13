//! Links between agents for one stream of bulk data.

use std::net::SocketAddr;
use std::time::Duration;

use gantry_link::bulk::SealedChunk;
use gantry_link::credit::Held;
use gantry_link::greeting::{self, Halves};
use gantry_link::link::{Incoming, LinkReader};
use gantry_link::queue::LinkQueue;
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Attached, Dial};
use gantry_types::id::{AppId, NodeId};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::dial::{Caller, dial, say};
use super::join_error::JoinError;

/// The timeout for setting up a link between two agents for one stream. After it the stream takes another path.
pub(super) const LINK_TIME: Duration = Duration::from_secs(5);

/// An event of a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// A chunk has arrived.
    Chunk(SealedChunk, Held),
    /// The dial to the feeder has ended.
    Linked(Result<Box<Halves>, String>),
    /// The feeder is gone.
    FeederGone(String),
    /// A node that this one feeds has dialled.
    Child(NodeId, Box<Halves>),
}

/// Dials the feeder of this node, and waits until the feeder accepts.
pub(super) async fn dial_feeder(
    listen: &[SocketAddr],
    node: NodeId,
    stream: u64,
    app: AppId,
    secret: &Secret,
) -> Result<Halves, String> {
    let deadline = Instant::now() + LINK_TIME;
    let linked = async {
        let (link, _) =
            dial(listen, Caller { app, secret }, deadline).await.map_err(|error| match error {
                JoinError::Unreachable { reasons } => reasons.join("; "),
                other => other.to_string(),
            })?;
        let (mut reader, writer) =
            say(link, &Dial::Bulk { node, stream }).await.map_err(|e| e.to_string())?;
        match reader.next().await.map_err(|e| e.to_string())? {
            Some(Incoming::Frame(body)) => {
                let attached: Attached = frame::decode(&body).map_err(|e| e.to_string())?;
                (attached.stream == stream)
                    .then_some((reader, writer))
                    .ok_or_else(|| "it answered for another stream".to_owned())
            }
            _ => Err("its answer was not valid".to_owned()),
        }
    };
    timeout_at(deadline, linked).await.unwrap_or_else(|_late| Err("it did not answer in time".to_owned()))
}

/// Reads from the feeder until its link ends.
pub(super) async fn read_feeder(
    mut reader: LinkReader,
    queue: LinkQueue,
    events: mpsc::UnboundedSender<Event>,
) {
    let credit = queue.credit();
    let reason = loop {
        let taken = match reader.next().await {
            Ok(Some(Incoming::Bulk(chunk))) => credit.arrive().map(|held| Event::Chunk(chunk, held)),
            Ok(Some(Incoming::Credit(places))) => match credit.earn(places) {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            Ok(Some(Incoming::Frame(_))) => break "it sent a message where data was expected".to_owned(),
            Ok(None) => break "it closed its link".to_owned(),
            Err(error) if error.is_cut() => break "its link was cut".to_owned(),
            Err(error) => break error.to_string(),
        };
        match taken {
            // A stream that has failed no longer receives events.
            Ok(chunk) => drop(events.send(chunk)),
            Err(error) => break error.to_string(),
        }
    };
    queue.close();
    drop(events.send(Event::FeederGone(reason)));
}

/// Reads a fed node's credit until its link ends. Then closes the queue for that node.
pub(super) async fn read_child(mut reader: LinkReader, queue: LinkQueue) {
    let credit = queue.credit();
    loop {
        match reader.next().await {
            Ok(Some(Incoming::Credit(places))) => match credit.earn(places) {
                Ok(()) => {}
                Err(error) => break queue.refuse(&error.to_string()),
            },
            Ok(Some(_)) => {
                break queue.refuse("protocol error: bulk data travels the other way on this link");
            }
            Ok(None) | Err(_) => break queue.close(),
        }
    }
}

/// Refuses a node that dials.
pub(super) async fn refuse(halves: Halves, reason: String) {
    greeting::refuse(halves, &reason, |_| None).await;
}
