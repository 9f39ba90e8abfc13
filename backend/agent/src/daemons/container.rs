//! Daemons in a container instance that already runs on the node, for the ranks in it.
//!
//! The program that enters the instance replaces our search paths with the container's own. Paths in variables of its
//! own pass through.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use gantry_shared::search::folders;
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::SessionDirs;

use super::command::Command;
use super::program::look_up;

/// Programs that enter an instance, the preferred one first. The other one has the first name as an alias.
const STARTERS: [&str; 2] = ["singularity", "apptainer"];

/// Prefixes of the variables that a starter passes on to programs in containers.
const PREFIXES: [&str; 2] = ["SINGULARITYENV_", "APPTAINERENV_"];

/// The command that runs `command` in the instance. `env` is its environment.
///
/// # Errors
/// `NotFound`: `search` has no program that enters instances.
pub(super) fn enter(
    command: Command,
    instance: &OsStr,
    search: &OsStr,
    dirs: &SessionDirs,
    env: &mut BTreeMap<OsString, OsString>,
) -> Result<Command, Failure> {
    let found = STARTERS.iter().find_map(|name| look_up(OsStr::new(name), folders(search)));
    let starter = found.unwrap_or_else(|| {
        let message = format!(
            "start a daemon in the container {}: neither {} is in PATH ({})",
            instance.display(),
            STARTERS.join(" nor "),
            search.display()
        );
        Err(Failure::new(Kind::NotFound, message)
            .with_hint("install it on every node, or name no container for daemons"))
    })?;
    let libraries = env.get(OsStr::new("LD_LIBRARY_PATH")).cloned().unwrap_or_default();
    for prefix in PREFIXES {
        env.insert(format!("{prefix}LD_LIBRARY_PATH").into(), libraries.clone());
        env.insert(format!("{prefix}PREPEND_PATH").into(), dirs.bin.clone().into());
    }
    let words =
        [starter.clone().into_os_string(), "exec".into(), instance.to_owned(), command.program.into()];
    let argv = words.into_iter().chain(command.argv.into_iter().skip(1)).collect();
    Ok(Command { program: starter, argv })
}
