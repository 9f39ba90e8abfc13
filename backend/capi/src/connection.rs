//! This process's connection to its agent: made by the first call that needs it, made anew when it has failed, and in a forked child.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_backend::{Backend, Error};
use gantry_shared_capi::Fault;

/// A connection, and the process that made it: of one socket, two processes would take each other's answers.
static CONNECTION: Mutex<Option<(u32, Arc<Backend>)>> = Mutex::new(None);

/// The connection of this process.
pub(crate) fn backend() -> Result<Arc<Backend>, Fault> {
    let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    if let Some((process, backend)) = connection.as_ref()
        && *process == own
    {
        return Ok(Arc::clone(backend));
    }
    let backend = Arc::new(Backend::connect().map_err(|error| fault(&error))?);
    *connection = Some((own, Arc::clone(&backend)));
    Ok(backend)
}

/// Asks something over the connection. After an error a connection is of no use: the next call makes another.
pub(crate) fn ask<T>(question: impl FnOnce(&Backend) -> Result<T, Error>) -> Result<T, Fault> {
    let backend = backend()?;
    question(&backend).map_err(|error| {
        let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.as_ref().is_some_and(|(_, kept)| Arc::ptr_eq(kept, &backend)) {
            *connection = None;
        }
        fault(&error)
    })
}

/// An error of the library as C hears it: they fit after "failed to".
pub(crate) fn fault(error: &Error) -> Fault {
    let found = Fault::of(error.kind(), error, error.hint());
    Fault::new(found.kind(), format!("failed to {}", found.text()))
}
