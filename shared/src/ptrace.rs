//! Tracing, waiting and signals with raw statuses: system calls that the standard library and `nix` lack, or do not offer
//! in the form that is needed here.
//!
//! `nix` turns a wait status into an enum and loses the status of a child that a real-time signal ended. All requests for a
//! tracee must come from the thread that seized it. Source: ptrace(2), wait(2), kill(2).
#![expect(unsafe_code, reason = "system calls that no safe crate wraps")]

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::io;
use std::ptr;

/// The general registers as the kernel gives them. Their length tells a 32-bit process from a 64-bit one.
#[derive(Debug, Clone, Copy)]
pub struct RegisterSet {
    /// The registers of a 64-bit process; two of a 32-bit process are in one word.
    pub words: [u64; 64],
    /// How many bytes of `words` the kernel has set.
    pub length_bytes: usize,
}

impl RegisterSet {
    /// What the kernel has set.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(self.length_bytes).collect()
    }
}

/// Becomes the tracer of a thread without stopping it. `options` are `PTRACE_O_*`.
///
/// # Errors
/// `EPERM` when it may not be traced, or has a tracer; `ESRCH` when it is gone. All requests here have the latter.
pub fn seize(pid: i32, options: c_int) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, options)
}

/// Stops a tracee that runs.
///
/// # Errors
/// As [`seize`].
pub fn interrupt(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Continues a stopped tracee. If it stopped to deliver a signal, delivers `signal` (0: none).
///
/// # Errors
/// As [`seize`].
pub fn go_on(pid: i32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, pid, signal)
}

/// Leaves a tracee in its group-stop, and still gets its end reported.
///
/// # Errors
/// As [`seize`].
pub fn listen(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, pid, 0)
}

/// Stops tracing a stopped tracee. `signal` is as in [`go_on`]. The kernel delivers its pending signals next.
///
/// # Errors
/// As [`seize`].
pub fn detach(pid: i32, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, signal)
}

/// A request that takes one number, and neither reads nor writes memory of this process.
fn request(what: c_uint, pid: i32, number: c_int) -> io::Result<()> {
    let data: *mut c_void = ptr::without_provenance_mut(number.cast_unsigned() as usize);
    // SAFETY: all requests made through here take a number as their last argument.
    check_long(unsafe { libc::ptrace(what, pid, ptr::null_mut::<c_void>(), data) })
}

/// The message of a tracee's event stop: the id of its new thread or process, or the process's id before `exec`.
///
/// # Errors
/// As [`seize`].
pub fn event_message(pid: i32) -> io::Result<i32> {
    let mut message: c_ulong = 0;
    let place = &raw mut message;
    // SAFETY: the request stores one long at its last argument, which is a valid place for one.
    check_long(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, ptr::null_mut::<c_void>(), place) })?;
    i32::try_from(message).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The general registers of a stopped tracee.
///
/// # Errors
/// As [`seize`].
pub fn registers(pid: i32) -> io::Result<RegisterSet> {
    let mut set = RegisterSet { words: [0; 64], length_bytes: 0 };
    let mut place = libc::iovec { iov_base: set.words.as_mut_ptr().cast(), iov_len: size_of_val(&set.words) };
    let kind: *mut c_void = ptr::without_provenance_mut(libc::NT_PRSTATUS.cast_unsigned() as usize);
    // SAFETY: `place` gives `words` and their length; the kernel writes no more than that and corrects the length.
    check_long(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, kind, &raw mut place) })?;
    set.length_bytes = place.iov_len;
    Ok(set)
}

/// Sends `signal` to one process. Signal 0 only checks whether a signal could be sent.
///
/// # Errors
/// `ESRCH` when there is no such process, `EPERM` when it belongs to another user, `EINVAL` for a pid that would mean a
/// group or all processes.
pub fn kill(pid: i32, signal: c_int) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes integers only; a positive pid means exactly one process.
    check(unsafe { libc::kill(pid, signal) })
}

/// Sends `signal` to every process of the group `leader`.
///
/// # Errors
/// As [`kill`]; `EINVAL` also for group 1 and below, which would mean init's group, our own, or all processes.
pub fn kill_group(leader: i32, signal: c_int) -> io::Result<()> {
    if leader <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes integers only; the group is a positive number above 1.
    check(unsafe { libc::kill(-leader, signal) })
}

/// `waitpid` for one pid: the raw status, or `None` when `WNOHANG` is set and there is no news.
///
/// # Errors
/// `ECHILD` when `pid` is neither our child nor traced by us.
pub fn wait(pid: i32, options: c_int) -> io::Result<Option<c_int>> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for one int while the call runs.
        match unsafe { libc::waitpid(pid, &raw mut status, options) } {
            0 => return Ok(None),
            -1 => retry_if_interrupted()?,
            _ => return Ok(Some(status)),
        }
    }
}

/// Blocks until `pid`, a child or tracee of any thread of this process, has stopped or ended. Leaves the status for
/// [`wait`] to collect: a process that has ended keeps its pid until then.
///
/// # Errors
/// `ECHILD` as in [`wait`].
pub fn wait_for_news(pid: i32) -> io::Result<()> {
    let id = libc::id_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a valid place for one siginfo_t while the call runs.
        match unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) } {
            -1 => retry_if_interrupted()?,
            _ => return Ok(()),
        }
    }
}

/// Returns the error of the last system call, unless a signal has interrupted it.
fn retry_if_interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// Converts the usual "-1 means look at errno".
fn check(result: c_int) -> io::Result<()> {
    check_long(result.into())
}

fn check_long(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
