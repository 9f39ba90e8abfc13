//! The one system call that has no safe wrapper.
#![expect(
    unsafe_code,
    reason = "a fork copies only one thread, and only its caller knows that there is no other"
)]

use std::io;

use nix::unistd::{ForkResult, fork};

/// Makes a second process, which runs `work` and ends. Call it before there are threads.
///
/// # Errors
/// The system's error.
pub(crate) fn fork_off(work: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the caller has no other thread, whose locks nobody would open in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(()),
        ForkResult::Child => {
            work();
            // SAFETY: nothing of the parent is to be flushed or dropped a second time, and _exit does neither.
            unsafe { nix::libc::_exit(0) }
        }
    }
}
