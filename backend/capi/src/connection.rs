//! This process's connection to its agent. The first call that needs it makes it. It is made again after a failure, and
//! in a forked child.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_backend::{Backend, Error};
use gantry_shared::per_process::PerProcess;
use gantry_shared_capi::Fault;

/// The connection. Two processes on one socket would take each other's answers, so a forked child makes its own.
static CONNECTION: Kept<Backend> = Kept::new();

/// What the first call that needs it makes, once in each process.
pub(crate) type Kept<T> = PerProcess<Mutex<Option<Arc<T>>>>;

fn lock<T: Send + Sync>(kept: &'static Kept<T>) -> MutexGuard<'static, Option<Arc<T>>> {
    kept.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kept value, or else what `make` makes.
pub(crate) fn get_or<T: Send + Sync>(
    kept: &'static Kept<T>,
    make: impl FnOnce() -> Result<T, Fault>,
) -> Result<Arc<T>, Fault> {
    let mut kept = lock(kept);
    if let Some(known) = kept.as_ref() {
        return Ok(Arc::clone(known));
    }
    Ok(Arc::clone(kept.insert(Arc::new(make()?))))
}

/// The connection of this process.
pub(crate) fn backend() -> Result<Arc<Backend>, Fault> {
    get_or(&CONNECTION, || Backend::connect().map_err(|error| fault(&error)))
}

/// Sends a request over the connection. After an error the connection is unusable: the next call makes a new one.
pub(crate) fn ask<T>(question: impl FnOnce(&Backend) -> Result<T, Error>) -> Result<T, Fault> {
    let backend = backend()?;
    question(&backend).map_err(|error| {
        let mut connection = lock(&CONNECTION);
        if connection.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &backend)) {
            *connection = None;
        }
        fault(&error)
    })
}

/// Converts an error of the library for C: its texts fit after "failed to".
pub(crate) fn fault(error: &Error) -> Fault {
    let found = Fault::of(error.kind(), error, error.hint());
    Fault::new(found.kind(), format!("failed to {}", found.text()))
}
