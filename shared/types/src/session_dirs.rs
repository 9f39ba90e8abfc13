//! The directories of a session on a node.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// In a session's directory: executables.
pub const BIN_DIR: &str = "bin";
/// In a session's directory: libraries.
pub const LIB_DIR: &str = "lib";
/// In a session's directory: output of daemons; `TMPDIR` of daemons.
pub const TMP_DIR: &str = "tmp";

/// The directories of a session. They have the same paths on every node.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SessionDirs {
    /// The session's directory.
    pub root: PathBuf,
    /// Executables, first in the `PATH` of daemons.
    pub bin: PathBuf,
    /// Libraries, first in the `LD_LIBRARY_PATH` of daemons.
    pub lib: PathBuf,
    /// Output of daemons, their `TMPDIR`.
    pub tmp: PathBuf,
}

impl SessionDirs {
    /// The directories below that root. Creates none.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { bin: root.join(BIN_DIR), lib: root.join(LIB_DIR), tmp: root.join(TMP_DIR), root }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_session_has_three_directories_below_its_root() {
        let dirs = SessionDirs::new("/tmp/gantry-3kx9w0fz-abcdef/s2");
        assert_eq!(dirs.root, Path::new("/tmp/gantry-3kx9w0fz-abcdef/s2"));
        for (dir, name) in [(&dirs.bin, "bin"), (&dirs.lib, "lib"), (&dirs.tmp, "tmp")] {
            assert_eq!(*dir, dirs.root.join(name));
        }
    }
}
