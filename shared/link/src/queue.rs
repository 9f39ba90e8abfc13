//! The queue of a link's writer, and the order in which it writes.
//!
//! Control frames never wait: their producers bound them, by pending requests and by windows of output. Bulk data
//! waits: its queue holds a few chunks and is drained only on the peer's [`Credit`]. Its producer waits when the peer
//! is slow.
//!
//! A peer that sends many requests and reads no answers is not read either: a link's reader waits while the
//! [backlog](WeakLinkQueue::drained) is long. So the peer must never wait for its own writer; agents always read the
//! link above.
//!
//! Each link has a writing task. While the task is idle, [`LinkQueue::send_now`] may use its writer. That is faster
//! than waking the task on another thread.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::bulk::SealedChunk;
use super::credit::Credit;
use super::error::LinkError;
use super::link::LinkWriter;

/// Chunks that wait for one link. This bounds the memory of a stream and hides the delay of a hop.
pub const BULK_QUEUE_CHUNKS: usize = 4;
/// When this many bytes wait for a peer, the peer is not read any more: 8 MiB, some of the largest frames.
pub const BACKLOG_BYTES: usize = 8 * 1024 * 1024;
/// The most bytes of a body that [`LinkQueue::send_now`] writes itself. Sealing more takes longer than waking the
/// writer.
pub const SENT_NOW_BYTES: usize = 16 * 1024;
/// The timeout for a peer to read a goodbye or a refusal.
pub const LAST_WORDS_TIME: Duration = Duration::from_secs(2);

/// The sender's end of a link's queue. Clones share it; when the last one is dropped without [`LinkQueue::close`],
/// the link is cut.
#[derive(Debug, Clone)]
pub struct LinkQueue {
    control: mpsc::UnboundedSender<Control>,
    bulk: mpsc::Sender<SealedChunk>,
    credit: Arc<Credit>,
    backlog: Arc<Backlog>,
    idle: Arc<Idle>,
}

/// The writer while its task is idle.
#[derive(Debug, Default)]
struct Idle(Mutex<Option<LinkWriter>>);

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Option<LinkWriter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`LinkQueue`] that does not keep the link open.
#[derive(Debug, Clone)]
pub struct WeakLinkQueue {
    control: mpsc::WeakUnboundedSender<Control>,
    backlog: Arc<Backlog>,
}

/// The bytes that wait to be written.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    /// The link is closed because the peer violated the protocol; the peer gets the reason.
    refused: AtomicBool,
    /// Writing has ended.
    ended: AtomicBool,
    changed: Notify,
}

impl Backlog {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before > BACKLOG_BYTES {
            self.changed.notify_waiters();
        }
    }

    fn is_long(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > BACKLOG_BYTES && !self.ended.load(Ordering::Relaxed)
    }
}

/// Marks the end of writing, in all cases.
struct Ends(Arc<Backlog>, Arc<Idle>);

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.1.lock().take());
        self.0.ended.store(true, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// Why a peer does not take bulk data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// The link has ended.
    Ended,
    /// The peer has sent neither credit nor heartbeat for the stall time.
    Stalled,
}

#[derive(Debug)]
enum Control {
    /// A frame's body, and a permit that is returned when the body is written.
    Frame(Arc<[u8]>, Option<OwnedSemaphorePermit>),
    /// A part of an immediate send is not written yet.
    Rest,
    /// An immediate send has failed.
    Failed(LinkError),
    Close,
    Refuse(String),
}

impl LinkQueue {
    /// The queue of a writer, and the writing future, which must run as a task until it ends. Both ends must use the
    /// same `stall`: [`STALL_TIME`](super::credit::STALL_TIME), or another one in tests.
    pub fn start(
        writer: LinkWriter,
        stall: Duration,
    ) -> (Self, impl Future<Output = Result<(), LinkError>> + Send + use<>) {
        let (control, controls) = mpsc::unbounded_channel();
        let (bulk, chunks) = mpsc::channel(BULK_QUEUE_CHUNKS);
        let credit = Credit::new(stall);
        let backlog = Arc::<Backlog>::default();
        let idle = Arc::<Idle>::default();
        let ends = Ends(Arc::clone(&backlog), Arc::clone(&idle));
        let writing = write(writer, controls, chunks, Arc::clone(&credit), ends);
        (Self { control, bulk, credit, backlog, idle }, writing)
    }

    /// The link's credit, for its reader.
    #[must_use]
    pub fn credit(&self) -> Arc<Credit> {
        Arc::clone(&self.credit)
    }

    /// Queues a frame's body ([`encode_body`](gantry_shared::wire::frame::encode_body)). Never waits. If the link has
    /// ended, the body is dropped; the link's reader reports the end.
    pub fn send(&self, body: Arc<[u8]>) {
        self.send_holding(body, None);
    }

    /// As [`LinkQueue::send`], and drops `room` when the body is written.
    pub fn send_holding(&self, body: Arc<[u8]>, room: Option<OwnedSemaphorePermit>) {
        self.backlog.add(body.len());
        drop(self.control.send(Control::Frame(body, room)));
    }

    /// As [`LinkQueue::send`], but writes a small body at once if the queue is empty. The task writes the rest if the
    /// stream does not accept all.
    ///
    /// Use it on a runtime with several threads. Queue many bodies in a row instead: the task writes them in one call.
    pub fn send_now(&self, body: Arc<[u8]>) {
        let mut idle = self.idle.lock();
        let is_next = body.len() <= SENT_NOW_BYTES && self.backlog() == 0;
        match idle.as_mut().filter(|writer| is_next && writer.buffered_bytes() == 0) {
            None => self.send(body),
            Some(writer) => {
                let rest = match write_now(writer, &body) {
                    Poll::Ready(Ok(())) => return,
                    Poll::Ready(Err(error)) => Control::Failed(error),
                    Poll::Pending => Control::Rest,
                };
                drop(self.control.send(rest));
            }
        }
    }

    /// Sends a goodbye after the queued control frames.
    pub fn close(&self) {
        drop(self.control.send(Control::Close));
    }

    /// Closes the link with a reason after the queued control frames.
    pub fn refuse(&self, reason: &str) {
        self.backlog.refused.store(true, Ordering::Relaxed);
        drop(self.control.send(Control::Refuse(reason.to_owned())));
    }

    /// Queues a chunk. Waits while the queue is full. Orders that were queued before are written before it.
    ///
    /// # Errors
    /// The peer will not take it. If the future is dropped, nothing was queued.
    pub async fn send_bulk(&self, chunk: SealedChunk) -> Result<(), NotTaken> {
        let place = tokio::select! {
            biased;
            place = self.bulk.reserve() => place.map_err(|_ended| NotTaken::Ended)?,
            () = self.credit.silence() => return Err(NotTaken::Stalled),
        };
        self.credit.expect();
        place.send(chunk);
        Ok(())
    }

    /// Waits until the peer has taken all queued chunks, of all senders.
    ///
    /// # Errors
    /// The peer will not take them.
    pub async fn bulk_taken(&self) -> Result<(), NotTaken> {
        tokio::select! {
            biased;
            () = self.credit.all_taken() => Ok(()),
            () = self.bulk.closed() => Err(NotTaken::Ended),
            () = self.credit.silence() => Err(NotTaken::Stalled),
        }
    }

    /// How many bytes of control frames wait for the peer.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog.bytes.load(Ordering::Relaxed)
    }

    /// A handle that does not keep the link open.
    #[must_use]
    pub fn downgrade(&self) -> WeakLinkQueue {
        WeakLinkQueue { control: self.control.downgrade(), backlog: Arc::clone(&self.backlog) }
    }
}

impl WeakLinkQueue {
    /// As [`LinkQueue::refuse`], if the link is still open.
    pub fn refuse(&self, reason: &str) {
        self.backlog.refused.store(true, Ordering::Relaxed);
        if let Some(control) = self.control.upgrade() {
            drop(control.send(Control::Refuse(reason.to_owned())));
        }
    }

    /// Whether the link is closed because the peer violated the protocol. Ignore further data of it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.backlog.refused.load(Ordering::Relaxed)
    }

    /// Waits while more than [`BACKLOG_BYTES`] wait for the peer. The link's reader calls it, so that a peer cannot
    /// pile up answers that it does not read.
    pub async fn drained(&self) {
        while self.backlog.is_long() {
            let changed = self.backlog.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.backlog.is_long() {
                changed.await;
            }
        }
    }
}

/// Writes as much of a body as the stream accepts without waiting.
fn write_now(writer: &mut LinkWriter, body: &[u8]) -> Poll<Result<(), LinkError>> {
    match writer.send_body(body) {
        Ok(()) => pin!(writer.flush()).poll(&mut Context::from_waker(Waker::noop())),
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// A reason to wake the writing task.
enum Work {
    Places(u32),
    Control(Option<Control>),
    Chunk(SealedChunk),
}

async fn write(
    writer: LinkWriter,
    mut controls: mpsc::UnboundedReceiver<Control>,
    mut chunks: mpsc::Receiver<SealedChunk>,
    credit: Arc<Credit>,
    ends: Ends,
) -> Result<(), LinkError> {
    let Ends(backlog, idle) = &ends;
    let mut held = Vec::new();
    let mut busy = Some(writer);
    loop {
        if let Some(writer) = busy.take_if(|writer| writer.buffered_bytes() == 0) {
            *idle.lock() = Some(writer);
        }
        let work = tokio::select! {
            biased;
            places = credit.due() => Work::Places(places),
            // Control overtakes bulk: an order must not wait behind a library.
            control = controls.recv() => Work::Control(control),
            Some(chunk) = next_chunk(&mut chunks, &credit) => Work::Chunk(chunk),
        };
        // Only this task takes it out.
        let Some(mut writer) = busy.take().or_else(|| idle.lock().take()) else {
            return Err(LinkError::Failed);
        };
        match work {
            Work::Places(places) => writer.send_credit(places)?,
            Work::Control(None) => return Ok(()),
            Work::Control(Some(Control::Frame(body, room))) => {
                writer.send_body(&body)?;
                backlog.remove(body.len());
                held.extend(room);
            }
            Work::Control(Some(Control::Rest)) => {}
            Work::Control(Some(Control::Failed(error))) => return Err(error),
            Work::Control(Some(Control::Close)) => return last_words(writer.close()).await,
            Work::Control(Some(Control::Refuse(reason))) => return last_words(writer.refuse(&reason)).await,
            Work::Chunk(chunk) => {
                credit.spend();
                writer.send_bulk(chunk)?;
            }
        }
        // Waiting chunks go in the same call.
        let chunk_waits = !chunks.is_empty() && credit.is_any();
        if writer.wants_flush() || (controls.is_empty() && !credit.is_due() && !chunk_waits) {
            writer.flush().await?;
            held.clear();
        }
        busy = Some(writer);
    }
}

async fn next_chunk(chunks: &mut mpsc::Receiver<SealedChunk>, credit: &Credit) -> Option<SealedChunk> {
    credit.any().await;
    chunks.recv().await
}

async fn last_words(words: impl Future<Output = Result<(), LinkError>>) -> Result<(), LinkError> {
    timeout(LAST_WORDS_TIME, words).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::time::{Instant, timeout};

    use super::super::bulk::BulkSealer;
    use super::super::credit::{Held, WINDOW_CHUNKS};
    use super::super::handshake::{accept, connect};
    use super::super::link::{Incoming, Link, LinkReader};
    use super::*;
    use gantry_shared::secret::Secret;

    const STALL: Duration = Duration::from_secs(30);
    const PLACES: usize = WINDOW_CHUNKS as usize + BULK_QUEUE_CHUNKS;

    /// A queue whose credit is processed, and the other end.
    async fn queue_and_peer() -> (LinkQueue, (LinkReader, LinkWriter)) {
        let secret = Secret::from([0x5a; 32]);
        let (one, other) = duplex(1 << 16);
        let deadline = Instant::now() + STALL;
        let links = tokio::try_join!(
            connect(one, &secret, b"app", deadline),
            accept(other, &secret, b"app", deadline)
        );
        let (ours, theirs): (Link, Link) = links.unwrap();
        let (mut reader, writer) = ours.split();
        let (queue, writing) = LinkQueue::start(writer, STALL);
        tokio::spawn(writing);
        let credit = queue.credit();
        tokio::spawn(async move {
            while let Ok(Some(incoming)) = reader.next().await {
                match incoming {
                    Incoming::Credit(places) => credit.earn(places).unwrap(),
                    other => panic!("{other:?}"),
                }
            }
        });
        (queue, theirs.split())
    }

    fn chunks() -> impl Iterator<Item = SealedChunk> {
        let mut sealer = BulkSealer::start(&Secret::from([0x5a; 32])).unwrap();
        std::iter::repeat_with(move || sealer.seal(b"bytes", false).unwrap())
    }

    /// Reads all available chunks, and keeps their places.
    async fn hold(reader: &mut LinkReader, credit: &Arc<Credit>) -> Vec<Held> {
        let mut held = Vec::new();
        while let Ok(incoming) = timeout(Duration::from_millis(1), reader.next()).await {
            match incoming.unwrap() {
                Some(Incoming::Bulk(_)) => held.push(credit.arrive().unwrap()),
                Some(Incoming::Frame(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_waits_for_another_one_is_waited_for_and_orders_pass() {
        let (queue, (mut reader, writer)) = queue_and_peer().await;
        let (theirs, writing) = LinkQueue::start(writer, STALL);
        tokio::spawn(writing);
        let sender = queue.clone();
        let sending = tokio::spawn(async move {
            for chunk in chunks().take(PLACES + 1) {
                sender.send_bulk(chunk).await?;
            }
            sender.bulk_taken().await
        });
        let held = hold(&mut reader, &theirs.credit()).await;
        assert_eq!(held.len(), WINDOW_CHUNKS as usize);
        tokio::time::sleep(10 * STALL).await;
        queue.send(Arc::from(&b"order"[..]));
        assert_eq!(reader.next().await.unwrap(), Some(Incoming::Frame(b"order".to_vec())));
        assert!(!sending.is_finished());
        drop(held);
        drop(hold(&mut reader, &theirs.credit()).await);
        assert_eq!(sending.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_peer_is_detected_by_senders_and_by_waiters() {
        let (queue, (_reader, _writer)) = queue_and_peer().await;
        queue.send_bulk(chunks().next().unwrap()).await.unwrap();
        assert_eq!(queue.bulk_taken().await, Err(NotTaken::Stalled));
        let (queue, (_reader, _writer)) = queue_and_peer().await;
        let mut sent = 0;
        let stalled = loop {
            match queue.send_bulk(chunks().next().unwrap()).await {
                Ok(()) => sent += 1,
                Err(stalled) => break stalled,
            }
        };
        assert_eq!((sent, stalled), (PLACES, NotTaken::Stalled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_not_read_while_its_backlog_is_long() {
        let (queue, (mut reader, _writer)) = queue_and_peer().await;
        let weak = queue.downgrade();
        let waits = || async { timeout(Duration::from_millis(1), weak.drained()).await.is_err() };
        let body: Arc<[u8]> = vec![0; BACKLOG_BYTES / 8].into();
        assert!(!waits().await, "nothing waits");
        (0..10).for_each(|_| queue.send(Arc::clone(&body)));
        assert!(waits().await);
        for _ in 0..3 {
            assert!(matches!(reader.next().await.unwrap(), Some(Incoming::Frame(_))));
        }
        assert!(!waits().await);
        (0..10).for_each(|_| queue.send(Arc::clone(&body)));
        assert!(waits().await);
        drop((reader, _writer));
        assert!(!waits().await, "the link has ended");
    }

    /// A queue whose writing task runs only when `writing` is polled, and the other end.
    async fn queue_by_hand(
        buffer: usize,
    ) -> (LinkQueue, impl Future<Output = Result<(), LinkError>>, LinkReader) {
        let secret = Secret::from([0x5a; 32]);
        let (one, other) = duplex(buffer);
        let deadline = Instant::now() + STALL;
        let (ours, theirs) = tokio::try_join!(
            connect(one, &secret, b"app", deadline),
            accept(other, &secret, b"app", deadline)
        )
        .unwrap();
        let (queue, writing) = LinkQueue::start(ours.split().1, STALL);
        (queue, writing, theirs.split().0)
    }

    async fn next_body(reader: &mut LinkReader) -> Vec<u8> {
        // The clock stands still while work is possible, so only a body that never comes is late.
        match timeout(STALL, reader.next()).await.expect("a body").unwrap() {
            Some(Incoming::Frame(body)) => body,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_immediate_send_needs_no_task_and_overtakes_nothing() {
        let (queue, writing, mut reader) = queue_by_hand(1 << 16).await;
        let mut writing = pin!(writing);
        let idle = timeout(Duration::from_millis(1), &mut writing).await;
        assert!(idle.is_err(), "it waits for work");
        queue.send_now(Arc::from(&b"first"[..]));
        assert_eq!(next_body(&mut reader).await, b"first");
        queue.send(Arc::from(&b"second"[..]));
        queue.send_now(Arc::from(&b"third"[..]));
        queue.close();
        assert!(writing.await.is_ok());
        assert_eq!(
            (next_body(&mut reader).await, next_body(&mut reader).await),
            (b"second".to_vec(), b"third".to_vec())
        );
        assert_eq!(reader.next().await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_an_immediate_send_comes_later_and_in_order() {
        let (queue, writing, mut reader) = queue_by_hand(1 << 12).await;
        tokio::spawn(writing);
        tokio::task::yield_now().await;
        let body = |number: u8| -> Arc<[u8]> { vec![number; 1500].into() };
        (0..50).for_each(|number| queue.send_now(body(number)));
        for number in 0..50 {
            assert_eq!(next_body(&mut reader).await, *body(number));
        }
        // The writer is idle again, and in step with its peer.
        tokio::task::yield_now().await;
        queue.send_now(body(50));
        assert_eq!(next_body(&mut reader).await, *body(50));
        // No further send wakes the task.
        tokio::task::yield_now().await;
        let large: Arc<[u8]> = vec![51; 3 << 12].into();
        queue.send_now(Arc::clone(&large));
        assert_eq!(next_body(&mut reader).await, *large);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_whose_task_is_ended_leaves_no_link_open() {
        let (queue, writing, mut reader) = queue_by_hand(1 << 16).await;
        let task = tokio::spawn(writing);
        tokio::task::yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        queue.send_now(Arc::from(&b"dropped"[..]));
        assert!(reader.next().await.unwrap_err().is_cut());
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_ends_takes_no_more() {
        let (queue, peer) = queue_and_peer().await;
        queue.send_bulk(chunks().next().unwrap()).await.unwrap();
        drop(peer);
        queue.close();
        assert_eq!(queue.bulk_taken().await, Err(NotTaken::Ended));
        assert_eq!(queue.send_bulk(chunks().next().unwrap()).await, Err(NotTaken::Ended));
    }
}
