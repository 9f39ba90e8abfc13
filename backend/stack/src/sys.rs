//! The few requests of ptrace that reading a stack needs. All must come from the thread that seized.
#![expect(unsafe_code, reason = "system calls without a safe wrapper that keeps every signal")]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

// musl and glibc disagree on the type of these, so they stand here as plain numbers of the kernel's interface.
const PTRACE_DETACH: c_int = 17;
const PTRACE_GETREGSET: c_int = 0x4204;
const PTRACE_SEIZE: c_int = 0x4206;
const PTRACE_INTERRUPT: c_int = 0x4207;
const NT_PRSTATUS: usize = 1;

/// The most registers that a machine has.
pub(crate) const MOST_REGISTERS: usize = 64;

/// Becomes the tracer of a thread without stopping it. The thread goes on if this process is killed.
pub(crate) fn seize(thread: i32) -> io::Result<()> {
    request(PTRACE_SEIZE, thread, 0, ptr::null_mut())
}

/// Asks a thread that is seized to stop.
pub(crate) fn interrupt(thread: i32) -> io::Result<()> {
    request(PTRACE_INTERRUPT, thread, 0, ptr::null_mut())
}

/// Lets go of a thread that is stopped, and delivers the signal that it was about to get (0: none).
pub(crate) fn detach(thread: i32, signal: i32) -> io::Result<()> {
    request(PTRACE_DETACH, thread, 0, ptr::without_provenance_mut(signal.cast_unsigned() as usize))
}

/// The general registers of a thread that is stopped, in the kernel's order, and how many bytes they are.
pub(crate) fn registers(thread: i32) -> io::Result<([u64; MOST_REGISTERS], usize)> {
    let mut set = [0_u64; MOST_REGISTERS];
    let mut place = libc::iovec { iov_base: set.as_mut_ptr().cast(), iov_len: size_of_val(&set) };
    request(PTRACE_GETREGSET, thread, NT_PRSTATUS, (&raw mut place).cast())?;
    Ok((set, place.iov_len))
}

/// What a seized thread has come to, if it has: a status as `waitpid(2)` gives it.
pub(crate) fn poll_status(thread: i32) -> io::Result<Option<c_int>> {
    let mut status = 0;
    // SAFETY: `status` is a live integer, which is all that is written.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match waited {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(status)),
    }
}

fn request(what: c_int, thread: i32, address: usize, data: *mut c_void) -> io::Result<()> {
    // SAFETY: called by number, as the C prototype differs between libraries. `data` is an integer for every request but GETREGSET, where it
    // points to an iovec whose buffer and length outlive the call. No request used here writes anywhere else.
    match unsafe { libc::syscall(libc::SYS_ptrace, what, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
