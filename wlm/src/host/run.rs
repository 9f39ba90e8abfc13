//! Runs a small program of this machine and returns its output.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Runs `program` with empty standard input. Returns its exit status and its standard output. The program is a child of
/// this process, so a library may call this only if its host program expects that. Kills the program at the timeout.
///
/// # Errors
/// The program cannot be executed, or has not ended within the timeout (`TimedOut`).
pub fn run<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    timeout: Duration,
) -> io::Result<(ExitStatus, Vec<u8>)> {
    #[expect(clippy::disallowed_methods, reason = "the Host interface starts foreign processes here")]
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    super::restore_open_files(&mut command);
    tracing::debug!(?command, "running");
    let mut child = command.spawn()?;
    let (sender, printed) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let read = stdout.read_to_end(&mut text).map(|_| text);
            // The receiver is gone after the timeout.
            drop(sender.send(read));
        });
    }
    match printed.recv_timeout(timeout) {
        Ok(text) => Ok((child.wait()?, text?)),
        Err(_) => {
            child.kill()?;
            child.wait()?;
            Err(io::Error::new(io::ErrorKind::TimedOut, "did not end in time"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn output_and_exit_status_of_a_program() {
        let (status, text) = run(Path::new("/bin/sh"), &["-c", "echo a; exit 3"], SOON).unwrap();
        assert_eq!((status.code(), text.as_slice()), (Some(3), &b"a\n"[..]));
    }

    #[test]
    fn a_missing_and_a_slow_program() {
        let error = run::<&str>(Path::new("/no/such"), &[], SOON).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = run(Path::new("/bin/sleep"), &["60"], Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
