//! This machine, for a caller that may give up.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::orphan::{Running, ask};
use super::{Asked, FileVersion, Host, Machine, Question};

/// This machine, for a caller that may give up. The programs that it runs are killed at the caller's deadline, and when
/// the caller gives up. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Limited(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    deadline: Option<Instant>,
    running: Running,
    /// The command that did not end before the deadline.
    late: Mutex<Option<Vec<OsString>>>,
    given_up: watch::Sender<bool>,
}

impl Limited {
    /// For a caller with this deadline.
    pub fn new(deadline: Option<Instant>) -> Self {
        let (late, given_up) = (Mutex::default(), watch::Sender::default());
        Self(Arc::new(Limits { deadline, running: Running::default(), late, given_up }))
    }

    /// Kills the programs that run, and runs no other one.
    pub fn give_up(&self) {
        self.0.given_up.send_replace(true);
        self.0.running.end();
    }

    /// Waits until the caller gives up.
    pub async fn given_up(&self) {
        // The sender is ours.
        drop(self.0.given_up.subscribe().wait_for(|given_up| *given_up).await);
    }

    /// The command line that did not end before the deadline, if there is one.
    pub fn late(&self) -> Option<String> {
        let late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.as_ref().map(|command| command.join(OsStr::new(" ")).to_string_lossy().into_owned())
    }
}

impl Host for Limited {
    fn environment(&self) -> Vec<(OsString, OsString)> {
        Machine.environment()
    }

    fn env(&self, name: &str) -> Option<OsString> {
        Machine.env(name)
    }

    fn hostname(&self) -> String {
        Machine.hostname()
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Machine.current_dir()
    }

    fn uid(&self) -> u32 {
        Machine.uid()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Machine.read(path)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        Machine.read_link(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        Machine.list(directory)
    }

    fn is_executable(&self, path: &Path) -> bool {
        Machine.is_executable(path)
    }

    fn file_version(&self, path: &Path) -> Option<FileVersion> {
        Machine.file_version(path)
    }

    fn share(&self) -> Arc<dyn Host> {
        Arc::new(self.clone())
    }

    fn run(&self, question: Question<'_>) -> io::Result<Asked> {
        let left = self.0.deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        let command = question.command;
        let cut = left < question.timeout;
        let timeout = question.timeout.min(left);
        let said = match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => ask(Question { timeout, ..question }, &self.0.running),
        };
        if cut && said.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            let mut late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.get_or_insert_with(|| command.to_vec());
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn sh(script: &str) -> [OsString; 3] {
        ["/bin/sh", "-c", script].map(OsString::from)
    }

    /// A script whose processes hold the other end of the pipe, and then write a byte to it.
    fn hanging() -> (io::PipeReader, io::PipeWriter, [OsString; 3]) {
        let (ours, theirs) = io::pipe().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), theirs.as_raw_fd());
        (ours, theirs, sh(&format!("exec 3>{path}; echo said; sleep 1000 3>&3 & echo >&3; sleep 1000")))
    }

    #[test]
    fn a_program_is_killed_when_its_caller_gives_up_and_what_it_has_said_is_no_answer() {
        let (mut ours, theirs, command) = hanging();
        let host = Limited::new(None);
        let asking = host.clone();
        let asked = std::thread::spawn(move || asking.ask(&command, LONG));
        ours.read_exact(&mut [0]).unwrap();
        host.give_up();
        assert_eq!(asked.join().unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "both processes have ended");
        assert!(host.ask(&sh("echo no"), LONG).is_err(), "no other program runs");
        assert_eq!(host.late(), None);
    }

    #[test]
    fn a_program_that_does_not_end_before_the_callers_deadline_is_killed_and_named() {
        let (mut ours, theirs, command) = hanging();
        let host = Limited::new(Some(Instant::now() + Duration::from_millis(300)));
        assert_eq!(host.ask(&sh("echo 1"), LONG).unwrap().stdout, "1\n");
        let own = host.ask(&sh("sleep 1000"), Duration::from_millis(20)).unwrap_err();
        assert_eq!((own.kind(), host.late()), (io::ErrorKind::TimedOut, None), "its own timeout");
        let error = host.ask(&command, LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        ours.read_to_end(&mut Vec::new()).unwrap();
        assert!(host.late().unwrap().starts_with("/bin/sh -c exec 3>"));
    }
}
