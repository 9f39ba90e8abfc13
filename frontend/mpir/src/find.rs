//! Finds the `gantry` beside this program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use gantry_shared::trust::Trust;

/// The path of `gantry`.
///
/// # Errors
/// It does not exist, or others can change it.
pub(crate) fn find_gantry() -> Result<PathBuf, String> {
    let own = fs::read_link("/proc/self/exe").map_err(|e| format!("cannot read /proc/self/exe: {e}"))?;
    let gantry = own.with_file_name("gantry");
    let owner = fs::metadata(&own).ok().map(|meta| meta.uid());
    let trust = owner.into_iter().fold(Trust::of_process(), Trust::and_owner);
    trust.check_program(&gantry).map_err(|refused| format!("{refused}; {}", refused.hint()))?;
    Ok(gantry)
}
