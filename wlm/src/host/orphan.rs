//! Starts a helper that is nobody's child.
//!
//! The frontend library lives in somebody else's program, which may call `waitpid(-1)`, handle SIGCHLD, or ignore it. A helper that were
//! its child would show up there. So the helper is started as a grandchild, and the child between ends before this function returns.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use super::sys;

/// Starts `program` with `stdin` as its standard input, in a session of its own, with neither standard output nor error, in `/`, and with
/// every signal as it is by default.
/// Waits until the program is executed.
///
/// # Errors
/// The program cannot be executed, or no process can be made.
pub fn spawn_orphan<A: AsRef<OsStr>>(program: &Path, args: &[A], stdin: OwnedFd) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where the library starts a process")]
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::from(stdin)).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    sys::fork_once_more(&mut command);
    let mut middle = command.spawn()?;
    // The middle process has ended or is about to. A host program that waits for any child may have taken it already: that is fine.
    match middle.wait() {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_helper_is_not_our_child_and_has_its_own_session() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let script = "read -r _ _ _ ppid _ sid _ < /proc/self/stat; echo $$ $ppid $sid >&0";
        spawn_orphan(Path::new("/bin/sh"), &["-c", script], theirs.into()).unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        let numbers: Vec<u32> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 3, "{text}");
        assert_ne!(numbers[1], std::process::id());
        assert_eq!(numbers[0], numbers[2], "leader of its own session");
    }

    #[test]
    fn the_helper_ignores_no_signal_that_we_do() {
        // SIGWINCH is of no use to a test: ignoring it disturbs nobody.
        // SAFETY: sets no handler.
        #[expect(unsafe_code, reason = "a test of what is inherited")]
        unsafe {
            libc::signal(libc::SIGWINCH, libc::SIG_IGN)
        };
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        spawn_orphan(Path::new("/bin/sh"), &["-c", "grep SigIgn /proc/self/status >&0"], theirs.into())
            .unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text.split_whitespace().nth(1), Some("0000000000000000"), "{text}");
    }

    #[test]
    fn a_missing_program_is_an_error_here() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let error = spawn_orphan::<&str>(Path::new("/no/such/helper"), &[], theirs.into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
