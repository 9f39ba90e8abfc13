//! Continues this program in a process that is not a child of this process.
//!
//! An agent starts on every node of a launch, beside a process of its own program. To load that once more took 0.6 ms
//! of the processor and 390,000 instructions (AMD EPYC, glibc 2.36).

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, setsid};

use super::sys;
use super::sys::grandchild::above_stdio;

/// Becomes two processes. Returns whether this is the second one, which no longer belongs to the first.
///
/// The second one has `stdin` as its standard input. It gets its own session, no standard output or error, the
/// directory `/`, and default, unblocked signals. `ps` shows `arg` as its only argument: tools that look for the first
/// one's arguments do not find it. It has copies of all of this process's memory and other descriptors.
///
/// Call it while there is one thread.
///
/// # Errors
/// No process can be created, or `stdin` cannot be moved. The caller is unchanged.
pub fn fork_orphan(arg: &OsStr, stdin: OwnedFd) -> io::Result<bool> {
    let nowhere = above_stdio(OpenOptions::new().write(true).open("/dev/null")?.into())?;
    let stdin = above_stdio(stdin)?;
    if let Some(middle) = sys::fork()? {
        return match waitpid(Pid::from_raw(middle), None) {
            // Where SIGCHLD is ignored, the kernel has reaped it.
            Ok(WaitStatus::Exited(_, 0)) | Err(Errno::ECHILD) => Ok(false),
            Ok(WaitStatus::Exited(_, errno)) => Err(io::Error::from_raw_os_error(errno)),
            // It was killed.
            Ok(_) => Err(io::ErrorKind::Interrupted.into()),
            Err(errno) => Err(errno.into()),
        };
    }
    match sys::fork() {
        Ok(None) => {}
        Ok(Some(_)) => sys::exit_at_once(0),
        Err(error) => sys::exit_at_once(error.raw_os_error().unwrap_or(libc::EAGAIN)),
    }
    sys::default_signals();
    sys::ignore_closed_pipes();
    // A process that has just been created leads no group. So this works.
    setsid().ok();
    sys::put_at(&stdin, 0);
    (1..3).for_each(|output| sys::put_at(&nowhere, output));
    // Every process may enter it.
    chdir("/").ok();
    // Without `/proc` it keeps the arguments.
    replace_arguments(arg).ok();
    Ok(true)
}

/// Overwrites this process's arguments after the first, which is the program's name.
fn replace_arguments(arg: &OsStr) -> io::Result<()> {
    let place = parse_arguments_range(&std::fs::read("/proc/self/stat")?);
    let place = place.ok_or(io::ErrorKind::InvalidData)?;
    let old = std::fs::read("/proc/self/cmdline")?;
    let name = old.iter().position(|byte| *byte == 0).map_or(old.len(), |end| end + 1);
    let room = usize::try_from(place.end - place.start).unwrap_or(0).saturating_sub(name);
    // The last byte stays 0. Otherwise the kernel shows the environment, too.
    let mut new: Vec<u8> = arg.as_bytes().iter().copied().take(room.saturating_sub(1)).collect();
    new.resize(room, 0);
    File::options().write(true).open("/proc/self/mem")?.write_all_at(&new, place.start + name as u64)
}

/// Where `/proc/PID/stat` says that the arguments are: its fields 48 and 49 (proc(5)).
fn parse_arguments_range(stat: &[u8]) -> Option<Range<u64>> {
    // The name in field 2 may contain any byte.
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace().skip(45);
    let mut address = || fields.next()?.parse().ok();
    let (start, end) = (address()?, address()?);
    (0 < start && start <= end).then_some(start..end)
}
