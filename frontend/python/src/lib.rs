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
//! | `batch`, `news` | batch jobs; what jobs wait for |
//! | `app` | an app |
//! | `remote` | apps of any tool of this user |
//! | `session` | sessions, their files, their daemons |
//! | `channel` | the channel between tool and daemons |
//!
//! Data comes as JSON of the types in `gantry_frontend::event` and `gantry_frontend::info`, so that Python has the keys
//! that the reference documents.

mod convert;
mod waiting;
mod owned;
mod streams;
mod news;
mod frontend;
mod batch;
mod app;
mod remote;
mod session;
mod channel;

use pyo3::prelude::*;

/// `gantry._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::app::App;
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::channel::Channel;
    #[pymodule_export]
    use super::frontend::{Frontend, look_for_programs_in};
    #[pymodule_export]
    use super::remote::{RemoteApp, RemoteEvents, find_app, list_apps};
    #[pymodule_export]
    use super::session::{Daemon, Session};
    #[pymodule_export]
    use super::streams::{Events, Messages, Output};
}
