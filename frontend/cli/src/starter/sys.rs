//! A descriptor that this process inherited.
#![expect(unsafe_code, reason = "its number is all that is known of it")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Duplicates the inherited descriptor `raw`, and sets close-on-exec on both.
///
/// # Errors
/// It is not open.
pub(super) fn inherited(raw: RawFd) -> io::Result<OwnedFd> {
    if raw <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: fcntl takes any number, and says when it is no open descriptor.
    if unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as the call above has shown; this process has opened nothing with that number, and so does not close it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
    borrowed.try_clone_to_owned()
}
