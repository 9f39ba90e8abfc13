//! Launching.

use std::ffi::{OsStr, c_char, c_int};
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

use gantry_frontend::request::parse_words;
use gantry_frontend::{Input, LaunchRequest, OutputTo};
use gantry_shared::storage::CTI_LAUNCHER_WRAPPER;
use gantry_shared_capi::{Fault, deadline, enter, text};
use gantry_types::error::Kind;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use crate::process::{fault, process};

/// The standard input of rank 0.
pub(crate) enum Reads<'a> {
    File(Option<&'a OsStr>),
    Fd(c_int),
}

/// The arguments of all four functions.
pub(crate) struct Asked<'a> {
    argv: Vec<&'a OsStr>,
    stdout: c_int,
    stderr: c_int,
    stdin: Reads<'a>,
    cwd: Option<&'a OsStr>,
    env: Vec<&'a OsStr>,
    hold: bool,
}

impl<'a> Asked<'a> {
    /// # Safety
    /// Lists and strings are null or as `text` wants them.
    pub(crate) unsafe fn read(
        argv: *const *const c_char,
        (stdout, stderr): (c_int, c_int),
        stdin: Reads<'a>,
        cwd: *const c_char,
        env: *const *const c_char,
        hold: bool,
    ) -> Result<Self, Fault> {
        if argv.is_null() {
            return Err(Fault::invalid("the launcher's arguments are NULL"));
        }
        // SAFETY: guaranteed by the caller.
        let argv = unsafe { text::list(argv) }?;
        // SAFETY: guaranteed by the caller.
        let env = unsafe { text::list(env) }?;
        // SAFETY: guaranteed by the caller.
        let cwd = unsafe { text::optional(cwd) };
        Ok(Self { argv, stdout, stderr, stdin, cwd, env, hold })
    }

    fn launch(self) -> Result<i64, Fault> {
        self.launch_as(|request| request)
    }

    /// Launches the request after `more` has changed it.
    pub(crate) fn launch_as(self, more: impl FnOnce(LaunchRequest) -> LaunchRequest) -> Result<i64, Fault> {
        let mut request = more(LaunchRequest::new(self.argv).hold(self.hold));
        if let Some(wrapper) = Machine.env(CTI_LAUNCHER_WRAPPER) {
            request = request.launcher_wrapper(parse_words(&wrapper).map_err(|error| fault(&error))?);
        }
        for string in self.env {
            request = request.env_string(string).map_err(|error| fault(&error))?;
        }
        if let Some(cwd) = self.cwd {
            request = request.cwd(existing_dir(cwd)?);
        }
        let stdin = match self.stdin {
            Reads::File(None) | Reads::Fd(..0) => Input::Null,
            Reads::File(Some(path)) => Input::File(path.into()),
            Reads::Fd(fd) => Input::Fd(duplicate(fd)?),
        };
        let output = OutputTo::Fds { stdout: output_to(self.stdout, 1)?, stderr: output_to(self.stderr, 2)? };
        let mut request = request.stdin(stdin).output(output);
        if let Some(timeout) = deadline::of_queues() {
            request = request.queue_timeout(timeout);
        }
        let process = process();
        let (frontend, deadline) = (process.frontend(), deadline::of_launches());
        let app = process.try_wait(async move { frontend.launch(request, deadline).await })?;
        Ok(process.add_app(app))
    }
}

fn existing_dir(path: &OsStr) -> Result<PathBuf, Fault> {
    let path = PathBuf::from(path);
    match path.is_dir() {
        true => Ok(path),
        false => Err(Fault::new(
            Kind::NotFound,
            format!("'{}' is not a directory on this machine", path.display()),
        )),
    }
}

/// A duplicate of C's descriptor.
fn duplicate(fd: c_int) -> Result<OwnedFd, Fault> {
    // SAFETY: any number is allowed.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Fault::invalid(format!("descriptor {fd} cannot be used: {error}")));
    }
    // SAFETY: returned by the call above, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// The destination of output: `fd`, or without it this process's own descriptor. If that is closed, output is
/// discarded.
fn output_to(fd: c_int, own: c_int) -> Result<OwnedFd, Fault> {
    match fd {
        0.. => duplicate(fd),
        _ => duplicate(own).or_else(|_| {
            let null = File::options().write(true).open("/dev/null");
            null.map(OwnedFd::from).map_err(|e| Fault::invalid(format!("cannot open /dev/null: {e}")))
        }),
    }
}

/// Launches.
///
/// # Safety
/// Strings and lists of strings are null or valid as in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_launchApp(
    launcher_argv: *const *const c_char,
    stdout_fd: c_int,
    stderr_fd: c_int,
    input_file: *const c_char,
    chdir_path: *const c_char,
    env_list: *const *const c_char,
) -> i64 {
    enter("cti_launchApp", 0, || {
        // SAFETY: guaranteed by the caller.
        let stdin = Reads::File(unsafe { text::optional(input_file) });
        let to = (stdout_fd, stderr_fd);
        // SAFETY: guaranteed by the caller.
        unsafe { Asked::read(launcher_argv, to, stdin, chdir_path, env_list, false) }?.launch()
    })
}

/// Launches, with a descriptor to read from.
///
/// # Safety
/// As [`cti_launchApp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_launchApp_fd(
    launcher_argv: *const *const c_char,
    stdout_fd: c_int,
    stderr_fd: c_int,
    stdin_fd: c_int,
    chdir_path: *const c_char,
    env_list: *const *const c_char,
) -> i64 {
    enter("cti_launchApp_fd", 0, || {
        let to = (stdout_fd, stderr_fd);
        // SAFETY: guaranteed by the caller.
        unsafe { Asked::read(launcher_argv, to, Reads::Fd(stdin_fd), chdir_path, env_list, false) }?.launch()
    })
}

/// Launches held.
///
/// # Safety
/// As [`cti_launchApp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_launchAppBarrier(
    launcher_argv: *const *const c_char,
    stdout_fd: c_int,
    stderr_fd: c_int,
    input_file: *const c_char,
    chdir_path: *const c_char,
    env_list: *const *const c_char,
) -> i64 {
    enter("cti_launchAppBarrier", 0, || {
        // SAFETY: guaranteed by the caller.
        let stdin = Reads::File(unsafe { text::optional(input_file) });
        let to = (stdout_fd, stderr_fd);
        // SAFETY: guaranteed by the caller.
        unsafe { Asked::read(launcher_argv, to, stdin, chdir_path, env_list, true) }?.launch()
    })
}

/// Launches held, with a descriptor to read from.
///
/// # Safety
/// As [`cti_launchApp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_launchAppBarrier_fd(
    launcher_argv: *const *const c_char,
    stdout_fd: c_int,
    stderr_fd: c_int,
    stdin_fd: c_int,
    chdir_path: *const c_char,
    env_list: *const *const c_char,
) -> i64 {
    enter("cti_launchAppBarrier_fd", 0, || {
        let to = (stdout_fd, stderr_fd);
        // SAFETY: guaranteed by the caller.
        unsafe { Asked::read(launcher_argv, to, Reads::Fd(stdin_fd), chdir_path, env_list, true) }?.launch()
    })
}
