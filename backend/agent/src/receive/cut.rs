//! The reason why an archive was cut off before its end.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_types::error::Failure;

/// Why an archive will not be complete; the first reason counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut(Arc<Mutex<Option<Failure>>>);

impl Cut {
    pub(super) fn set(&self, why: Failure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}
