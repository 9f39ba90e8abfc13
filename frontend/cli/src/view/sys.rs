//! The one system call of the view that has no safe wrapper.
#![expect(unsafe_code, reason = "TIOCGWINSZ is an ioctl: nix makes an unsafe function of it")]

use std::os::fd::{AsFd, AsRawFd};

nix::ioctl_read_bad!(
    /// See ioctl_tty(2).
    tiocgwinsz,
    libc::TIOCGWINSZ,
    libc::winsize
);

/// Columns and rows of a terminal. None: it is not a terminal, or does not know its size.
pub(crate) fn window_size(terminal: impl AsFd) -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes one winsize, which is there and ours.
    unsafe { tiocgwinsz(terminal.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
}
