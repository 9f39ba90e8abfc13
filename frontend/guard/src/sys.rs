//! Set-up of a launcher between fork and exec, and ownership of received descriptors.
#![expect(unsafe_code, reason = "system calls between fork and exec")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Takes ownership of a descriptor that has just come over a socket.
pub(crate) fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just created this descriptor for this process, so it has no other owner.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Makes `command` get SIGTERM when this process ends, with no signal blocked. SIGKILL would be too early: the
/// launcher must tell its WLM that its job is over. The keeper above this process kills a launcher that does not end.
pub(crate) fn end_with_us(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: the closure makes async-signal-safe system calls only, as it must between fork and exec.
    unsafe { command.pre_exec(move || follow(parent)) };
}

fn follow(parent: u32) -> io::Result<()> {
    // The guard receives its signals by a descriptor and so blocks them. Its children must not inherit that.
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it is filled by the call, which cannot fail with a valid address.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: filled above; the old set is not asked for.
    if unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: PR_SET_PDEATHSIG takes a signal's number and touches no memory of ours.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // This process may have ended before the call.
    // SAFETY: getppid has no preconditions.
    let now = unsafe { libc::getppid() };
    if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
