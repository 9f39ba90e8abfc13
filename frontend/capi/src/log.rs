//! Logs, if a tool requests them: `dbglog_HOST.PID.log` in its log directory, the reference's name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_shared::per_process::PerProcess;
use gantry_types::foreign::LineWriter;
use gantry_wlm::Host;
use gantry_wlm::host::Machine;
use tracing_subscriber::fmt::MakeWriter;

use crate::attribute_values::Attributes;
use crate::table::lock;

/// The open log file, and its name.
static FILE: PerProcess<Mutex<Option<(PathBuf, File)>>> = PerProcess::new();

/// How many names of a log others may have taken.
const MOST_PLANTED: u32 = 9;

/// Logging is installed, in this process or in the one that it was forked from.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The current destination of the log's lines.
#[derive(Debug, Clone, Copy)]
struct Current;

impl Write for Current {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match lock(FILE.get()).as_mut() {
            // A log may be printed on a terminal, and contains text of nodes.
            Some((_, file)) => LineWriter(file).write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Current {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

/// Sets the log's destination from the attributes, or ends the log. An unusable log is ignored: no call fails because
/// of it.
pub(crate) fn follow(attributes: &Attributes) {
    let path = attributes
        .log_dir()
        .map(|dir| dir.join(format!("dbglog_{}.{}.log", Machine.hostname(), std::process::id())));
    let mut current = lock(FILE.get());
    if current.as_ref().map(|(path, _)| path) == path.as_ref() {
        return;
    }
    let opened = path.and_then(|path| Some((path.clone(), open_unplanted(&path).ok()?)));
    let moved = opened.as_ref().filter(|(asked, (is, _))| asked != is).map(|(asked, _)| asked.clone());
    *current = opened.map(|(asked, (_, file))| (asked, file));
    let is_on = current.is_some();
    drop(current);
    if is_on && !BEGUN.swap(true, Ordering::Relaxed) {
        let log = tracing_subscriber::fmt().with_writer(Current).with_ansi(false);
        // The library has its own `tracing`, so no foreign subscriber can be installed.
        log.with_max_level(tracing::Level::DEBUG).try_init().unwrap_or_default();
    }
    if let Some(asked) = moved {
        tracing::warn!("this log is not at {}: another user's file is there", asked.display());
    }
}

/// Opens a log that only this user can read, and returns its path. The directory may be shared. A foreign file under
/// the log's name is left alone; then the log has a number in its name.
fn open_unplanted(path: &Path) -> io::Result<(PathBuf, File)> {
    let numbered = (1..=MOST_PLANTED).map(|number| path.with_extension(format!("{number}.log")));
    let mut last = None;
    for path in std::iter::once(path.to_owned()).chain(numbered) {
        match open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// Opens a file of this user under that name only: it is no link, no FIFO, and has no second name.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = options.create(true).append(true).mode(0o600).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    match about.is_file() && about.uid() == Machine.uid() && about.nlink() == 1 {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user, or is not a regular file",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_log_is_never_written_through_a_planted_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (log, other) = (at("dbglog_h.example.7.log"), at("precious"));
        std::fs::write(&other, "mine").unwrap();
        let opened = || open_unplanted(&log).unwrap().0;
        // A link, dangling or not; a second name of another file; a special file.
        symlink(&other, &log).unwrap();
        assert_eq!(opened(), at("dbglog_h.example.7.1.log"));
        std::fs::remove_file(&log).unwrap();
        std::fs::hard_link(&other, &log).unwrap();
        assert_eq!(opened(), at("dbglog_h.example.7.1.log"));
        std::fs::remove_file(&log).unwrap();
        let listener = UnixListener::bind(&log).unwrap();
        assert_eq!(opened(), at("dbglog_h.example.7.1.log"));
        std::fs::remove_file(&log).unwrap();
        drop(listener);
        if Machine.uid() == 0 {
            std::fs::write(&log, "").unwrap();
            std::os::unix::fs::chown(&log, Some(65533), None).unwrap();
            assert_eq!(opened(), at("dbglog_h.example.7.1.log"));
            std::fs::remove_file(&log).unwrap();
        }
        assert_eq!(opened(), log);
        // A log of this user's own is written on.
        assert_eq!(opened(), log);
        assert_eq!(std::fs::read_to_string(other).unwrap(), "mine");
        for number in 1..=MOST_PLANTED {
            drop(std::fs::remove_file(log.with_extension(format!("{number}.log"))));
            std::fs::create_dir(log.with_extension(format!("{number}.log"))).unwrap();
        }
        std::fs::remove_file(&log).unwrap();
        std::fs::create_dir(&log).unwrap();
        assert!(open_unplanted(&log).is_err());
    }

    /// Opening it for writing would wait for a reader, without the non-blocking flag.
    #[test]
    fn a_fifo_under_a_logs_name_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("dbglog_h.8.log");
        #[expect(clippy::disallowed_methods, reason = "a test makes a FIFO")]
        let made = std::process::Command::new("mkfifo").arg(&log).status().unwrap();
        assert!(made.success());
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&log);
        assert_eq!(open_unplanted(&log).unwrap().0, folder.path().join("dbglog_h.8.1.log"));
        drop(reader);
        assert_eq!(open_unplanted(&log).unwrap().0, folder.path().join("dbglog_h.8.1.log"));
    }
}
