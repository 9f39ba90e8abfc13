//! Pidfds: they identify a process even after its pid is reused (Linux 5.3), and report how a process that is not our
//! child ended (Linux 6.15).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{check, check_long};

/// The first version of the kernel's `struct pidfd_info` (include/uapi/linux/pidfd.h).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pids_and_ids: [u32; 11],
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)`, with the first version's size.
const PIDFD_GET_INFO: u32 = (3 << 30) | (64 << 16) | (0xFF << 8) | 11;
const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// Opens a close-on-exec pidfd.
///
/// # Errors
/// `ESRCH` when there is no such process, `ENOSYS` before Linux 5.3.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends `signal` to the process of the pidfd and to no other.
///
/// # Errors
/// `ESRCH` when it has ended, `EPERM` when it belongs to another user.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open while it is borrowed; a null siginfo is what kill(2) would fill in.
    check_long(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0) })
        .map(drop)
}

/// The wait status of the pidfd's process, which need not be our child. `None` while its parent has not collected it,
/// and on kernels that do not report it.
pub(crate) fn pidfd_exit_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    let place = &raw mut info;
    // SAFETY: the descriptor is open while it is borrowed; the request carries the size of `info`, and the
    // kernel writes no more than that.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, place) };
    check(answer).ok()?;
    (info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Waits until the process of the pidfd has ended; its parent may not have collected it yet.
///
/// # Errors
/// When the runtime cannot watch one more descriptor.
pub(crate) async fn pidfd_ended(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a `BorrowedFd` stays open, and the same, for longer than this registration lives.
    let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
    drop(watched.readable().await?);
    Ok(())
}
