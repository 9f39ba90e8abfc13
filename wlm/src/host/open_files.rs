//! Open files: a launch on many nodes needs more descriptors than the soft limit that most users have.
//!
//! Only gantry's own programs raise it, for themselves. The libraries live in other programs and leave their limit
//! alone.

use std::io;
use std::os::fd::RawFd;
use std::process::{Child, Command};
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use super::sys;

/// The initial soft and hard limit of this process. Set once this process has raised the soft one.
static GIVEN: OnceLock<Option<(rlim_t, rlim_t)>> = OnceLock::new();

/// Raises the soft limit of this process to the hard one. On refusal, it stays.
///
/// Programs that this module starts get the original limit back.
/// Programs that use `select` must not inherit a limit above 1024.
pub fn raise_open_files() {
    GIVEN.get_or_init(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok().map(|()| (soft, hard))
    });
}

/// The initial limit of this process, if this process has raised it.
pub(super) fn given_open_files() -> Option<(rlim_t, rlim_t)> {
    GIVEN.get().copied().flatten()
}

/// Gives `command` the original limit of this process, if this process has raised its own.
pub fn restore_open_files(command: &mut Command) {
    if let Some((soft, hard)) = given_open_files() {
        sys::limit_open_files(command, soft, hard);
    }
}

/// Starts `command` with the original limit of this process, if this process has raised its own. This is faster than
/// [`restore_open_files`], which needs a full fork: here this process's limit is lowered during the start.
///
/// Other threads of the process must not open files meanwhile. `command` must have all three standard descriptors,
/// and `stdio` must be those. The C library cannot start a program with a descriptor above the limit, so they decide
/// which way is used.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_with_given_limit(command: &mut Command, stdio: [RawFd; 3]) -> io::Result<Child> {
    let Some((soft, hard)) = given_open_files() else { return command.spawn() };
    let is_below = |fd: RawFd| rlim_t::try_from(fd).is_ok_and(|fd| fd < soft);
    if !stdio.into_iter().all(is_below) {
        restore_open_files(command);
        return command.spawn();
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    let spawned = command.spawn();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    spawned
}

/// The open-file limit that caused `error`, and the remedy. `None`: it is another error.
#[must_use]
pub fn explain_open_files(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        // Uses a system call: no descriptor is left to read a file of /proc.
        Some(libc::EMFILE) => getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, hard)| explain(soft, hard)),
        Some(libc::ENFILE) => {
            Some("this machine has too many open files: see 'sysctl fs.file-max'".to_owned())
        }
        _ => None,
    }
}

fn explain(soft: rlim_t, hard: rlim_t) -> String {
    let limit = format!("this process may have {soft} open files at most");
    if soft < hard {
        format!("{limit}: start it after 'ulimit -n {hard}'")
    } else {
        format!("{limit}: ask the administrator for a higher hard limit ('ulimit -Hn'), or use fewer nodes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_and_the_remedy_are_named() {
        assert_eq!(
            explain(1024, 4096),
            "this process may have 1024 open files at most: start it after 'ulimit -n 4096'"
        );
        assert!(explain(64, 64).contains("higher hard limit"));
        assert!(explain_open_files(&io::Error::from_raw_os_error(libc::EMFILE)).is_some());
        assert!(explain_open_files(&io::Error::from_raw_os_error(libc::ENOENT)).is_none());
    }
}
