//! One stream of bulk data through this node: from its feeder to the nodes that it feeds and to the agent itself.
//!
//! Each node waits for the slowest node that it feeds, a few chunks apart. So the slowest node sets the pace of the
//! whole stream. No node waits for a stalled one:
//! - If this agent's consumer takes nothing for the stall time, the agent answers with a timeout. The stream goes on
//!   without that consumer.
//! - If a fed node sends nothing for that time, the agent reports it as stalled. The frontend informs the nodes behind.
//! - A node whose feeder is lost cannot get the rest of the stream. It fails, and so do the nodes that it feeds.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::bulk::{BulkOpener, SealedChunk};
use gantry_link::credit;
use gantry_link::greeting::Halves;
use gantry_link::link::LinkReader;
use gantry_link::queue::{LAST_WORDS_TIME, LinkQueue, NotTaken};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Answer, Attached, BulkOrder, BulkSeat, Down, Feeder, Notice, Order, To};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::bulk::Piece;
use super::feeding::{self, Event};
use super::input::Input;
use super::relay::Announced;
use super::uplink::Uplink;
use crate::task;

/// The limit on pieces of a stream that wait for this agent's consumer.
const OWN_PIECES: usize = 4;

type Events = (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>);

/// What all streams of this node share.
#[derive(Debug)]
pub(super) struct FlowContext {
    pub(super) relay: Uplink,
    pub(super) app: AppId,
    pub(super) secret: Secret,
    /// Time limit for a node to take data.
    pub(super) stall: Duration,
}

/// A stream's task.
#[derive(Debug)]
pub(super) struct Flow {
    context: Arc<FlowContext>,
    stream: u64,
    seat: BulkSeat,
    /// The request that waits for the link to the feeder.
    request: Option<RequestId>,
    events: mpsc::UnboundedSender<Event>,
    opener: BulkOpener,
    feeder: Option<LinkQueue>,
    outlets: Vec<Outlet>,
    own: Own,
    /// The dial, and the readers and writers of links.
    tasks: JoinSet<()>,
}

/// A node that this one feeds.
#[derive(Debug)]
struct Outlet {
    node: NodeId,
    queue: LinkQueue,
    /// The tasks of a link that is for this stream only.
    tasks: Vec<AbortHandle>,
}

/// A stream that ends incomplete leaves no link behind, in any state.
impl Drop for Outlet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The agent's own part.
#[derive(Debug)]
struct Own {
    wanted: bool,
    /// Arrives with the order that the stream belongs to.
    coming: Option<oneshot::Receiver<Announced>>,
    announced: Option<Announced>,
    room: Arc<Semaphore>,
}

impl Flow {
    /// Takes a place in a stream's tree. The future ends with the stream.
    pub(super) fn start(
        context: Arc<FlowContext>,
        stream: u64,
        seat: BulkSeat,
        request: Option<RequestId>,
        (events, mut happened): Events,
        announced: oneshot::Receiver<Announced>,
        ended: oneshot::Receiver<Failure>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let own = Own {
            wanted: seat.own,
            coming: Some(announced),
            announced: None,
            room: Arc::new(Semaphore::new(OWN_PIECES)),
        };
        let opener = BulkOpener::new(&context.secret, stream);
        let outlets = context.relay.lock().find_children(&seat.relayed);
        let outlets = outlets.into_iter().map(|(node, queue)| Outlet { node, queue, tasks: Vec::new() });
        let mut flow = Self {
            context,
            stream,
            request,
            events,
            opener,
            feeder: None,
            outlets: outlets.collect(),
            seat,
            own,
            tasks: JoinSet::new(),
        };
        async move {
            let why = tokio::select! {
                biased;
                why = ended => why.unwrap_or_else(|_| Failure::new(Kind::Gone, "take bulk data: the stream has ended")),
                flown = flow.run(&mut happened) => match flown {
                    Ok(()) => return,
                    Err(why) => why,
                },
            };
            // Dropping the events returns the credit of chunks that have arrived.
            drop(happened);
            flow.fail(&why).await;
        }
    }

    async fn run(&mut self, happened: &mut mpsc::UnboundedReceiver<Event>) -> Result<(), Failure> {
        self.link();
        while let Some(event) = happened.recv().await {
            match event {
                Event::Chunk(chunk, held) => {
                    let last = chunk.is_last();
                    self.pass_on(chunk).await?;
                    drop(held);
                    if last {
                        self.finish().await;
                        return Ok(());
                    }
                }
                Event::Linked(linked) => self.take_feeder(linked)?,
                Event::FeederGone(reason) => return Err(self.orphaned(&reason)),
                Event::Child(node, halves) => self.take_child(node, *halves),
            }
        }
        Ok(())
    }

    /// Dials the feeder in a task of its own. Nodes that this one feeds may dial meanwhile.
    fn link(&mut self) {
        let Feeder::Peer { listen, .. } = &self.seat.feeder else {
            return self.answer_link(Ok(Answer::Done));
        };
        let node = self.context.relay.lock().place().node;
        let (listen, stream) = (listen.clone(), self.stream);
        let (app, secret, events) = (self.context.app, self.context.secret.clone(), self.events.clone());
        self.spawn(async move {
            let linked = feeding::dial_feeder(&listen, node, stream, app, &secret).await;
            drop(events.send(Event::Linked(linked.map(Box::new))));
        });
    }

    fn take_feeder(&mut self, linked: Result<Box<Halves>, String>) -> Result<(), Failure> {
        match linked {
            Ok(halves) => {
                let (queue, reader, _) = self.start_link(*halves);
                self.spawn(feeding::read_feeder(reader, queue.clone(), self.events.clone()));
                self.feeder = Some(queue);
                self.answer_link(Ok(Answer::Done));
                Ok(())
            }
            Err(reason) => {
                let why =
                    Failure::new(Kind::Lost, format!("reach {} for bulk data: {reason}", self.feeder_name()));
                self.answer_link(Err(why.clone()));
                Err(why)
            }
        }
    }

    /// Starts the writer of a link that is for this stream only.
    fn start_link(&mut self, (reader, writer): Halves) -> (LinkQueue, LinkReader, AbortHandle) {
        let (queue, writing) = LinkQueue::start(writer, self.context.stall);
        let writer = self.spawn(async move { drop(writing.await) });
        (queue, reader, writer)
    }

    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.spawn(task::in_box(work))
    }

    fn answer_link(&mut self, answer: Result<Answer, Failure>) {
        if let Some(request) = self.request.take() {
            self.context.relay.lock().answer(request, answer);
        }
    }

    fn take_child(&mut self, node: NodeId, halves: Halves) {
        let is_here = self.outlets.iter().any(|outlet| outlet.node == node);
        if is_here || !self.seat.children.contains(&node) {
            self.spawn(feeding::refuse(halves, format!("node {node} is not fed by this agent")));
            return;
        }
        let (queue, reader, writer) = self.start_link(halves);
        // It is short, and fits in a frame.
        if let Ok(body) = frame::encode_body(&Attached { stream: self.stream }) {
            queue.send(body.into());
        }
        let reading = self.spawn(feeding::read_child(reader, queue.clone()));
        self.outlets.push(Outlet { node, queue, tasks: vec![reading, writer] });
    }

    /// Authenticates a chunk, then passes it on.
    async fn pass_on(&mut self, chunk: SealedChunk) -> Result<(), Failure> {
        let last = chunk.is_last();
        // Without a clone the chunk is decrypted in place.
        let onwards = (!self.outlets.is_empty()).then(|| chunk.clone());
        let opened = self.opener.open(chunk);
        let plain = opened.map_err(|error| Failure::new(Kind::Protocol, error.to_string()))?;
        let bytes = plain.len() as u64;
        let mut sent = 0;
        if let Some(chunk) = onwards {
            for outlet in std::mem::take(&mut self.outlets) {
                match outlet.queue.send_bulk(chunk.clone()).await {
                    Ok(()) => {
                        sent += bytes;
                        self.outlets.push(outlet);
                    }
                    Err(not_taken) => self.give_up(outlet.node, not_taken),
                }
            }
        }
        self.context.relay.lock().count_bulk(bytes, sent);
        if self.own.wanted {
            self.own.wanted = self.give_own(plain, last).await && !last;
        }
        Ok(())
    }

    /// Passes a piece to this agent's consumer. False: the consumer takes no more, and the request has its answer.
    async fn give_own(&mut self, plain: Vec<u8>, last: bool) -> bool {
        let Some(Announced { request, consumer }) = self.own.hear().await else { return false };
        let stall = self.context.stall;
        let room = tokio::select! {
            biased;
            room = Arc::clone(&self.own.room).acquire_owned() => Some(room.ok()),
            () = credit::stall(stall) => None,
        };
        let Some(room) = room else {
            let why = format!("take bulk data: it accepted none for {} s", stall.as_secs_f32());
            let why = Failure::new(Kind::TimedOut, why).with_hint("check the node's file system");
            let mut relay = self.context.relay.lock();
            if let Some(request) = request {
                relay.answer(request, Err(why.clone()));
            }
            relay.give(Input::Bulk(Piece::aborted(self.stream, consumer, why)));
            return false;
        };
        let piece = Piece { stream: self.stream, consumer, plain, last, aborted: None, _room: room };
        self.context.relay.lock().give(Input::Bulk(piece));
        true
    }

    /// A fed node takes no more. The agent reports it here only if it has stalled. A lost node is reported elsewhere.
    fn give_up(&self, node: NodeId, not_taken: NotTaken) {
        if not_taken == NotTaken::Stalled {
            let notice = Notice::BulkStalled { stream: self.stream, fed: node };
            self.context.relay.lock().notice(notice);
        }
    }

    /// All chunks have arrived. Waits until the fed nodes have them, too.
    async fn finish(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.close();
        }
        for mut outlet in std::mem::take(&mut self.outlets) {
            if let Err(not_taken) = outlet.queue.bulk_taken().await {
                self.give_up(outlet.node, not_taken);
            } else if !std::mem::take(&mut outlet.tasks).is_empty() {
                outlet.queue.close();
            }
        }
        // The goodbyes are on their way.
        let all = async { while self.tasks.join_next().await.is_some() {} };
        timeout(2 * LAST_WORDS_TIME, all).await.ok();
    }

    /// The stream fails: informs the nodes behind this one, and the agent's consumer discards what it has.
    async fn fail(mut self, why: &Failure) {
        self.answer_link(Err(why.clone()));
        let relayed: NodeSet = self.seat.relayed.iter().copied().collect();
        let order = Order::Bulk(BulkOrder::End { stream: self.stream, why: why.clone() });
        if !relayed.is_empty() {
            self.context.relay.lock().send_on(Down { request: None, to: To::Nodes(relayed), order });
        }
        self.tasks.abort_all();
        self.outlets.clear();
        if self.own.wanted
            && let Some(announced) = self.own.hear().await
        {
            let piece = Piece::aborted(self.stream, announced.consumer, why.clone());
            self.context.relay.lock().give(Input::Bulk(piece));
        }
    }

    fn orphaned(&self, reason: &str) -> Failure {
        Failure::new(
            Kind::Lost,
            format!("take bulk data: {}, which feeds this node, was lost: {reason}", self.feeder_name()),
        )
    }

    fn feeder_name(&self) -> String {
        match &self.seat.feeder {
            Feeder::Parent => "the parent".to_owned(),
            Feeder::Peer { node, .. } => format!("node {node}"),
        }
    }
}

impl Own {
    /// Waits until the stream is announced. None: it never will be.
    async fn hear(&mut self) -> Option<Announced> {
        if let Some(coming) = &mut self.coming {
            self.announced = coming.await.ok();
            self.coming = None;
        }
        self.announced
    }
}
