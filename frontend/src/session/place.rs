//! Where an app's sessions are, once that is chosen.

use std::path::PathBuf;

use tokio::sync::Mutex;

/// Where the sessions of an app are.
#[derive(Debug, Default)]
pub(crate) struct Place(pub(super) Mutex<Option<Chosen>>);

/// The name of the app's directory, and the directory in which it is.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) base: PathBuf,
}
