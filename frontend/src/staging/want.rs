//! A file that is requested from nodes.

use std::ffi::OsStr;
use std::sync::Arc;

use gantry_shared::wire::staging::{Entry, Known, Place};

use super::content::Source;

/// The target in a session's storage: the part of it, and the path below that.
pub(crate) type Target = (Place, Arc<OsStr>);

/// A file that is requested from nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) place: Place,
    /// Path below the place.
    pub(crate) name: Arc<OsStr>,
    pub(crate) source: Arc<Source>,
    /// The existing copy of its content on every node of the session.
    pub(crate) known: Option<Target>,
}

impl Want {
    /// The request to the nodes.
    pub(crate) fn build_entry(&self) -> Entry {
        let facts = &self.source.facts;
        let known = self.known.as_ref().map(|(place, name)| Known {
            place: *place,
            name: name.to_os_string(),
            executable: facts.executable,
            modified: facts.modified(),
        });
        Entry {
            known,
            place: self.place,
            name: self.name.to_os_string(),
            source: self.source.path.as_os_str().to_owned(),
            content: facts.content.clone(),
        }
    }
}
