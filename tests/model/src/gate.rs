//! The waits of a link's windows, in every order of the steps of its tasks.
//!
//! A link's reader, its writer and the consumers of its data share the gate. loom runs each model below with every
//! interleaving, up to two preemptions. It reports a task that waits for ever, and a lock that is taken twice.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::mpsc::channel;
use loom::thread;

use self::gate::{Debt, Gate};

#[path = "../../../shared/link/src/credit/gate.rs"]
mod gate;

/// The smallest window that is more than a turn for each chunk.
const WINDOW: u32 = 2;
const CHUNKS: u32 = 3;

/// What the gate gets in the place of the real lock and of `tokio::sync::Notify`.
mod sync {
    use super::*;

    #[derive(Debug)]
    pub(super) struct Lock<T>(loom::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(super) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// A signal with the promises of `Notify` that the gate needs: one task waits for `notify_one`, which leaves a
    /// permit behind, and any number for `notify_waiters`, which does not.
    #[derive(Debug)]
    pub(super) struct Signal(Lock<State>);

    #[derive(Debug, Default)]
    struct State {
        permit: bool,
        calls: u32,
        wakers: Vec<Waker>,
    }

    impl Signal {
        pub(super) fn new() -> Self {
            Self(Lock::new(State::default()))
        }

        pub(super) fn notify_one(&self) {
            self.wake(|state| state.permit = true);
        }

        pub(super) fn notify_waiters(&self) {
            self.wake(|state| state.calls += 1);
        }

        fn wake(&self, change: impl FnOnce(&mut State)) {
            let wakers = {
                let mut state = self.0.lock();
                change(&mut state);
                std::mem::take(&mut state.wakers)
            };
            wakers.into_iter().for_each(Waker::wake);
        }

        pub(super) fn notified(&self) -> Notified<'_> {
            Notified { signal: self, calls: self.0.lock().calls }
        }
    }

    pub(super) struct Notified<'a> {
        signal: &'a Signal,
        /// The calls of `notify_waiters` before this.
        calls: u32,
    }

    impl Notified<'_> {
        /// It counts calls from its beginning, as the real one does.
        pub(super) fn enable(self: Pin<&mut Self>) {}
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let mut state = self.signal.0.lock();
            if std::mem::take(&mut state.permit) || state.calls != self.calls {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        }
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// The writer sends as far as there are places. The reader hears that places come back. A third task waits until all is
/// taken.
#[test]
fn a_sender_whose_chunks_are_taken_sends_all_and_learns_of_it() {
    check(|| {
        let gate = Arc::new(Gate::new(WINDOW));
        let (send, sent) = channel();
        (0..CHUNKS).for_each(|_| gate.expect());
        let writer = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                for _ in 0..CHUNKS {
                    block_on(gate.any());
                    gate.spend();
                    send.send(()).unwrap();
                }
            }
        });
        let reader = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                for _ in 0..CHUNKS {
                    sent.recv().unwrap();
                    gate.earn(1).unwrap();
                }
                assert!(gate.earn(1).is_err(), "nothing more was sent");
            }
        });
        block_on(gate.all_taken());
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(gate.is_taken());
    });
}

/// The reader takes chunks in, a consumer uses them up, and the writer returns their places. The sender has no place
/// that was not returned.
#[test]
fn every_place_of_a_consumed_chunk_is_returned() {
    check(|| {
        let gate = Arc::new(Gate::new(WINDOW));
        let (arrive, arrived) = channel();
        let reader = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                for _ in 0..WINDOW {
                    gate.arrive().unwrap();
                    arrive.send(()).unwrap();
                }
            }
        });
        let consumer = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                for _ in 0..WINDOW {
                    arrived.recv().unwrap();
                    gate.consume();
                }
            }
        });
        let mut returned = 0;
        while returned < WINDOW {
            match gate.settle() {
                Debt { due: 0, .. } => block_on(gate.debt_changed()),
                Debt { due, .. } => returned += due,
            }
        }
        reader.join().unwrap();
        consumer.join().unwrap();
        assert_eq!(gate.debt(), Debt { due: 0, held: 0 });
        (0..WINDOW).for_each(|_| gate.arrive().unwrap());
        assert!(gate.arrive().is_err(), "a window and no more");
    });
}
