//! Errors and data of the library, for Python. And descriptors of Python, for the library.

use std::os::fd::{BorrowedFd, OwnedFd};

use gantry_frontend::{Error, Missing};
use gantry_shared_python::{MissingDaemon, build_error, to_pair};
use gantry_types::error::Kind;
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::{NoSuchSignal, Signal};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

/// The exception for an error of the library.
pub(crate) fn to_error(error: &Error) -> PyErr {
    let missing = match error {
        Error::Incomplete { missing, .. } => missing.iter().map(to_missing).collect(),
        _ => Vec::new(),
    };
    build_error(error.kind(), error.to_string(), error.hint(), missing)
}

/// A daemon that is missing, for Python.
pub(crate) fn to_missing(missing: &Missing) -> MissingDaemon {
    (to_pair(missing.member), missing.host.clone(), missing.why.message().to_owned())
}

/// Data in the form that the reference documents.
pub(crate) fn to_json(data: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(data)
        .map_err(|error| build_error(Kind::Internal, error.to_string(), None, Vec::new()))
}

/// A signal by its name or its number.
pub(crate) fn parse_signal(signal: &str) -> PyResult<Signal> {
    signal.parse().map_err(|error: NoSuchSignal| PyValueError::new_err(error.to_string()))
}

/// A set of ranks from their numbers.
pub(crate) fn to_ranks(numbers: Vec<u32>) -> RankSet {
    numbers.into_iter().map(Rank).collect()
}

/// A copy of a descriptor of the tool's.
#[expect(unsafe_code, reason = "Python has descriptors as numbers")]
pub(crate) fn duplicate(number: i32) -> PyResult<OwnedFd> {
    if number < 0 {
        return Err(std::io::Error::from_raw_os_error(nix::errno::Errno::EBADF as i32).into());
    }
    // SAFETY: the number is not -1, and the tool keeps its file open during this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned()?)
}
