//! The place of an app's sessions, once it is chosen.

use std::path::PathBuf;

use tokio::sync::Mutex;

/// The place of an app's sessions.
#[derive(Debug, Default)]
pub(crate) struct Place(pub(super) Mutex<Option<Chosen>>);

/// The name of the app's directory, and the directory in which it is.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) base: PathBuf,
}
