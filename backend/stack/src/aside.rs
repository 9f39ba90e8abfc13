//! Work that hangs when a file system does. It runs on a thread of its own, and the reader waits for a short time only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// A healthy file system answers within this.
const AT_LEAST: Duration = Duration::from_millis(50);

/// How long to wait for the next piece of work. Each wait in vain halves it: files hang together, and there may be many.
#[derive(Debug, Clone)]
pub(crate) struct Patience(Arc<Mutex<Duration>>);

impl Patience {
    /// Waits in vain take about twice this time together.
    pub(crate) fn new(first: Duration) -> Self {
        Self(Arc::new(Mutex::new(first)))
    }

    fn get(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn halve(&self) {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *time = (*time / 2).max(AT_LEAST);
    }
}

/// A result that is worked out on first use.
#[derive(Debug)]
pub(crate) struct Aside<T> {
    patience: Patience,
    has_begun: AtomicBool,
    result: Arc<OnceLock<T>>,
}

impl<T: Send + Sync + 'static> Aside<T> {
    pub(crate) fn new(patience: &Patience) -> Self {
        Self { patience: patience.clone(), has_begun: AtomicBool::new(false), result: Arc::default() }
    }

    /// The result of the first call's work. None: there is none yet. A later call returns it without another wait.
    pub(crate) fn get(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<&T> {
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            self.begin(Builder::new().name("files".to_owned()), work);
        }
        self.result.get()
    }

    /// Whether the work still waits.
    pub(crate) fn is_late(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed) && self.result.get().is_none()
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
        if end.recv_timeout(self.patience.get()) == Err(RecvTimeoutError::Timeout) {
            self.patience.halve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_left_and_its_result_taken_later() {
        let patience = Patience::new(AT_LEAST * 4);
        let (go_on, waits) = channel::<()>();
        let hung = Aside::new(&patience);
        assert_eq!(hung.get(move || waits.recv().is_ok()), None);
        assert!(hung.is_late());
        assert_eq!(patience.get(), AT_LEAST * 2);
        let quick = Aside::new(&Patience::new(Duration::from_secs(60)));
        assert_eq!(quick.get(|| 7), Some(&7));
        assert!(!quick.is_late());
        go_on.send(()).unwrap();
        hung.result.wait();
        assert_eq!(hung.get(|| unreachable!()), Some(&true));
    }

    #[test]
    fn without_a_thread_the_work_is_done_here() {
        let aside = Aside::new(&Patience::new(AT_LEAST));
        // No address space has room for such a stack.
        aside.begin(Builder::new().stack_size(1 << 60), || 7);
        assert_eq!(aside.result.get(), Some(&7));
    }
}
