//! Errors and data of the library, for Python.

use gantry_frontend::Error;
use gantry_frontend::Missing;
use gantry_shared_python::{MissingDaemon, build_error, to_pair};
use gantry_types::error::Kind;
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
