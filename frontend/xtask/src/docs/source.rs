//! Files of this repository.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::build::root;

/// A source file of this repository.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()).into())
}
