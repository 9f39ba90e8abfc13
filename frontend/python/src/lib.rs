//! The native part of the Python package `gantry`.
//!
//! Its functions contain no logic: they convert arguments, call `gantry-frontend`, and convert the answer. The package's
//! Python files have the interface and its documentation.
//!
//! | module | content |
//! | --- | --- |
//! | `convert` | errors and data |
//! | `waiting` | the runtime; waits that Ctrl-C ends |
//! | `owned` | what belongs to one process and is closed once |
//! | `streams` | events, output, messages of daemons |
//! | `frontend` | settings, launch, attach |
//! | `app` | an app |
//! | `session` | sessions, their files, their daemons |
//! | `channel` | the channel between tool and daemons |
//!
//! Data comes as JSON of the types in `gantry_frontend::event` and `gantry_frontend::info`, so that Python has the keys
//! that the reference documents.

mod convert;
mod waiting;
mod owned;
mod streams;
mod frontend;
mod app;
mod session;
mod channel;

use pyo3::prelude::*;

/// `gantry._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::app::App;
    #[pymodule_export]
    use super::channel::Channel;
    #[pymodule_export]
    use super::frontend::{Frontend, look_for_programs_in};
    #[pymodule_export]
    use super::session::{Daemon, Session};
    #[pymodule_export]
    use super::streams::{Events, Messages, Output};
}
