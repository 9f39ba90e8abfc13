//! Daemons in a container instance that runs on the node already, for ranks that are there.
//!
//! What enters the instance gives the program the container's own search paths in the place of ours, unless ours come by variables of its own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use gantry_shared::search::folders;
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::SessionDirs;

use super::command::Command;
use super::program::look_up;

/// Programs that enter an instance, the preferred one first, which the other has for a second name.
const STARTERS: [&str; 2] = ["singularity", "apptainer"];

/// What the names of variables start with by which programs in containers get theirs.
const PREFIXES: [&str; 2] = ["SINGULARITYENV_", "APPTAINERENV_"];

/// The command by which `command` is run in the instance; `env` is what it is started with.
///
/// # Errors
/// `NotFound`: nothing that enters instances is in `search`.
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
