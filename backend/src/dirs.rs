//! Where a daemon finds its files and may leave new ones.

pub use gantry_types::session_dirs::SessionDirs;

use crate::Backend;

impl Backend {
    /// The session's directories on this node.
    ///
    /// Files of the tool are in `bin`, `lib` and below `root`. The daemon writes to `tmp`, which is also its `TMPDIR`.
    /// All directories are private to the user and are removed with the session: write lasting files elsewhere.
    #[must_use]
    pub fn dirs(&self) -> &SessionDirs {
        &self.facts().dirs
    }
}
