//! The ptrace requests that holding needs. All must come from the thread that seized.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use super::check_long;

// musl and glibc disagree on the type of these, so they are plain numbers of the kernel's interface here.
const PTRACE_CONT: c_int = 7;
const PTRACE_DETACH: c_int = 17;
const PTRACE_GETEVENTMSG: c_int = 0x4201;
const PTRACE_GETREGSET: c_int = 0x4204;
const PTRACE_SEIZE: c_int = 0x4206;
const PTRACE_INTERRUPT: c_int = 0x4207;
const PTRACE_LISTEN: c_int = 0x4208;
const NT_PRSTATUS: usize = 1;

/// The general registers as the kernel gives them: the length tells a 32-bit process from a 64-bit one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisterSet {
    bytes: [u8; 512],
    length: usize,
}

impl RegisterSet {
    /// What the kernel wrote.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Becomes the tracer of `pid` without stopping it. The tracee reports its `exec`, and dies if this thread does.
pub(crate) fn trace_seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    request(PTRACE_SEIZE, pid, 0, ptr::without_provenance_mut(options.cast_unsigned() as usize))
}

/// As [`trace_seize`], and also for every thread and process that descends from it.
pub(crate) fn trace_seize_all(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE;
    request(PTRACE_SEIZE, pid, 0, ptr::without_provenance_mut(options.cast_unsigned() as usize))
}

/// The message of a tracee's event stop: the id of its new thread, or the process's id before `exec`.
pub(crate) fn trace_event(pid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    request(PTRACE_GETEVENTMSG, pid, 0, (&raw mut message).cast())?;
    i32::try_from(message).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Stops a tracee that runs.
pub(crate) fn trace_interrupt(pid: i32) -> io::Result<()> {
    request(PTRACE_INTERRUPT, pid, 0, ptr::null_mut())
}

/// Continues a stopped tracee. If it stopped to deliver a signal, delivers `signal` (0: none).
pub(crate) fn trace_continue(pid: i32, signal: i32) -> io::Result<()> {
    request(PTRACE_CONT, pid, 0, ptr::without_provenance_mut(signal.cast_unsigned() as usize))
}

/// Leaves a tracee in its group-stop, and still gets its end reported.
pub(crate) fn trace_listen(pid: i32) -> io::Result<()> {
    request(PTRACE_LISTEN, pid, 0, ptr::null_mut())
}

/// Stops tracing a stopped tracee. `signal` is as in [`trace_continue`]. The kernel delivers its pending signals next.
pub(crate) fn trace_detach(pid: i32, signal: i32) -> io::Result<()> {
    request(PTRACE_DETACH, pid, 0, ptr::without_provenance_mut(signal.cast_unsigned() as usize))
}

/// The general registers of a stopped tracee.
pub(crate) fn trace_registers(pid: i32) -> io::Result<RegisterSet> {
    let mut set = RegisterSet { bytes: [0; 512], length: 0 };
    let mut place = libc::iovec { iov_base: set.bytes.as_mut_ptr().cast(), iov_len: set.bytes.len() };
    request(PTRACE_GETREGSET, pid, NT_PRSTATUS, (&raw mut place).cast())?;
    set.length = place.iov_len;
    Ok(set)
}

fn request(what: c_int, pid: i32, address: usize, data: *mut c_void) -> io::Result<()> {
    // SAFETY: called by number, as the C prototype differs between libraries. `data` is an integer for every
    // request but GETREGSET, where it points to an iovec whose buffer and length outlive the call, and GETEVENTMSG,
    // where it points to an unsigned long that does. No request used here writes anywhere else.
    check_long(unsafe { libc::syscall(libc::SYS_ptrace, what, pid, address, data) }).map(drop)
}
