//! The lock and the signal of [`Gate`](super::gate::Gate). Its model has others in their place.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) use tokio::sync::Notify as Signal;

/// A lock without poison: what it guards is consistent after each step.
#[derive(Debug)]
pub(super) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
