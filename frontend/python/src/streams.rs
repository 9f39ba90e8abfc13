//! What comes while an app runs: events, output, messages of daemons.

use std::sync::Arc;
use std::time::Duration;

use gantry_frontend::channel::MessageStream;
use gantry_frontend::{self as library, OutputStream};
use gantry_shared_python::{MemberPair, build_error, to_pair};
use gantry_types::error::Kind;
use gantry_types::output::Stream;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::Mutex;

use crate::convert::to_json;
use crate::owned::Owned;

/// A stream that several threads may read in turns.
pub(crate) type Turns<T> = Owned<Arc<Mutex<T>>>;

/// The next of a stream. None: it has ended.
macro_rules! next {
    ($py:ident, $what:literal, $stream:expr, $timeout:ident) => {{
        let (stream, timeout) = ($stream.with(Arc::clone)?, gantry_shared_python::to_timeout($timeout)?);
        let next =
            $crate::waiting::wait_at_most($py, timeout, async move { stream.lock().await.next().await })?;
        next.ok_or_else(|| $crate::streams::late($what, timeout))?
    }};
}
pub(crate) use next;

pub(crate) fn late(what: &str, timeout: Duration) -> PyErr {
    let message = format!("no {what} within {} s", timeout.as_secs_f64());
    build_error(Kind::TimedOut, message, None, Vec::new())
}

/// The events of an app.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Events(Turns<library::Events>);

impl Events {
    pub(crate) fn new(events: library::Events) -> Self {
        Self(Owned::new("the stream of events", Arc::new(Mutex::new(events))))
    }
}

#[pymethods]
impl Events {
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        next!(py, "event", self.0, timeout).map(|event| to_json(&event)).transpose()
    }
}

/// A piece of output: rank, daemon, host, `stdout` or `stderr`, bytes.
type Piece<'py> = (Option<u32>, Option<u32>, String, &'static str, Bound<'py, PyBytes>);

/// The output of ranks or of a daemon.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Output(Turns<OutputStream>);

impl Output {
    pub(crate) fn new(stream: OutputStream) -> Self {
        Self(Owned::new("the stream of output", Arc::new(Mutex::new(stream))))
    }
}

#[pymethods]
impl Output {
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Piece<'py>>> {
        let piece = next!(py, "output", self.0, timeout);
        Ok(piece.map(|it| {
            let stream = match it.stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            let (rank, daemon) = (it.rank.map(|rank| rank.0), it.daemon.map(|daemon| daemon.0));
            (rank, daemon, it.host, stream, PyBytes::new(py, &it.data.0))
        }))
    }
}

/// The messages that daemons send with one tag.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Messages(Turns<MessageStream>);

impl Messages {
    pub(crate) fn new(stream: MessageStream) -> Self {
        Self(Owned::new("the stream of messages", Arc::new(Mutex::new(stream))))
    }
}

#[pymethods]
impl Messages {
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(MemberPair, Bound<'py, PyBytes>)>> {
        let message = next!(py, "message", self.0, timeout);
        Ok(message.map(|it| (to_pair(it.member), PyBytes::new(py, &it.bytes))))
    }
}
