//! The windows of both directions of a link, shared by its tasks. Each chunk of bulk data is a message of one unit.
//!
//! It counts as all flows do ([`Outflow`], [`Receiver`]), and adds the waits. Every change that could end a task's wait
//! wakes that task. A model checker runs this file in every order of its steps (`tests/model`). So the lock and the
//! signals come from `super::sync`, and the time is kept outside.

use gantry_shared::wire::flow::Outflow;
use gantry_shared::wire::window::{Overrun, Receiver};

use super::sync::{Lock, Signal};

/// The windows of a link.
#[derive(Debug)]
pub(super) struct Gate {
    state: Lock<State>,
    /// Wakes the writer: places to return, or a first held chunk.
    due: Signal,
    /// Wakes the writer: places to send into.
    earned: Signal,
    /// Wakes all that wait until the peer has taken what was queued.
    delivered: Signal,
}

#[derive(Debug)]
struct State {
    /// What the peer has room for.
    out: Outflow,
    /// Chunks that were queued in total, and those among them whose places the peer has returned.
    queued: u64,
    taken: u64,
    /// What the peer may send.
    window: Receiver,
    /// The peer's chunks that are held here.
    held: u32,
    /// Places to return.
    due: u32,
}

/// What the writer has to return to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    /// Places to return.
    pub(super) due: u32,
    /// The peer's chunks that are still held here.
    pub(super) held: u32,
}

impl Gate {
    /// Windows of that many chunks.
    pub(super) fn new(chunks: u32) -> Self {
        let (out, window) = (Outflow::new(chunks, 0), Receiver::new(chunks));
        Self {
            state: Lock::new(State { out, queued: 0, taken: 0, window, held: 0, due: 0 }),
            due: Signal::new(),
            earned: Signal::new(),
            delivered: Signal::new(),
        }
    }

    /// The peer returns places.
    ///
    /// # Errors
    /// It returned more than it had taken.
    pub(super) fn earn(&self, places: u32) -> Result<(), Overrun> {
        {
            let mut state = self.state.lock();
            state.out.earn_back(places)?;
            state.taken += u64::from(places);
        }
        self.delivered.notify_waiters();
        self.earned.notify_one();
        Ok(())
    }

    /// A chunk has arrived and is held.
    ///
    /// # Errors
    /// There was no place for it.
    pub(super) fn arrive(&self) -> Result<(), Overrun> {
        let is_first = {
            let mut state = self.state.lock();
            state.window.take(1)?;
            state.held += 1;
            state.held == 1
        };
        if is_first {
            self.due.notify_one();
        }
        Ok(())
    }

    /// A held chunk is consumed.
    pub(super) fn consume(&self) {
        {
            let mut state = self.state.lock();
            state.held -= 1;
            state.due += 1;
        }
        self.due.notify_one();
    }

    /// What is to be returned now. The peer may send that much more.
    pub(super) fn settle(&self) -> Debt {
        let mut state = self.state.lock();
        let due = std::mem::take(&mut state.due);
        state.window.grant(due);
        Debt { due, held: state.held }
    }

    /// What is to be returned.
    pub(super) fn debt(&self) -> Debt {
        let state = self.state.lock();
        Debt { due: state.due, held: state.held }
    }

    /// Waits until the debt may have changed. For one task only.
    pub(super) async fn debt_changed(&self) {
        self.due.notified().await;
    }

    /// A chunk was queued.
    pub(super) fn expect(&self) {
        self.state.lock().queued += 1;
    }

    /// Whether a chunk may be sent.
    pub(super) fn is_any(&self) -> bool {
        self.state.lock().out.has_room(1)
    }

    /// Waits until a chunk may be sent. For one task only.
    pub(super) async fn any(&self) {
        while !self.is_any() {
            self.earned.notified().await;
        }
    }

    /// A chunk is sent. Returns whether the peer had returned all places before.
    pub(super) fn spend(&self) -> bool {
        let mut state = self.state.lock();
        let was_taken = state.out.is_taken();
        state.out.send(1);
        was_taken
    }

    /// Whether the peer has returned all places.
    pub(super) fn is_taken(&self) -> bool {
        self.state.lock().out.is_taken()
    }

    /// Waits until the peer has consumed all chunks queued so far.
    pub(super) async fn all_taken(&self) {
        let queued = self.state.lock().queued;
        loop {
            let mut taken = std::pin::pin!(self.delivered.notified());
            taken.as_mut().enable();
            if self.state.lock().taken >= queued {
                return;
            }
            taken.await;
        }
    }
}
