//! Sends data down to the nodes that wait for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gantry_shared::rendezvous::Part;
use gantry_shared::rendezvous::gathering::{count_bytes, write_parts};
use gantry_shared::wire::message::{Blob, Order, To};
use gantry_shared::wire::rendezvous::{Key, MAX_SMALL_BYTES, Refusal, RendezvousOrder};
use gantry_types::error::{Failure, Kind};
use gantry_types::rank_set::NodeSet;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::Error;
use crate::overlay::Overlay;

/// Streams that one app sends at a time.
const STREAMS: usize = 4;

/// How many times data is sent, if nodes miss it because others are lost.
const ATTEMPTS: usize = 4;

/// Timeout of one stream. A stalled node is dropped much earlier.
const STREAM_TIME: Duration = Duration::from_secs(1800);

/// Data that nodes wait for.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) nodes: NodeSet,
    pub(super) key: Key,
    pub(super) outcome: Result<Content, Refusal>,
}

/// What the delivering task is told.
#[derive(Debug)]
pub(super) enum Message {
    /// To send data.
    Deliver(Delivery),
    /// To say when everything before this message is sent.
    Finish(oneshot::Sender<()>),
}

/// Data in parts that are written one after the other. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Content {
    parts: Arc<Vec<Part>>,
    bytes: u64,
}

impl Content {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        Self { bytes: count_bytes(&parts), parts: Arc::new(parts) }
    }
}

/// Starts the delivering task. It ends when the last sender is dropped. The receiver sees a change whenever nodes take a
/// piece of large data.
pub(super) fn start(overlay: Overlay) -> (mpsc::UnboundedSender<Message>, watch::Receiver<()>) {
    let (sender, mut messages) = mpsc::unbounded_channel();
    let (moved, moves) = watch::channel(());
    tokio::spawn(async move {
        let streams = Arc::new(Semaphore::new(STREAMS));
        let mut sending = JoinSet::new();
        while let Some(message) = messages.recv().await {
            match message {
                Message::Deliver(Delivery { nodes, key, outcome: Ok(content) })
                    if content.bytes > MAX_SMALL_BYTES =>
                {
                    let (overlay, streams, moved) = (overlay.clone(), Arc::clone(&streams), moved.clone());
                    sending.spawn(async move {
                        // The semaphore is never closed.
                        let _place = streams.acquire().await;
                        send(&overlay, nodes, key, &content, &moved).await;
                    });
                }
                Message::Deliver(Delivery { nodes, key, outcome }) => {
                    got(&overlay, nodes, key, outcome.map(|content| content.to_blob()));
                }
                Message::Finish(told) => {
                    while sending.join_next().await.is_some() {}
                    if told.send(()).is_err() {
                        tracing::debug!("nobody waits for the deliveries any more");
                    }
                }
            }
            while sending.try_join_next().is_some() {}
        }
    });
    (sender, moves)
}

fn got(overlay: &Overlay, nodes: NodeSet, key: Key, outcome: Result<Blob, Refusal>) {
    overlay.tell(To::Nodes(nodes), Order::Rendezvous(RendezvousOrder::Got { key, outcome }));
}

/// Sends one stream to all nodes. A node that fails has told its processes itself. Nodes that missed the data because
/// others were lost get another stream.
async fn send(overlay: &Overlay, nodes: NodeSet, key: Key, content: &Content, moved: &watch::Sender<()>) {
    let deadline = Instant::now() + STREAM_TIME;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let here = nodes.intersection(&overlay.reachable());
        let announce = |stream| {
            let (key, bytes) = (key.clone(), content.bytes);
            Order::Rendezvous(RendezvousOrder::Stream { key, stream, bytes })
        };
        let source = Source { content: content.clone(), part: 0, at: 0 };
        match overlay.send_bulk(here.clone(), announce, source, |_| moved.send_replace(()), deadline).await {
            Ok(_) => return,
            Err(error @ Error::Lost { .. }) => last = Some(error),
            Err(error) => {
                last = Some(error);
                break;
            }
        }
    }
    let why = last.map_or_else(|| "no node is left".to_owned(), |error| error.to_string());
    tracing::warn!(%why, ?key, "rendezvous data was not delivered");
    let why = Failure::new(Kind::Lost, format!("send rendezvous data: {why}"));
    got(overlay, nodes, key, Err(why.into()));
}

impl Content {
    pub(super) fn to_blob(&self) -> Blob {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail.
        drop(write_parts(&mut bytes, &self.parts));
        Blob(bytes)
    }
}

/// A reader of content.
struct Source {
    content: Content,
    part: usize,
    at: usize,
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let content = self.content.clone();
        while into.remaining() > 0
            && let Some(part) = content.parts.get(self.part)
        {
            let rest = part.as_bytes().get(self.at..).unwrap_or_default();
            let count = rest.len().min(into.remaining());
            into.put_slice(rest.get(..count).unwrap_or_default());
            self.at += count;
            if count == rest.len() {
                (self.part, self.at) = (self.part + 1, 0);
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::rendezvous::codec::Head;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn parts_are_read_as_one_stream() {
        let item = |bytes: &[u8]| Part::Item(Arc::new(bytes.to_vec()));
        let parts = vec![Part::Head(Head::new(2)), item(b""), item(&[7; 1000]), item(b"xyz")];
        let content = Content::new(parts);
        let mut read = Vec::new();
        Source { content: content.clone(), part: 0, at: 0 }.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [&b"2 "[..], &[7; 1000], b"xyz"].concat());
        assert_eq!((content.bytes, content.to_blob().0), (read.len() as u64, read));
    }
}
