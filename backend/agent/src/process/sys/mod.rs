//! System calls that the standard library and `nix` lack, or do not offer in the form that is needed here.
//!
//! Those for tracing and waiting are in [`gantry_shared::ptrace`]. All other `unsafe` of the process layer is in this folder.
#![expect(unsafe_code, reason = "system calls that no safe crate wraps")]

mod child;
mod exec;
mod pidfd;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(crate) use child::{Child, FAILURE_LENGTH, SERVED, Stage, Wait, decode_failure, fork, spawn};
pub(crate) use exec::{environment, exec};
use gantry_shared::ptrace;
pub(crate) use gantry_shared::ptrace::{
    RegisterSet, detach as trace_detach, event_message as trace_event, go_on as trace_continue,
    interrupt as trace_interrupt, kill, kill_group, listen as trace_listen, registers as trace_registers,
    wait, wait_for_news,
};
pub(crate) use pidfd::{pidfd_ended, pidfd_exit_status, pidfd_open, pidfd_send_signal};

/// Becomes the tracer of `pid` without stopping it. The tracee reports its `exec`, and dies if this thread does.
pub(crate) fn trace_seize(pid: i32) -> io::Result<()> {
    ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)
}

/// As [`trace_seize`], and also for every thread and process that descends from it.
pub(crate) fn trace_seize_all(pid: i32) -> io::Result<()> {
    let descendants = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL | descendants)
}

/// Blocks until a tracee of this thread, or a child of it, has stopped or ended. Leaves the status for [`wait`] to
/// collect. For threads whose only children are their tracees.
///
/// With `WNOHANG` in `more` it does not block: 0 means that there is no news.
///
/// # Errors
/// `ECHILD` when there is none.
pub(crate) fn wait_for_any(more: i32) -> io::Result<i32> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD | more;
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a valid place for one siginfo_t while the call runs.
        match check(unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) }) {
            Ok(_) => {
                // SAFETY: all bytes were zero before the call, which is a valid value of this type.
                let info = unsafe { info.assume_init() };
                // SAFETY: after a successful waitid the field for children is the one that is set.
                return Ok(unsafe { info.si_pid() });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A child of this process that has ended and was not collected. This does not collect it.
pub(crate) fn peek_ended_child() -> Option<i32> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a valid place for one siginfo_t while the call runs.
    check(unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) }).ok()?;
    // SAFETY: all bytes were zero before the call, which is a valid value of this type.
    let info = unsafe { info.assume_init() };
    // SAFETY: after a successful waitid the field for children is the one that is set, or all is zero as before.
    let pid = unsafe { info.si_pid() };
    (pid != 0).then_some(pid)
}

/// Lets `tracer` trace this process where only ancestors may (Yama).
///
/// # Errors
/// `EINVAL` where there is no such rule, or no such process.
pub(crate) fn allow_tracer(tracer: i32) -> io::Result<()> {
    let tracer = libc::c_ulong::try_from(tracer).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: PR_SET_PTRACER takes a pid and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer, 0, 0, 0) }).map(drop)
}

/// The same open file as a descriptor above `last`, close-on-exec.
///
/// # Errors
/// `EMFILE` at the limit of open files.
pub(crate) fn duplicate_above(last: RawFd, fd: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only; the descriptor is open as long as it is borrowed.
    let new = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last + 1) })?;
    // SAFETY: the call above has opened it, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Converts the usual "-1 means look at errno".
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls made by number, which return a long.
fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
