//! The guard's executable as a stand-in for a launcher, in a batch script whose first launch is to be held.
//!
//! It stands first in PATH under the launcher's name. It runs the real launcher as a debugger does, leaves the ranks
//! of the job's first step stopped, and releases those of all others. It passes signals on, and exits with the
//! launcher's status. It does not hold a launch of several parts, and says so.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gantry_shared::search::folders;
use gantry_types::error::Kind;
use gantry_types::foreign::ForeignText;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{AtBreakpoint, Breakpoints, Driver, Event, LauncherCommand, Order};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};

/// The number of the held step.
const FIRST_STEP: &str = "0";

/// Separates the parts of a launch. The launcher may start each in a thread of its own, which nobody traces.
const PART: &str = ":";

/// The timeout for the ranks: a job may wait that long.
const PATIENCE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Runs the real launcher of that name with these arguments, and waits for its end. Each byte from `signals` is the
/// number of a signal for it.
///
/// # Errors
/// There is no such launcher, or it cannot be traced.
pub(crate) fn run(name: &OsStr, args: Vec<OsString>, mut signals: impl AsFd + Read) -> Result<ExitStatus> {
    let own = Machine.read_link(Path::new("/proc/self/exe")).ok();
    let is_ours = |dir: &Path| own.is_some() && dir.join(name).canonicalize().ok() == own;
    let search = split_path(&Machine.env("PATH").unwrap_or_default(), is_ours);
    let program = search.iter().map(|dir| dir.join(name)).find(|path| Machine.is_executable(path));
    let program = program.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("there is no '{}' in PATH", name.to_string_lossy()))
    })?;
    if args.iter().any(|arg| arg == PART) {
        return Err(run_unheld(name, program, &args, &search));
    }
    let mut driver = start(program, args, &search).map_err(|e| Error::io("cannot drive a launcher", &e))?;
    let (mut started, mut failed) = (false, None);
    loop {
        while let Some(event) = driver.take_event() {
            match event {
                Event::Started(_) => started = true,
                Event::Held { table, .. } => driver.order(match table.step.as_deref() {
                    Some(FIRST_STEP) => Order::Leave,
                    _ => Order::Release,
                }),
                // A launcher that ended without ranks is no failure of the hold; its exit status follows.
                Event::Failed(error) if started => failed = Some(error),
                Event::Failed(error) => return Err(Error::new(Kind::Invalid, error.to_string())),
                Event::Ended(status) => {
                    return match (failed, status) {
                        (Some(error), ExitStatus::Signal(_)) => {
                            Err(Error::new(Kind::Invalid, error.to_string()))
                        }
                        _ => Ok(status),
                    };
                }
            }
        }
        if let Some(signal) = next_signal(&driver, &mut signals)? {
            driver.order(Order::Signal(signal));
        }
    }
}

/// Becomes the real launcher. Returns only on failure.
fn run_unheld(name: &OsStr, program: PathBuf, args: &[OsString], search: &[PathBuf]) -> Error {
    let note = format!("gantry: the parts of '{} ... {PART} ...' are not held", name.display());
    drop(writeln!(io::stderr(), "{}", ForeignText::from(note.as_str())));
    let env = match build_env(search) {
        Ok(env) => env,
        Err(error) => return Error::io("cannot start a launcher", &error),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is started: this process replaces itself with another program"
    )]
    let mut command = Command::new(program);
    Error::io("cannot start a launcher", &command.args(args).env_clear().envs(env).exec())
}

/// Waits for news of the launcher, or for a signal.
fn next_signal(driver: &Driver, signals: &mut (impl AsFd + Read)) -> Result<Option<Signal>> {
    let mut both = [driver.as_fd(), signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut both, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(Error::io("cannot wait for a launcher", &error.into())),
    }
    if both[1].any() != Some(true) {
        return Ok(None);
    }
    let mut number = [0];
    signals.read_exact(&mut number).map_err(|e| Error::io("cannot pass on signals", &e))?;
    Ok(Signal::new(number[0].into()))
}

fn start(program: PathBuf, args: Vec<OsString>, search: &[PathBuf]) -> io::Result<Driver> {
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned();
    let (stdin, stdout, stderr): (OwnedFd, OwnedFd, OwnedFd) =
        (own(io::stdin().as_fd())?, own(io::stdout().as_fd())?, own(io::stderr().as_fd())?);
    Driver::start(LauncherCommand {
        argv: std::iter::once(program.into_os_string()).chain(args).collect(),
        env: build_env(search)?,
        cwd: Machine.current_dir()?,
        stdin,
        stdout,
        stderr,
        at_breakpoint: AtBreakpoint::Stay,
        breakpoints: Breakpoints::default(),
        deadline: PATIENCE,
    })
}

/// The launcher's environment. It and its ranks must not find this stand-in in PATH.
fn build_env(search: &[PathBuf]) -> io::Result<Vec<(OsString, OsString)>> {
    let mut env = Machine.environment();
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".into(), std::env::join_paths(search).map_err(io::Error::other)?));
    Ok(env)
}

/// The absolute directories of a PATH, without those that `is_ours`.
fn split_path(path: &OsStr, is_ours: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    folders(path).filter(|dir| !is_ours(dir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_directory_is_taken_out_of_the_path() {
        let found =
            split_path(OsStr::new("/ours::/bin:/ours:bin:/usr/bin:"), |dir| dir == Path::new("/ours"));
        assert_eq!(found, ["/bin", "/usr/bin"].map(PathBuf::from));
    }
}
