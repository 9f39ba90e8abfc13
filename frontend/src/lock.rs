//! The one way in which this crate takes a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes `mutex`. A thread that panicked while it held it changes nothing for others: no lock of this crate is held over a half-made change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
