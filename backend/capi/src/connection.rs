//! This process's connection to its agent. The first call that needs it makes it. It is made again after a failure, and
//! in a forked child.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_backend::{Backend, Error};
use gantry_shared_capi::Fault;
use gantry_shared_capi::own::PerProcess;

/// The connection. Two processes on one socket would take each other's answers, so a forked child makes its own.
static CONNECTION: PerProcess<Mutex<Option<Arc<Backend>>>> = PerProcess::new();

fn connection() -> MutexGuard<'static, Option<Arc<Backend>>> {
    CONNECTION.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection of this process.
pub(crate) fn backend() -> Result<Arc<Backend>, Fault> {
    let mut connection = connection();
    if let Some(backend) = connection.as_ref() {
        return Ok(Arc::clone(backend));
    }
    let backend = Arc::new(Backend::connect().map_err(|error| fault(&error))?);
    *connection = Some(Arc::clone(&backend));
    Ok(backend)
}

/// Sends a request over the connection. After an error the connection is unusable: the next call makes a new one.
pub(crate) fn ask<T>(question: impl FnOnce(&Backend) -> Result<T, Error>) -> Result<T, Fault> {
    let backend = backend()?;
    question(&backend).map_err(|error| {
        let mut connection = connection();
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
