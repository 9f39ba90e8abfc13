//! Runs PBS's commands, and reports their error messages.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_types::error::{Failure, Kind};

use crate::host::{Asked, Host};
use crate::{Error, Result};

/// How long a command of PBS may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// PBS's configuration, which names the directory of commands outside of PATH. Source: pbs.conf(8B).
const CONFIGURATION: &str = "/etc/pbs.conf";

/// Runs the command `words`, after looking up its first word. Returns the command as it was run, and its output.
///
/// # Errors
/// It does not exist, or cannot be run. [`Error::Unanswered`]: it did not run to its end.
pub(super) fn ask(words: &[OsString], host: &dyn Host) -> Result<(Vec<OsString>, Asked)> {
    let Some((program, args)) = words.split_first() else { return Err(Error::invalid("no command")) };
    let command: Vec<OsString> =
        std::iter::once(find_command(program, host)?).chain(args.iter().cloned()).collect();
    let said = host.ask(&command, PATIENCE).map_err(|error| Error::not_run(&command, &error))?;
    Ok((command, said))
}

/// The path of a command: in PATH, or according to PBS's configuration.
///
/// # Errors
/// It is in neither.
pub(super) fn find_command(name: &OsStr, host: &dyn Host) -> Result<OsString> {
    let found = host.find_in_path(&name.to_string_lossy()).or_else(|| {
        let path = host.env("PBS_CONF_FILE").map_or_else(|| PathBuf::from(CONFIGURATION), PathBuf::from);
        let text = String::from_utf8_lossy(&host.read(&path).ok()?).into_owned();
        let prefix = text.lines().find_map(|line| line.trim().strip_prefix("PBS_EXEC="))?;
        let there = Path::new(prefix.trim()).join("bin").join(name);
        host.is_executable(&there).then_some(there)
    });
    found.map(PathBuf::into_os_string).ok_or_else(|| {
        Error::not_found(
            format!("there is no {} in PATH", name.to_string_lossy()),
            "install PBS's commands, or add their folder to PATH",
        )
    })
}

/// The error for a command's refusal, or for its message that it could not ask.
pub(super) fn refused(command: &[OsString], said: &Asked) -> Error {
    let words = said.stderr.trim();
    let words = if words.is_empty() { "it printed nothing" } else { words };
    // Sources: the messages of OpenPBS's PBSE_ numbers.
    let kind = match words {
        it if it.contains("Unauthorized") || it.contains("not allowed") => Kind::NoAccess,
        it if it.contains("Unknown Job") || it.contains("Unknown queue") => Kind::NotFound,
        it if it.contains("has finished") || it.contains("invalid for state of job") => Kind::Gone,
        it if it.contains("cannot connect to server") => Kind::Lost,
        _ => Kind::LauncherFailed,
    };
    let line = command.join(OsStr::new(" "));
    Error::of_answer(Failure::new(kind, format!("{words} (command: {})", line.display())))
}
