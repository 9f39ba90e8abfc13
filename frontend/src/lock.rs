//! How this crate takes a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes `mutex`, even after a panic in another thread. That is safe, because this crate holds no lock over a half-made
/// change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
