//! System calls without a wrapper in the available crates: pidfds, and controlling terminals.
//!
//! A pidfd refers to one process for ever, while a pid may be reused. So waiting and killing use pidfds.
#![expect(unsafe_code, reason = "pidfds and ioctls of terminals have no safe wrapper in nix or std")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::Winsize;
use nix::sys::signal::Signal;

/// One process, even if its pid is reused.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens the process that has this pid now.
    ///
    /// # Errors
    /// `ESRCH` when there is none.
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and no pointer; a bad pid is an error code.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
        // SAFETY: the call above has just returned this descriptor, so it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits until the process has ended (it may still be a zombie) or the timeout expires. Returns whether it has
    /// ended.
    #[must_use]
    pub fn wait_end(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(1..) => return true,
                Ok(_) if left.is_zero() => return false,
                // A rounded-down time or a signal: look again.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// `ESRCH` when it is gone, `EPERM` when it is another user's.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open while self lives; a null siginfo is allowed and means the same as kill(2).
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as i32, no_info, 0)
        };
        Errno::result(sent)?;
        Ok(())
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(process: Pidfd) -> Self {
        process.0
    }
}

/// Has the kernel forget children of this process as they end, which is inherited over exec.
///
/// # Errors
/// As signal(2).
pub fn ignore_children() -> io::Result<()> {
    // SAFETY: sets no handler.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Forks a child that has all descriptors of this process. It waits until it is killed.
///
/// # Errors
/// As fork(2).
pub fn fork_idle() -> io::Result<i32> {
    // SAFETY: the child makes no call but pause, which is async-signal-safe.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        loop {
            // SAFETY: pause has no argument and accesses no memory.
            unsafe { libc::pause() };
        }
    }
    Ok(Errno::result(pid)?)
}

/// Makes a program start its own session, as daemons do for foreign programs.
pub(crate) fn in_session_of_its_own(command: &mut Command) -> Command {
    let mut command = std::mem::replace(command, Command::new("/nonexistent"));
    // SAFETY: setsid takes and touches no memory, and is async-signal-safe.
    unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
    command
}

/// This process without standard input, output and error. Dropping it brings them back.
#[derive(Debug)]
pub struct ClosedStdio([OwnedFd; 3]);

impl ClosedStdio {
    /// Closes them.
    ///
    /// # Panics
    /// When they are closed already.
    #[must_use]
    pub fn new() -> Self {
        let keep = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
        let kept = [keep(io::stdin().as_fd()), keep(io::stdout().as_fd()), keep(io::stderr().as_fd())];
        for fd in 0..3 {
            // SAFETY: takes an integer. Concurrent writers to the standard descriptors get an error, as the test
            // intends.
            unsafe { libc::close(fd) };
        }
        Self(kept)
    }
}

impl Default for ClosedStdio {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ClosedStdio {
    fn drop(&mut self) {
        for (fd, kept) in (0..).zip(&self.0) {
            // SAFETY: takes integers; files that got these numbers meanwhile are closed, which the test allows for.
            unsafe { libc::dup2(kept.as_raw_fd(), fd) };
        }
    }
}

nix::ioctl_write_int_bad!(
    /// See ioctl_tty(2).
    tiocsctty,
    libc::TIOCSCTTY
);

nix::ioctl_write_ptr_bad!(
    /// See ioctl_tty(2).
    tiocswinsz,
    libc::TIOCSWINSZ,
    Winsize
);

/// Makes the command start a session, with its standard input as the controlling terminal.
pub(crate) fn lead_session(command: &mut Command) {
    let lead = || {
        nix::unistd::setsid()?;
        // SAFETY: descriptor 0 is open in the child; the call takes no pointer.
        unsafe { tiocsctty(0, 0) }?;
        Ok(())
    };
    // SAFETY: between fork and exec only two system calls are made, which are async-signal-safe.
    unsafe { command.pre_exec(lead) };
}

/// Sets a terminal's size. The kernel notifies its foreground programs by SIGWINCH.
pub(crate) fn set_window_size(terminal: BorrowedFd<'_>, size: &Winsize) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads one winsize, and `size` refers to one.
    unsafe { tiocswinsz(terminal.as_raw_fd(), &raw const *size) }?;
    Ok(())
}

/// A lease of a file: whoever opens it waits until this is dropped, or for the system's 45 seconds.
#[derive(Debug)]
pub struct Lease(#[expect(dead_code, reason = "it is held, not used")] File);

impl Lease {
    /// Takes a lease of a file that nobody has open.
    ///
    /// # Errors
    /// It is open somewhere, or its file system has no leases.
    pub fn take(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the descriptor is open, and this command takes an integer.
        let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        Errno::result(taken)?;
        // Without an owner nobody gets the signal that somebody waits: it would end this process.
        // SAFETY: as above.
        let no_owner = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETOWN, 0) };
        Errno::result(no_owner)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::*;
    use crate::programs::{self, Link};
    use crate::{World, proc};

    /// Holds a program as the design requires, without any code under test, and checks it with the function under test.
    fn check_held(program: &std::path::Path) {
        let world = World::new();
        let mut command = world.command(program);
        // SAFETY: between fork and exec only one system call is made, which is async-signal-safe.
        unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Stopped(pid, Signal::SIGTRAP)));
        assert!(proc::why_not_held(pid.as_raw()).unwrap().contains("state t, not T"));
        ptrace::detach(pid, Signal::SIGSTOP).unwrap();
        proc::eventually(Duration::from_secs(5), "the program is stopped", || {
            proc::state(pid.as_raw()) == Some('T')
        });
        assert_eq!(proc::why_not_held(pid.as_raw()), None);
        Pidfd::open(pid.as_raw()).unwrap().signal(Signal::SIGKILL).unwrap();
        assert!(!child.wait().unwrap().success());
        world.finish();
    }

    #[test]
    fn a_program_at_its_first_instruction_is_held_however_it_is_linked() {
        for link in Link::ALL {
            check_held(&crate::require!(programs::get_as("loop_forever", link)));
        }
    }

    #[test]
    fn a_program_stopped_later_is_not_held() {
        let world = World::new();
        let mut run = world.start(&programs::get("loop_forever"), [""; 0]);
        assert_eq!(run.next_line(Duration::from_secs(5)), "looping");
        run.signal(Signal::SIGSTOP);
        proc::eventually(Duration::from_secs(5), "it is stopped", || proc::state(run.pid()) == Some('T'));
        assert!(proc::why_not_held(run.pid()).unwrap().contains("its entry is"));
        drop(run);
        world.finish();
    }
}
