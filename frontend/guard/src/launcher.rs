//! Starts a launcher, with the descriptors that came for it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use gantry_types::error::{Failure, Kind};
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, restore_open_files};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use crate::sys;
use gantry_guard::protocol::{MAX_DESCRIPTORS, StartLauncher};

/// Reads available bytes, and the descriptors that come with them.
///
/// # Errors
/// As `recvmsg(2)`.
pub(crate) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut slices = [IoSliceMut::new(bytes)];
    let received =
        recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            descriptors.extend(raw.into_iter().map(sys::own));
        }
    }
    Ok(received.bytes)
}

/// Starts a launcher with the descriptors that came for it, and returns the pipes to drain later.
///
/// # Errors
/// It cannot be executed, or its descriptors have not come.
pub(crate) fn start(
    order: &StartLauncher,
    descriptors: &mut VecDeque<OwnedFd>,
) -> Result<(Child, Vec<File>), Failure> {
    let protocol = |why: &str| Failure::new(Kind::Protocol, format!("start a launcher: {why}"));
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (descriptors.pop_front(), descriptors.pop_front(), descriptors.pop_front())
    else {
        return Err(protocol("its descriptors did not arrive"));
    };
    let rest = descriptors.drain(..).map(File::from).collect();
    let Some((program, args)) = order.argv.split_first() else { return Err(protocol("it has no name")) };
    #[expect(
        clippy::disallowed_methods,
        reason = "the guard is the one place that starts long-lived processes"
    )]
    let mut command = Command::new(find(program));
    command.arg0(program).args(args).env_clear().envs(order.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&order.cwd).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    restore_open_files(&mut command);
    sys::end_with_us(&mut command);
    let child = command.spawn().map_err(|error| explain(order, &error))?;
    Ok((child, rest))
}

/// The path of a program, which may be a bare name. A missing program keeps its name, for the error.
fn find(program: &OsStr) -> PathBuf {
    let name = program.to_str().filter(|name| !name.contains('/'));
    name.and_then(|name| Machine.find_in_path(name)).unwrap_or_else(|| PathBuf::from(program))
}

fn explain(order: &StartLauncher, error: &io::Error) -> Failure {
    let program = order.argv.first().map(|program| program.display().to_string()).unwrap_or_default();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "see that the launcher is installed and in PATH, and that the directory is there"
        }
        io::ErrorKind::PermissionDenied => "see that the launcher may be executed",
        _ => "try the same command by hand",
    };
    Failure::new(
        error.into(),
        format!("cannot start the launcher {program} in {}: {error}", order.cwd.display()),
    )
    .with_hint(hint)
}

/// Discards the content of a pipe. False: the pipe has ended.
pub(crate) fn drain(pipe: &mut File) -> bool {
    let mut bytes = [0; 64 * 1024];
    !matches!(pipe.read(&mut bytes), Ok(0))
}
