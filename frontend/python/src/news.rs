//! What jobs wait for, until the tool is told.

use std::mem;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// What jobs wait for, each with its name, until the tool is told.
#[derive(Default)]
pub(crate) struct News(Mutex<Vec<(String, String)>>);

impl News {
    pub(crate) fn add(&self, job: &str, message: &str) {
        let mut news = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        news.push((job.to_owned(), message.to_owned()));
    }

    /// Calls a function of the tool's with each. What it raises ends the wait.
    pub(crate) fn tell(&self, py: Python<'_>, on_wait: &Py<PyAny>) -> PyResult<()> {
        let news = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        news.into_iter().try_for_each(|told| on_wait.call1(py, told).map(drop))
    }
}
