//! Work that hangs when a file system does. It runs on a thread of its own, and the reader waits for a short time only.
//!
//! What is late stays late until the end of the order. So ranks with equal stacks get equal ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long a file system may take for its first answer.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// How many such waits in vain one order may have in all.
pub(crate) const FIRST_ANSWERS: u32 = 4;

/// What a note says of a file whose file system may answer.
pub(crate) const NOT_IN_TIME: &str = "is not read in time";

/// A healthy file system answers within this, also on a busy machine.
const AT_LEAST: Duration = Duration::from_millis(200);

/// How long to wait for the next piece of work. Each wait in vain shortens it until the next order: files hang
/// together, and there may be many.
#[derive(Debug, Clone)]
pub(crate) struct Patience(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The time for all waits in vain of an order, and the part of it that has passed.
    all: Duration,
    passed: Duration,
    waits: u32,
    /// The number of the order.
    order: u64,
    /// How many results were late.
    late: u64,
}

impl Patience {
    /// The first wait lasts for `first`. In one order, waits in vain take about `waits` times as long together.
    pub(crate) fn new(first: Duration, waits: u32) -> Self {
        let (all, passed) = (first * waits, Duration::ZERO);
        Self(Arc::new(Mutex::new(State { all, passed, waits, order: 1, late: 0 })))
    }

    /// Changes how long waits in vain take together, in this order and all later ones.
    pub(crate) fn limit(&self, all: Duration) {
        self.state().all = all;
    }

    /// Begins an order: what was late may be there by now, and other files have all the time again.
    pub(crate) fn begin_order(&self) {
        let mut state = self.state();
        state.order += 1;
        state.passed = Duration::ZERO;
    }

    /// How many results were late so far. The same one may be late again and again.
    pub(crate) fn late(&self) -> u64 {
        self.state().late
    }

    fn order(&self) -> u64 {
        self.state().order
    }

    fn get(&self) -> Duration {
        let state = self.state();
        (state.all.saturating_sub(state.passed) / state.waits).max(AT_LEAST)
    }

    /// Notes a wait in vain.
    fn shorten(&self, waited: Duration) {
        let mut state = self.state();
        state.passed = state.passed.saturating_add(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A result that is worked out on first use.
#[derive(Debug)]
pub(crate) struct Aside<T> {
    patience: Patience,
    has_begun: AtomicBool,
    /// The last order in which it was late; 0 is none.
    late_in: AtomicU64,
    result: Arc<OnceLock<T>>,
}

impl<T: Send + Sync + 'static> Aside<T> {
    pub(crate) fn new(patience: &Patience) -> Self {
        let (has_begun, late_in) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { patience: patience.clone(), has_begun, late_in, result: Arc::default() }
    }

    /// The result of the first call's work. None: it is late. A call in a later order returns it without another wait.
    pub(crate) fn get(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<&T> {
        let order = self.patience.order();
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            self.begin(Builder::new().name("files".to_owned()), work);
        }
        let was_late = self.late_in.load(Ordering::Relaxed) == order;
        let result = self.result.get().filter(|_| !was_late);
        if result.is_none() {
            self.late_in.store(order, Ordering::Relaxed);
            self.patience.state().late += 1;
        }
        result
    }

    /// Whether it was late when it was asked for in this order.
    pub(crate) fn is_late(&self) -> bool {
        self.late_in.load(Ordering::Relaxed) == self.patience.order()
    }

    /// Whether it is late in this order, or has been so since an earlier one.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_late() || (self.has_begun.load(Ordering::Relaxed) && self.result.get().is_none())
    }

    fn begin(&self, thread: Builder, work: impl FnOnce() -> T + Send + 'static) {
        let result = Arc::clone(&self.result);
        let ((give, given), (ending, end)) = (channel(), channel::<()>());
        let begun = thread.spawn(move || {
            if let Ok(work) = given.recv() {
                result.get_or_init(work);
            }
            drop(ending);
        });
        if begun.is_err() {
            // Where a user may have no more threads, a wait without a limit is better than no result.
            self.result.get_or_init(work);
            return;
        }
        // The thread takes it, unless it has panicked.
        drop(give.send(work));
        let wait = self.patience.get();
        if end.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            self.patience.shorten(wait);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    impl<T: Send + Sync + 'static> Aside<T> {
        /// A result that is late until the sender says so, and then for the rest of the order.
        pub(crate) fn hung(
            patience: &Patience,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> (Self, Sender<()>) {
            let (go_on, waits) = channel::<()>();
            let hung = Self::new(patience);
            let work = move || {
                waits.recv().unwrap_or_default();
                work()
            };
            assert!(hung.get(work).is_none());
            (hung, go_on)
        }

        /// Waits for the result, which is not late for long now.
        pub(crate) fn arrive(&self, go_on: &Sender<()>) {
            go_on.send(()).unwrap();
            self.result.wait();
        }
    }

    #[test]
    fn what_is_late_is_so_for_the_rest_of_the_order_and_there_in_the_next_one() {
        let patience = Patience::new(AT_LEAST, 1);
        let (hung, go_on) = Aside::hung(&patience, || 7);
        patience.begin_order();
        assert!(hung.is_waited_for() && !hung.is_late(), "nobody has asked for it in this order");
        assert_eq!(hung.get(|| unreachable!()), None);
        hung.arrive(&go_on);
        assert_eq!(hung.get(|| unreachable!()), None);
        assert_eq!((hung.is_late(), patience.late()), (true, 3));
        patience.begin_order();
        assert!(!hung.is_late() && !hung.is_waited_for());
        assert_eq!((hung.get(|| unreachable!()), patience.late()), (Some(&7), 3));
    }

    #[test]
    fn waits_in_vain_make_the_next_one_shorter_until_the_order_ends() {
        let first = 5 * AT_LEAST;
        let patience = Patience::new(first, 2);
        assert_eq!(patience.get(), first);
        drop(Aside::hung(&patience, || ()));
        assert_eq!(patience.get(), first / 2);
        drop(Aside::hung(&patience, || ()));
        assert_eq!(patience.get(), first / 4);
        patience.shorten(2 * first);
        assert_eq!(patience.get(), AT_LEAST);
        patience.begin_order();
        assert_eq!(patience.get(), first);
        patience.shorten(first);
        patience.limit(4 * first);
        assert_eq!(patience.get(), first + first / 2);
        let quick = Aside::new(&Patience::new(Duration::from_secs(60), 1));
        assert_eq!(quick.get(|| 7), Some(&7));
        assert!(!quick.is_late());
    }

    #[test]
    fn without_a_thread_the_work_is_done_here() {
        let aside = Aside::new(&Patience::new(AT_LEAST, 1));
        // No address space has room for such a stack.
        aside.begin(Builder::new().stack_size(1 << 60), || 7);
        assert_eq!(aside.result.get(), Some(&7));
    }
}
