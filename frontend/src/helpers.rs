//! The paths of gantry's own executables, with this library's error.

use std::path::PathBuf;

use gantry_guard::helpers;
use gantry_wlm::host::Machine;

use crate::error::{Error, Result};

pub(crate) use gantry_guard::helpers::{AGENT, GUARD};

/// Path of the executable `name`.
///
/// # Errors
/// [`Error::HelperMissing`].
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    helpers::find_helper(name, &Machine).map_err(Error::HelperMissing)
}

/// The directory in which the guard has the names of launchers.
///
/// # Errors
/// [`Error::HelperMissing`].
pub(crate) fn find_launchers() -> Result<PathBuf> {
    helpers::find_launchers(&Machine).map_err(Error::HelperMissing)
}
