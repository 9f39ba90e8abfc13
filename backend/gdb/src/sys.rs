//! The one system call that has no safe wrapper.
#![expect(
    unsafe_code,
    reason = "a fork copies one thread of all, which only its caller can know to be the only one"
)]

use std::io;

use nix::unistd::{ForkResult, fork};

/// Makes a second process, which does `work` and ends. To be called before there are threads.
///
/// # Errors
/// The system's.
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
