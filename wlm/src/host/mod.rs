//! The only access to the machine. Parsers, plans and detection see the machine only through [`Host`], so tests can
//! pass in a recorded one.

#[cfg(test)]
pub(crate) mod fake;
mod fork;
mod keeper;
mod limited;
mod machine;
mod open_files;
mod orphan;
mod own;
mod run;
mod sys;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use fork::fork_orphan;
pub use keeper::{GANTRY_KEPT, keep};
pub use limited::Limited;
pub use machine::Machine;
pub use open_files::{explain_open_files, raise_open_files, restore_open_files, spawn_with_given_limit};
pub use orphan::{Asked, Orphan, spawn_orphan, spawn_orphan_with};
pub(crate) use own::{check_process, is_own_process};
pub use run::run;

/// A descriptor that becomes readable when the process `pid` ends. Linux 5.3 and later.
///
/// # Errors
/// There is no such process, or the kernel is older.
pub fn open_pidfd(pid: gantry_types::id::Pid) -> io::Result<std::os::fd::OwnedFd> {
    sys::pidfd_open(pid.get())
}

/// Sends a signal to the process of a pidfd, and to no other. An ended process is not an error.
///
/// # Errors
/// The process belongs to another user.
pub fn signal_process(process: &impl std::os::fd::AsFd, signal: libc::c_int) -> io::Result<()> {
    sys::signal_process(process, signal)
}

/// Closes every descriptor but the standard ones. A foreign program may have started this one and leaked its
/// descriptors. Call this first in `main`, before any file is opened.
///
/// # Errors
/// The kernel is older than 5.9 and `/proc` cannot be read. No descriptor was closed.
pub fn close_inherited_descriptors() -> io::Result<()> {
    sys::close_from(3)
}

/// A version of a file. Two equal versions mean the same file with the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Its device and inode.
    pub(crate) file: (u64, u64),
    /// The times of the last change of its content and of its attributes, in seconds and nanoseconds.
    pub(crate) changed: [(i64, i64); 2],
    /// Its length.
    pub(crate) bytes: u64,
}

/// Whether a line of a program's output is what it was asked for.
pub type IsAnswer = fn(&str) -> bool;

/// A small program that is run for its output.
#[derive(Debug)]
pub struct Question<'a> {
    /// The directory to run in.
    pub dir: &'a Path,
    /// The executable and its arguments.
    pub command: &'a [OsString],
    /// Its standard input.
    pub input: &'a [u8],
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// If it says all that matters in one line: which one.
    pub is_answer: Option<IsAnswer>,
    /// When to kill it.
    pub timeout: Duration,
}

/// The operations on a machine. [`Machine`] is the real one.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// The environment of this process, as it is now.
    fn environment(&self) -> Vec<(OsString, OsString)>;

    /// This machine's name, as `uname -n` prints it.
    fn hostname(&self) -> String;

    /// The current directory of this process.
    ///
    /// # Errors
    /// It has been removed or may not be read.
    fn current_dir(&self) -> io::Result<PathBuf>;

    /// The effective user id of this process.
    fn uid(&self) -> u32;

    /// A file's content. Files of `/proc` are read completely.
    ///
    /// # Errors
    /// The system's error.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The system's error.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The names in a directory, unsorted.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Whether `path` is a file that this process may execute.
    fn is_executable(&self, path: &Path) -> bool {
        self.read(path).is_ok()
    }

    /// A version that changes with the file. `None`: unknown. Follows links.
    fn file_version(&self, _path: &Path) -> Option<FileVersion> {
        None
    }

    /// This machine, for a question on another thread.
    fn share(&self) -> Arc<dyn Host>;

    /// The output of a program. Waits for its end, or until the timeout.
    ///
    /// # Errors
    /// It cannot be executed, or exceeds the timeout (`TimedOut`).
    fn run(&self, question: Question<'_>) -> io::Result<Asked>;

    /// The output of the program `command`, run in `/`.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask(&self, command: &[OsString], timeout: Duration) -> io::Result<Asked> {
        self.ask_in(Path::new("/"), command, timeout)
    }

    /// As [`Host::ask`], of a program that runs in the directory `dir`.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask_in(&self, dir: &Path, command: &[OsString], timeout: Duration) -> io::Result<Asked> {
        self.ask_in_with(dir, command, &[], timeout)
    }

    /// As [`Host::ask_in`], with additional environment variables. The last one of a name counts.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask_in_with(
        &self,
        dir: &Path,
        command: &[OsString],
        env: &[(OsString, OsString)],
        timeout: Duration,
    ) -> io::Result<Asked> {
        let env = [self.environment(), env.to_vec()].concat();
        self.run(Question { dir, command, input: &[], env, is_answer: None, timeout })
    }

    /// As [`Host::ask`], of a program with this environment and no other variable.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask_as(
        &self,
        command: &[OsString],
        env: Vec<(OsString, OsString)>,
        timeout: Duration,
    ) -> io::Result<Asked> {
        self.run(Question { dir: Path::new("/"), command, input: &[], env, is_answer: None, timeout })
    }

    /// As [`Host::ask_in_with`], of a program that says all that matters in the first line for which `is_answer` holds.
    /// If it stays for long after that, it is killed.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask_for_line(
        &self,
        dir: &Path,
        command: &[OsString],
        env: &[(OsString, OsString)],
        is_answer: IsAnswer,
        timeout: Duration,
    ) -> io::Result<Asked> {
        let env = [self.environment(), env.to_vec()].concat();
        self.run(Question { dir, command, input: &[], env, is_answer: Some(is_answer), timeout })
    }

    /// As [`Host::ask_in`], with a small standard input for the program: a script.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn ask_with(
        &self,
        dir: &Path,
        command: &[OsString],
        input: &[u8],
        timeout: Duration,
    ) -> io::Result<Asked> {
        self.run(Question { dir, command, input, env: self.environment(), is_answer: None, timeout })
    }

    /// The file of a program's name, from the absolute directories in the PATH of this process.
    fn find_in_path(&self, name: &str) -> Option<PathBuf> {
        let path = self.env("PATH")?;
        gantry_shared::search::folders(&path)
            .map(|folder| folder.join(name))
            .find(|candidate| self.is_executable(candidate))
    }

    /// A variable of the environment. An empty one counts as unset.
    fn env(&self, name: &str) -> Option<OsString> {
        self.environment().into_iter().find(|(n, v)| n == OsStr::new(name) && !v.is_empty()).map(|(_, v)| v)
    }
}
