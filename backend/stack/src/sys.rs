//! The ptrace requests for reading a stack. All must come from the seizing thread.
#![expect(unsafe_code, reason = "system calls without a safe wrapper that keeps every signal")]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

// musl and glibc give these different types, so they are plain numbers of the kernel's interface here.
const PTRACE_DETACH: c_int = 17;
const PTRACE_GETREGSET: c_int = 0x4204;
const PTRACE_SEIZE: c_int = 0x4206;
const PTRACE_INTERRUPT: c_int = 0x4207;
const NT_PRSTATUS: usize = 1;

/// The most registers of any supported machine.
pub(crate) const MOST_REGISTERS: usize = 64;

/// Traces a thread without stopping it. The thread continues if this process is killed.
pub(crate) fn seize(thread: i32) -> io::Result<()> {
    request(PTRACE_SEIZE, thread, 0, ptr::null_mut())
}

/// Asks a seized thread to stop.
pub(crate) fn interrupt(thread: i32) -> io::Result<()> {
    request(PTRACE_INTERRUPT, thread, 0, ptr::null_mut())
}

/// Detaches from a stopped thread, and delivers its interrupted signal (0: none).
pub(crate) fn detach(thread: i32, signal: i32) -> io::Result<()> {
    request(PTRACE_DETACH, thread, 0, ptr::without_provenance_mut(signal.cast_unsigned() as usize))
}

/// The general registers of a stopped thread, in the kernel's order, and their size in bytes.
pub(crate) fn registers(thread: i32) -> io::Result<([u64; MOST_REGISTERS], usize)> {
    let mut set = [0_u64; MOST_REGISTERS];
    let mut place = libc::iovec { iov_base: set.as_mut_ptr().cast(), iov_len: size_of_val(&set) };
    request(PTRACE_GETREGSET, thread, NT_PRSTATUS, (&raw mut place).cast())?;
    Ok((set, place.iov_len))
}

/// The status of a seized thread, if it has changed, as in `waitpid(2)`.
pub(crate) fn poll_status(thread: i32) -> io::Result<Option<c_int>> {
    let mut status = 0;
    // SAFETY: `status` is a live integer, and the call writes nothing else.
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
