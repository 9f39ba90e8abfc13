//! The native part of the Python package `gantry_backend`.
//!
//! Its functions contain no logic: they convert arguments, call `gantry-backend`, and convert the answer. The package's
//! Python files have the interface and its documentation. While a call waits, other threads of Python run.

mod filters;
mod node;

use pyo3::prelude::*;

/// `gantry_backend._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::filters::{decode, encode, fold_ranks};
    #[pymodule_export]
    use super::node::{Backend, Channel};
}
