//! Messages that daemons send unasked, until the tool takes them. Each sender's credit bounds what waits here.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use gantry_shared::wire::channel::Member;
use tokio::sync::Notify;

use crate::lock::lock;

/// A message that a daemon sent unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The sender.
    pub member: Member,
    /// The content.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<u32, VecDeque<Message>>,
    closed: bool,
}

impl Inbox {
    pub(super) fn add(&self, member: Member, tag: u32, bytes: Vec<u8>) {
        lock(&self.inner).queues.entry(tag).or_default().push_back(Message { member, bytes });
        self.changed.notify_waiters();
    }

    /// Closes the inbox: no more messages arrive.
    pub(super) fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_waiters();
    }

    /// The next message with this tag. None: the inbox is closed.
    pub(super) async fn next(&self, tag: u32) -> Option<Message> {
        self.until(|inner| match inner.take(tag) {
            None => inner.closed.then_some(None),
            taken => Some(taken),
        })
        .await
    }

    /// Waits until there is a message with this tag, or the inbox is closed.
    pub(super) async fn ready(&self, tag: u32) {
        self.until(|inner| (inner.closed || inner.queues.contains_key(&tag)).then_some(())).await;
    }

    /// Waits until `look` returns something.
    async fn until<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&mut lock(&self.inner)) {
                return found;
            }
            changed.await;
        }
    }
}

impl Inner {
    fn take(&mut self, tag: u32) -> Option<Message> {
        let queue = self.queues.get_mut(&tag)?;
        let message = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&tag);
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::id::{DaemonId, NodeId};

    use super::*;

    #[tokio::test]
    async fn messages_of_a_tag_keep_their_order() {
        let inbox = Inbox::default();
        let member = |node| Member { node: NodeId(node), daemon: DaemonId(1) };
        inbox.add(member(0), 2, b"other".to_vec());
        for number in 0..3_u8 {
            inbox.add(member(0), 1, vec![number]);
            inbox.add(member(1), 1, vec![number]);
        }
        for number in 0..3_u8 {
            for node in 0..2 {
                assert_eq!(inbox.next(1).await, Some(Message { member: member(node), bytes: vec![number] }));
            }
        }
        inbox.close();
        assert_eq!(inbox.next(1).await, None);
        assert_eq!(inbox.next(2).await.unwrap().bytes, b"other", "what has come is not lost");
        assert_eq!(inbox.next(2).await, None);
    }

    #[tokio::test]
    async fn who_asks_whether_something_is_there_takes_nothing() {
        let inbox = Inbox::default();
        let member = Member { node: NodeId(0), daemon: DaemonId(1) };
        inbox.add(member, 1, vec![7]);
        inbox.ready(1).await;
        inbox.ready(1).await;
        assert!(futures_now(inbox.ready(2)).await.is_none(), "another tag's");
        assert!(inbox.next(1).await.is_some());
        assert!(futures_now(inbox.ready(1)).await.is_none(), "taken");
        let (ready, ()) = tokio::join!(inbox.ready(2), async { inbox.close() });
        assert_eq!(ready, (), "nothing more comes");
    }

    /// The result if it is ready at once.
    async fn futures_now<T>(what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = what => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
