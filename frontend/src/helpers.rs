//! Finds gantry's own executables: beside the caller, below GANTRY_INSTALL_DIR, below the prefix that was built in.

use std::path::{Path, PathBuf};

use gantry_shared::storage;
use gantry_wlm::Host;

use crate::error::{Error, Result};

/// The guard's file name.
pub const GUARD: &str = "gantry-guard";

/// The agent's file name.
pub const AGENT: &str = "gantry-agent";

/// The prefix that this library was built for, if one was given by GANTRY_PREFIX at build time.
const BUILT_IN_PREFIX: Option<&str> = option_env!("GANTRY_PREFIX");

/// Path of the executable `name`.
///
/// # Errors
/// [`Error::HelperMissing`] with every place that was tried.
pub fn find_helper(name: &'static str, host: &dyn Host) -> Result<PathBuf> {
    let caller = host.read_link(Path::new("/proc/self/exe")).ok();
    let installed = [storage::GANTRY_INSTALL_DIR, storage::CTI_INSTALL_DIR].iter().find_map(|v| host.env(v));
    let tried = build_candidates(name, caller.as_deref(), installed.as_deref().map(Path::new));
    match tried.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Error::HelperMissing { name, tried }),
    }
}

fn build_candidates(name: &str, caller: Option<&Path>, installed: Option<&Path>) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some(folder) = caller.and_then(Path::parent) {
        candidates.push(folder.join(name));
        // Programs that cargo builds as examples and tests lie one folder deeper than their helpers.
        if let (Some("deps" | "examples"), Some(above)) =
            (folder.file_name().and_then(|f| f.to_str()), folder.parent())
        {
            candidates.push(above.join(name));
        }
    }
    for prefix in installed.into_iter().chain(BUILT_IN_PREFIX.map(Path::new)) {
        candidates.push(prefix.join("libexec/gantry").join(name));
        candidates.push(prefix.join("bin").join(name));
        candidates.push(prefix.join(name));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_the_caller_then_where_it_is_installed() {
        let paths =
            build_candidates(AGENT, Some(Path::new("/b/target/debug/deps/x-1")), Some(Path::new("/opt/g")));
        let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            &paths[..5],
            [
                "/b/target/debug/deps/gantry-agent",
                "/b/target/debug/gantry-agent",
                "/opt/g/libexec/gantry/gantry-agent",
                "/opt/g/bin/gantry-agent",
                "/opt/g/gantry-agent",
            ]
        );
    }
}
