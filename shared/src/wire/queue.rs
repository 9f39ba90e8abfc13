//! What waits to be written on a link, and the order in which it is written.
//!
//! Control never waits: its producers bound it, by requests that are under way and by windows of output. Bulk waits: its queue holds
//! a few chunks, and who fills it is held back when the peer is slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::bulk::SealedChunk;
use super::error::LinkError;
use super::link::LinkWriter;

/// Chunks that wait for one link. With the chunk's size this bounds the memory of a broadcast; it hides the delay of a hop.
pub const BULK_QUEUE_CHUNKS: usize = 8;
/// How long a peer has to take a goodbye or a refusal.
pub const LAST_WORDS_TIME: Duration = Duration::from_secs(2);

/// The way to a link's writer. Clones share it; when the last one is dropped without [`LinkQueue::close`], the link is cut.
#[derive(Debug, Clone)]
pub struct LinkQueue {
    control: mpsc::UnboundedSender<Control>,
    bulk: mpsc::Sender<SealedChunk>,
}

/// A [`LinkQueue`] that does not keep the link open.
#[derive(Debug, Clone)]
pub struct WeakLinkQueue {
    control: mpsc::WeakUnboundedSender<Control>,
}

#[derive(Debug)]
enum Control {
    /// A frame's body, and what is given back when it is written.
    Frame(Arc<[u8]>, Option<OwnedSemaphorePermit>),
    Close,
    Refuse(String),
}

impl LinkQueue {
    /// The queue of a writer, and the work of writing, to be run as a task of its own until it ends.
    pub fn start(writer: LinkWriter) -> (Self, impl Future<Output = Result<(), LinkError>> + Send + use<>) {
        let (control, controls) = mpsc::unbounded_channel();
        let (bulk, chunks) = mpsc::channel(BULK_QUEUE_CHUNKS);
        (Self { control, bulk }, write(writer, controls, chunks))
    }

    /// Queues a frame's body ([`encode_body`](super::frame::encode_body)). Never waits. For a link that has ended it is dropped: its
    /// reader tells of the end.
    pub fn send(&self, body: Arc<[u8]>) {
        drop(self.control.send(Control::Frame(body, None)));
    }

    /// As [`LinkQueue::send`], and drops `room` when the body is written.
    pub fn send_holding(&self, body: Arc<[u8]>, room: Option<OwnedSemaphorePermit>) {
        drop(self.control.send(Control::Frame(body, room)));
    }

    /// Says goodbye after the control frames that were queued.
    pub fn close(&self) {
        drop(self.control.send(Control::Close));
    }

    /// Closes the link with a reason after the control frames that were queued.
    pub fn refuse(&self, reason: &str) {
        drop(self.control.send(Control::Refuse(reason.to_owned())));
    }

    /// Where chunks go; sending waits while the queue is full. An order that was queued before a chunk is written before it.
    #[must_use]
    pub fn bulk(&self) -> mpsc::Sender<SealedChunk> {
        self.bulk.clone()
    }

    /// The same queue, without keeping the link open.
    #[must_use]
    pub fn downgrade(&self) -> WeakLinkQueue {
        WeakLinkQueue { control: self.control.downgrade() }
    }
}

impl WeakLinkQueue {
    /// As [`LinkQueue::refuse`], if the link is still open.
    pub fn refuse(&self, reason: &str) {
        if let Some(control) = self.control.upgrade() {
            drop(control.send(Control::Refuse(reason.to_owned())));
        }
    }
}

async fn write(
    mut writer: LinkWriter,
    mut controls: mpsc::UnboundedReceiver<Control>,
    mut chunks: mpsc::Receiver<SealedChunk>,
) -> Result<(), LinkError> {
    let mut held = Vec::new();
    loop {
        tokio::select! {
            // Control overtakes bulk: an order must not wait behind a library.
            biased;
            control = controls.recv() => match control {
                None => return Ok(()),
                Some(Control::Frame(body, room)) => {
                    writer.send_body(&body)?;
                    held.extend(room);
                }
                Some(Control::Close) => return last_words(writer.close()).await,
                Some(Control::Refuse(reason)) => return last_words(writer.refuse(&reason)).await,
            },
            Some(chunk) = chunks.recv() => writer.send_bulk(&chunk)?,
        }
        // What waits already goes in the same call.
        if writer.wants_flush() || (controls.is_empty() && chunks.is_empty()) {
            writer.flush().await?;
            held.clear();
        }
    }
}

async fn last_words(words: impl Future<Output = Result<(), LinkError>>) -> Result<(), LinkError> {
    timeout(LAST_WORDS_TIME, words).await.unwrap_or(Ok(()))
}
