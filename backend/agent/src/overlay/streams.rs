//! The streams of bulk data that this node has a place in.
//!
//! Each stream has its own task ([`flow`](super::flow)). So readers of links only hand chunks over and never wait. A
//! link gets its credit for a chunk back when the stream has processed the chunk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_link::bulk::SealedChunk;
use gantry_link::credit::Held;
use gantry_link::greeting::Halves;
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::BulkSeat;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, RequestId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::bulk::Piece;
use super::feeding::{Event, LINK_TIME};
use super::flow::{Flow, FlowContext};
use super::input::Input;
use super::relay::Announced;
use super::uplink::Uplink;
use crate::{heap, task};

/// The limit on concurrent streams. The oldest goes first. The frontend ends the streams that it cancels.
const STREAMS: usize = 16;
/// All streams of this node. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    context: Arc<FlowContext>,
    open: Mutex<Open>,
    /// A stream was opened, or all were ended: wakes nodes that dialled early.
    opened: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Open {
    /// In the order in which they were opened.
    streams: VecDeque<Stream>,
    closed: bool,
}

/// The channels to a stream's task.
#[derive(Debug)]
struct Stream {
    stream: u64,
    events: mpsc::UnboundedSender<Event>,
    announced: Option<oneshot::Sender<Announced>>,
    end: oneshot::Sender<Failure>,
}

impl Streams {
    pub(super) fn new(relay: Uplink, app: AppId, secret: Secret, stall: Duration) -> Self {
        let open = Mutex::new(Open::default());
        let context = Arc::new(FlowContext { relay, app, secret, stall });
        let shared = Shared { context, open, opened: watch::Sender::new(()) };
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.shared.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn context(&self) -> &FlowContext {
        &self.shared.context
    }

    /// Takes a place in a stream's tree. The agent answers `request` when the link to this node's feeder is up.
    pub(super) fn open(&self, stream: u64, seat: BulkSeat, request: Option<RequestId>) {
        let (events, happened) = mpsc::unbounded_channel();
        let (announced, heard) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut open = self.lock();
        if open.closed || open.find(stream).is_some() {
            return;
        }
        if open.streams.len() >= STREAMS
            && let Some(oldest) = open.streams.pop_front()
        {
            oldest.end(Failure::new(Kind::Gone, "take bulk data: too many streams are under way"));
        }
        open.streams.push_back(Stream { stream, events: events.clone(), announced: Some(announced), end });
        drop(open);
        let context = Arc::clone(&self.shared.context);
        let flow = Flow::start(context, stream, seat, request, (events, happened), heard, ended);
        let streams = self.clone();
        task::spawn(async move {
            flow.await;
            streams.forget(stream);
            heap::give_back();
        });
        self.shared.opened.send_replace(());
    }

    /// The agent has received the order that announces a stream.
    pub(super) fn announce(&self, stream: u64, announced: Announced) {
        let waiting = self.lock().find(stream).and_then(|stream| stream.announced.take());
        // A stream that has already failed waits to report it. An unknown stream will never arrive.
        if waiting.is_none_or(|waiting| waiting.send(announced).is_err()) {
            let why = Failure::new(Kind::Lost, "take bulk data: the path to this node is lost");
            self.context().relay.lock().give(Input::Bulk(Piece::aborted(stream, announced.consumer, why)));
        }
    }

    /// Takes a chunk from the link of orders. Drops it if its stream has ended.
    pub(super) fn take(&self, chunk: SealedChunk, held: Held) {
        if let Some(stream) = self.lock().find(chunk.stream()) {
            drop(stream.events.send(Event::Chunk(chunk, held)));
        }
    }

    /// Ends a stream. If no order has announced it by now, none will.
    pub(super) fn end(&self, stream: u64, why: Failure) {
        let mut open = self.lock();
        let at = open.streams.iter().position(|known| known.stream == stream);
        if let Some(ended) = at.and_then(|at| open.streams.remove(at)) {
            ended.end(why);
        }
    }

    /// Ends all streams, and accepts no more.
    pub(super) fn end_all(&self, why: &Failure) {
        let mut open = self.lock();
        open.closed = true;
        for stream in std::mem::take(&mut open.streams) {
            stream.end(why.clone());
        }
        drop(open);
        self.shared.opened.send_replace(());
    }

    /// A stream's task has finished.
    fn forget(&self, stream: u64) {
        self.lock().streams.retain(|known| known.stream != stream);
    }

    /// A node asks to be fed, perhaps before this node knows of the stream. Returns the link if the agent must refuse.
    pub(super) async fn attach(
        &self,
        stream: u64,
        node: NodeId,
        halves: Halves,
    ) -> Option<(Halves, &'static str)> {
        let mut opened = self.shared.opened.subscribe();
        let known = opened.wait_for(|_| {
            let mut open = self.lock();
            open.closed || open.find(stream).is_some()
        });
        if timeout(LINK_TIME, known).await.is_err() {
            return Some((halves, "this agent does not know of that stream"));
        }
        match self.lock().find(stream) {
            Some(stream) => match stream.events.send(Event::Child(node, Box::new(halves))) {
                Ok(()) => None,
                Err(error) => match error.0 {
                    Event::Child(_, halves) => Some((*halves, "that stream has ended")),
                    _ => None,
                },
            },
            None => Some((halves, "this agent accepts no more streams")),
        }
    }
}

impl Open {
    fn find(&mut self, stream: u64) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|known| known.stream == stream)
    }
}

impl Stream {
    fn end(self, why: Failure) {
        // The stream may have just ended by itself.
        drop(self.end.send(why));
    }
}
