//! Where a daemon finds its files and may leave new ones.

pub use gantry_shared::storage::SessionDirs;

use crate::Backend;

impl Backend {
    /// The session's directories on this node.
    ///
    /// What the tool shipped is in `bin`, `lib` and below `root`; what the daemon writes belongs into `tmp`, which is also its `TMPDIR`. All of
    /// it is private to the user and is removed when the session ends: what must stay is written elsewhere.
    #[must_use]
    pub fn dirs(&self) -> &SessionDirs {
        &self.facts().dirs
    }
}
