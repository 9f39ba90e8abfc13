//! The frontend's side of what ranks of a co-allocated job do together: their barrier, and the messages between them.
//!
//! [`switchboard`] decides. This module passes events to it and carries out its effects. An [`Exchange`] belongs to one
//! job, a [`Member`] to one app in it. An app outside of any job is a job by itself, so a program that calls the
//! barrier also runs alone.

mod switchboard;
mod mailbox;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::wire::flow::{FlowId, Word};
use gantry_types::id::{NodeId, Rank};
use gantry_types::placement::Placement;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub(super) use self::switchboard::Arrival;
use self::switchboard::{Effect, Switchboard};
use super::mpi_failure::MpiFailure;
use super::request::CommsType;
use super::state::SubjobId;
use crate::lock::lock;
use crate::overlay::Overlay;

/// How long the report of a rank's end waits for the rest of the rank's data. Another process may hold its connection
/// open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The exchange between the subjobs of one job. Clones are the same exchange.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// Changes when links have closed.
    closed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    board: Switchboard,
    overlays: BTreeMap<SubjobId, Overlay>,
    tasks: BTreeMap<SubjobId, mpsc::UnboundedSender<Arrival>>,
}

impl Exchange {
    /// Adds a subjob. Its task receives how far its processes are.
    pub(super) fn add(
        &self,
        id: SubjobId,
        comms: CommsType,
        barrier: bool,
    ) -> (Member, mpsc::UnboundedReceiver<Arrival>) {
        let (task, arrivals) = mpsc::unbounded_channel();
        self.act(|inner| {
            inner.board.add(id, comms, barrier);
            inner.tasks.insert(id, task);
        });
        (Member { exchange: self.clone(), id }, arrivals)
    }

    /// Releases the job, with these subjobs.
    pub(super) fn release(&self, members: Vec<SubjobId>) {
        self.act(|inner| inner.board.release(members));
    }

    /// Aborts a subjob. Its processes at the barrier, and those that come to it later, are told the reason.
    pub(super) fn abort(&self, id: SubjobId, why: &str) {
        self.act(|inner| inner.board.abort(id, why));
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = lock(&self.shared.inner);
        let done = act(&mut inner);
        // Under the lock, so that messages of a link keep their order. None of this waits.
        for effect in inner.board.take_effects() {
            match effect {
                Effect::Say(id, (node, link), word) => {
                    if let Some(overlay) = inner.overlays.get(&id) {
                        overlay.say(node, FlowId::Link(link), word);
                    }
                }
                Effect::Taken(id, (node, link), bytes) => {
                    if let Some(overlay) = inner.overlays.get(&id) {
                        overlay.taken(node, FlowId::Link(link), bytes);
                    }
                }
                Effect::Tell(id, arrival) => {
                    if let Some(task) = inner.tasks.get(&id) {
                        // The task is about to end.
                        drop(task.send(arrival));
                    }
                }
            }
        }
        done
    }
}

/// An app's place in its job.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    exchange: Exchange,
    id: SubjobId,
}

impl Member {
    /// For an app that is a job by itself: its ranks pass their barrier at once.
    pub(crate) fn alone() -> Self {
        let exchange = Exchange::default();
        let (member, _nobody_listens) = exchange.add(SubjobId(0), CommsType::BlockingJoin, false);
        exchange.release(vec![SubjobId(0)]);
        member
    }

    /// The app has started.
    pub(crate) fn start(&self, overlay: Overlay, placement: &Placement) {
        self.act(|inner, id| {
            inner.overlays.insert(id, overlay);
            inner.board.started(id, placement.rank_count());
        });
    }

    /// Handles an agent's message about a rank's link.
    pub(crate) fn take(&self, node: NodeId, link: u32, word: Word) {
        let closed = word == Word::End;
        self.act(|inner, id| inner.board.take(id, (node, link), word));
        if closed {
            self.exchange.shared.closed.send_modify(|count| *count += 1);
        }
    }

    /// Reads what an ended rank had written. None: all of it is here. Else a future that waits for the rest.
    pub(crate) fn last_words(&self, rank: Rank) -> Option<impl Future<Output = ()> + Send + 'static> {
        let mut closed = self.exchange.shared.closed.subscribe();
        if !self.act(|inner, id| inner.board.drain(id, rank)) {
            return None;
        }
        let member = self.clone();
        Some(async move {
            let all = async {
                while member.act(|inner, id| inner.board.is_linked(id, rank))
                    && closed.changed().await.is_ok()
                {}
            };
            drop(timeout(LAST_WORDS, all).await);
        })
    }

    /// A rank has ended.
    pub(crate) fn rank_ended(&self, rank: Rank) {
        self.act(|inner, id| inner.board.rank_ended(id, rank));
    }

    /// The MPI world of the ranks has failed.
    pub(crate) fn mpi_failed(&self, failure: MpiFailure) {
        self.act(|inner, id| {
            if let Some(task) = inner.tasks.get(&id) {
                // The task is about to end.
                drop(task.send(Arrival::MpiFailed(failure)));
            }
        });
    }

    /// The app was detached: it continues, and sends no more reports.
    pub(crate) fn leave(&self) {
        self.act(|inner, id| inner.board.leave(id));
    }

    /// The app is over.
    pub(crate) fn close(&self) {
        self.act(|inner, id| {
            inner.board.end(id);
            inner.overlays.remove(&id);
            inner.tasks.remove(&id);
        });
        self.exchange.shared.closed.send_modify(|count| *count += 1);
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner, SubjobId) -> T) -> T {
        self.exchange.act(|inner| act(inner, self.id))
    }
}
