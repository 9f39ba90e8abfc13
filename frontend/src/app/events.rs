//! Events as a stream, and what is kept for a tool that does not read its stream.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use gantry_types::id::AppId;
use tokio::sync::Notify;

use crate::event::Event;
use crate::lock::lock;

/// Unread events that one stream keeps, beside those that the app's size accounts for.
const MOST_UNREAD: usize = 16 * 1024;

/// What happens to an app, in order. Each stream is independent of the others.
///
/// A stream that is not read keeps what it missed. Of the progress of staging it keeps the latest event. Of all other
/// events it keeps more than the app's ranks and nodes can cause. Beyond that limit it keeps the events about the app
/// as a whole and counts the others in one [`Event::EventsMissed`]; [`AppHandle::info`](crate::AppHandle::info) has
/// what they said.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
}

impl Events {
    /// Makes a stream for an app of `size` ranks and nodes, and its sender.
    pub(crate) fn new(app: AppId, size: usize) -> (Sink, Self) {
        let queue =
            Queue { events: VecDeque::new(), most: MOST_UNREAD + 2 * size, app, missed: 0, ended: false };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Notify::new() });
        (Sink { shared: Arc::downgrade(&shared) }, Self { shared })
    }

    /// The next event; none when the app is gone. Cancel-safe: no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let changed = self.shared.changed.notified();
            {
                let mut queue = lock(&self.shared.queue);
                if let Some(event) = queue.pop() {
                    return Some(event);
                }
                if queue.ended {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// The next event, if one is queued.
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        lock(&self.shared.queue).pop()
    }
}

/// The sending side of one stream. Dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Sink {
    shared: Weak<Shared>,
}

impl Sink {
    /// Adds an event. False: the reader is gone.
    pub(crate) fn send(&self, event: Event) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        lock(&shared.queue).push(event);
        shared.changed.notify_one();
        true
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            lock(&shared.queue).ended = true;
            shared.changed.notify_one();
        }
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    most: usize,
    app: AppId,
    /// Number of events dropped for lack of room since the last kept event.
    missed: u64,
    ended: bool,
}

impl Queue {
    fn push(&mut self, event: Event) {
        if let Event::Staging(news) = &event
            && let Some(Event::Staging(last)) = self.events.back_mut()
            && last.session == news.session
        {
            *last = news.clone();
            return;
        }
        if self.events.len() >= self.most && is_detail(&event) {
            self.missed += 1;
            return;
        }
        self.tell_missed();
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.tell_missed();
        }
        self.events.pop_front()
    }

    fn tell_missed(&mut self) {
        match std::mem::take(&mut self.missed) {
            0 => {}
            count => self.events.push_back(Event::EventsMissed { app: self.app, count }),
        }
    }
}

/// Whether an event is about one rank, daemon or file, which the app's state shows as well.
fn is_detail(event: &Event) -> bool {
    matches!(
        event,
        Event::Staging(_)
            | Event::Staged(_)
            | Event::Output(_)
            | Event::RankExited { .. }
            | Event::DaemonStarted { .. }
            | Event::DaemonExited { .. }
    )
}

#[cfg(test)]
mod tests {
    use gantry_types::id::{Rank, SessionId};
    use gantry_types::status::ExitStatus;

    use super::*;
    use crate::event::Staging;

    fn app() -> AppId {
        "3kx9w0fz".parse().unwrap()
    }

    fn exited(rank: u32) -> Event {
        Event::RankExited { app: app(), rank: Rank(rank), status: ExitStatus::Code(0).into() }
    }

    fn lost(host: &str) -> Event {
        Event::NodesLost { app: app(), hosts: vec![host.to_owned()], reason: "cut".to_owned() }
    }

    async fn all(mut events: Events) -> Vec<Event> {
        let mut read = Vec::new();
        while let Some(event) = events.next().await {
            read.push(event);
        }
        read
    }

    #[tokio::test]
    async fn an_unread_stream_keeps_all_that_the_app_can_cause_and_what_concerns_it_as_a_whole() {
        let (sink, events) = Events::new(app(), 10);
        let most = u32::try_from(MOST_UNREAD).unwrap() + 20;
        for rank in 0..most + 7 {
            assert!(sink.send(exited(rank)));
        }
        assert!(sink.send(lost("n1")));
        (0..3).for_each(|rank| assert!(sink.send(exited(rank))));
        drop(sink);
        let read = all(events).await;
        let at = usize::try_from(most).unwrap();
        assert_eq!(read[..at], (0..most).map(exited).collect::<Vec<_>>());
        let missed = |count| Event::EventsMissed { app: app(), count };
        assert_eq!(read[at..], [missed(7), lost("n1"), missed(3)]);
    }

    #[tokio::test]
    async fn of_progress_that_nobody_reads_the_last_word_is_kept() {
        let (sink, events) = Events::new(app(), 0);
        let staging = |session, bytes| {
            let (app, session) = (app(), SessionId(session));
            Event::Staging(Staging { app, session, bytes, total_bytes: 1 << 30, files: 1, nodes: 1 })
        };
        for bytes in 0..100_000 {
            assert!(sink.send(staging(1, bytes)));
        }
        assert!(sink.send(staging(2, 5)) && sink.send(lost("n1")) && sink.send(staging(2, 6)));
        drop(sink);
        assert_eq!(all(events).await, [staging(1, 99_999), staging(2, 5), lost("n1"), staging(2, 6)]);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_app_and_is_forgotten_with_its_reader() {
        let (sink, mut events) = Events::new(app(), 0);
        assert!(sink.send(lost("n1")));
        assert_eq!(events.next().await, Some(lost("n1")));
        let (next, ()) = tokio::join!(events.next(), async { drop(sink) });
        assert_eq!(next, None);
        let (sink, events) = Events::new(app(), 0);
        drop(events);
        assert!(!sink.send(lost("n1")));
    }
}
