//! What the Python modules of both libraries share: errors, timeouts and the names of a channel's ends.

use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::filter::concatenate::Member;
use gantry_types::id::{DaemonId, NodeId};
use nix::unistd::{getpid, gettid};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

/// The exceptions of both packages. Daemons have this one on their nodes.
const ERRORS: &str = "gantry_backend._errors";

/// A daemon on one node, for Python: the number of its node, and its own.
pub type MemberPair = (u32, u32);

/// A daemon that is missing in an operation: its numbers, its node's name, the reason.
pub type MissingDaemon = (MemberPair, String, String);

/// The exception for an error of gantry.
#[must_use]
pub fn build_error(kind: Kind, message: String, hint: Option<String>, missing: Vec<MissingDaemon>) -> PyErr {
    Python::attach(|py| {
        let built = py
            .import(ERRORS)
            .and_then(|errors| errors.getattr("build")?.call1((kind.as_str(), message, hint, missing)));
        built.map_or_else(|error| error, PyErr::from_value)
    })
}

/// The exception for a failure.
#[must_use]
pub fn of_failure(failure: &Failure) -> PyErr {
    let hint = failure.hint().map(str::to_owned);
    build_error(failure.kind(), failure.message().to_owned(), hint, Vec::new())
}

/// A timeout in seconds. None and infinity are no limit.
///
/// # Errors
/// It is negative, or no number: `ValueError`.
pub fn to_timeout(seconds: Option<f64>) -> PyResult<Duration> {
    let seconds = seconds.unwrap_or(f64::INFINITY);
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no timeout in seconds")))
}

/// Bytes of Python's. A list of small numbers is none, which `extract` would take.
///
/// # Errors
/// It is something else: `TypeError`.
pub fn to_bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let is_bytes = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>();
    if is_bytes {
        return value.extract();
    }
    Err(PyTypeError::new_err(format!("bytes are needed, not {}", value.get_type().name()?)))
}

/// How often a call that waits lets Python handle signals, such as that of Ctrl-C.
pub const TICK: Duration = Duration::from_millis(50);

/// Whether Python handles signals in this thread: in its main thread alone. Any other thread that attaches while Python
/// ends is ended by it.
#[must_use]
pub fn handles_signals() -> bool {
    gettid() == getpid()
}

/// A member as Python has it.
#[must_use]
pub fn to_pair(member: Member) -> MemberPair {
    (member.node.0, member.daemon.0)
}

/// A member as the libraries have it.
#[must_use]
pub fn to_member((node, daemon): MemberPair) -> Member {
    Member { node: NodeId(node), daemon: DaemonId(daemon) }
}
