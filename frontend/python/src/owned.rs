//! What belongs to the process that has made it, and is closed once.

use std::mem;
use std::sync::{Mutex, PoisonError};

use gantry_shared_python::build_error;
use gantry_types::error::Kind;
use pyo3::prelude::*;

use crate::waiting::enter;

/// A value that a forked child neither uses nor drops: dropping an app there would end it under its owner.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    pid: u32,
    what: &'static str,
    value: Mutex<Option<T>>,
}

impl<T> Owned<T> {
    /// `what` names it in errors: "the app".
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        Self { pid: std::process::id(), what, value: Mutex::new(Some(value)) }
    }

    /// What `look` takes of the value.
    ///
    /// # Errors
    /// It was closed, or belongs to the parent of this process.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> PyResult<R> {
        self.check_process()?;
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.as_ref().map(look).ok_or_else(|| self.closed())
    }

    /// The value itself.
    ///
    /// # Errors
    /// As [`Owned::with`].
    pub(crate) fn take(&self) -> PyResult<T> {
        self.check_process()?;
        self.value.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| self.closed())
    }

    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        let message = format!("{} belongs to process {}, which forked this one", self.what, self.pid);
        let hint = "use it there, or launch and attach in the process that uses it".to_owned();
        Err(build_error(Kind::Invalid, message, Some(hint), Vec::new()))
    }

    fn closed(&self) -> PyErr {
        build_error(Kind::Gone, format!("{} was closed", self.what), None, Vec::new())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if std::process::id() != self.pid {
            return mem::forget(value);
        }
        // Its end may start a task.
        drop(enter(|| drop(value)));
    }
}
