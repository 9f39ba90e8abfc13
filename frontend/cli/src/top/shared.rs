//! A state that two threads share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A state, and the news that it has changed.
#[derive(Debug, Default)]
pub(super) struct Shared<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Shared<S> {
    pub(super) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut S)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while `is_so` holds.
    pub(super) fn wait_while(&self, is_so: impl FnMut(&mut S) -> bool) -> MutexGuard<'_, S> {
        self.changed.wait_while(self.lock(), is_so).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for at most `time`. False: it still holds.
    pub(super) fn wait_while_for(&self, time: Duration, is_so: impl FnMut(&mut S) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, is_so);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
