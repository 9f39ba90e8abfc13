//! Why a launcher's ranks could not be held or found, with the evidence.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;

use super::proctable::TableError;

/// Why a launcher's ranks could not be held or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpirError {
    /// The launcher cannot be executed.
    #[error("start the launcher {}", text(.program))]
    NotStarted {
        /// The program.
        program: OsString,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// No file of the launcher has the MPIR symbols.
    #[error("hold ranks through {}: no MPIR symbols in {}", command(.argv), list(.inspected))]
    NoSymbols {
        /// The launcher's command line.
        argv: Vec<OsString>,
        /// Executables and libraries that were looked at.
        inspected: Vec<PathBuf>,
    },
    /// The launcher ended before it had started its ranks.
    #[error("hold the ranks of {}: {}{}", command(.argv), ended(*.status, .inspected), said(.words))]
    Ended {
        /// The launcher's command line.
        argv: Vec<OsString>,
        /// How it ended.
        status: ExitStatus,
        /// The last that it wrote on standard error.
        words: String,
        /// Executables and libraries that were looked at and have no MPIR symbols; empty when they were found.
        inspected: Vec<PathBuf>,
    },
    /// The launcher has aborted, and reports so through MPIR.
    #[error("hold the ranks of {}: the launcher gave up: {}{}", command(.argv), .reason, said(.words))]
    Aborted {
        /// The launcher's command line.
        argv: Vec<OsString>,
        /// `MPIR_debug_abort_string`.
        reason: String,
        /// The last that it wrote on standard error.
        words: String,
    },
    /// The ranks were not started within the timeout. The launcher was ended.
    #[error("hold the ranks of {}: they were not started by the deadline{}", command(.argv), said(.words))]
    TimedOut {
        /// The launcher's command line.
        argv: Vec<OsString>,
        /// The last that it wrote on standard error.
        words: String,
    },
    /// The launcher was ended by order before its ranks were held.
    #[error("hold the ranks of {}: the launch was cancelled", command(.argv))]
    GivenUp {
        /// The launcher's command line.
        argv: Vec<OsString>,
    },
    /// The launcher's table is inconsistent.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The running process has no MPIR symbols.
    #[error("find the ranks of process {pid}: no MPIR symbols in {}", list(.inspected))]
    NotALauncher {
        /// The process.
        pid: Pid,
        /// Executables and libraries that were looked at.
        inspected: Vec<PathBuf>,
    },
    /// The process does not exist, or this user may not read it.
    #[error("inspect process {pid}: {step}")]
    Look {
        /// The process.
        pid: Pid,
        /// The attempted step.
        step: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The launcher cannot be controlled.
    #[error("control the launcher {}: {step}", command(.argv))]
    Trace {
        /// The launcher's command line.
        argv: Vec<OsString>,
        /// The attempted step.
        step: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl MpirError {
    /// The caller's remedy, as a kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotStarted { source, .. } | Self::Look { source, .. } => source.into(),
            Self::NoSymbols { .. } | Self::NotALauncher { .. } => Kind::Unsupported,
            Self::Ended { .. } | Self::Aborted { .. } | Self::Table(_) => Kind::LauncherFailed,
            Self::TimedOut { .. } => Kind::TimedOut,
            Self::GivenUp { .. } => Kind::Gone,
            Self::Trace { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Kind::NoAccess,
                _ => Kind::Unsupported,
            },
        }
    }

    /// The user's remedy.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        const OTHER_WAY: &str = "name the launcher itself, or write 'exec' before it in the script; else hold with --hold-method exec";
        match self {
            Self::NoSymbols { .. } => Some(OTHER_WAY),
            Self::Ended { inspected, .. } if !inspected.is_empty() => Some(OTHER_WAY),
            Self::NotALauncher { .. } => Some("name the launcher's own pid, or the pids of the ranks"),
            Self::Table(TableError::Empty | TableError::Missing { .. }) => {
                Some("the launcher may not have started its ranks yet; try again")
            }
            Self::Look { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(
                "only processes of your own can be looked into, and a kernel may restrict that further (kernel.yama.ptrace_scope)",
            ),
            Self::Trace { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("this system forbids ptrace; hold with --hold-method exec")
            }
            _ => None,
        }
    }
}

/// The form for the other side of a socket: the cause becomes part of the message.
impl From<&MpirError> for Failure {
    fn from(error: &MpirError) -> Self {
        let mut message = error.to_string();
        if let Some(cause) = std::error::Error::source(error) {
            // Writing to a string cannot fail.
            write!(message, ": {cause}").ok();
        }
        Self::new(error.kind(), message).with_hint_of(error.hint())
    }
}

fn text(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

/// A command line for people. A long one is cut at its end: the program matters more than its last argument.
fn command(argv: &[OsString]) -> String {
    const MOST_WORDS: usize = 12;
    let mut line = argv.iter().take(MOST_WORDS).map(text).collect::<Vec<_>>().join(" ");
    if argv.len() > MOST_WORDS {
        line.push_str(" ...");
    }
    format!("'{line}'")
}

fn list(files: &[PathBuf]) -> String {
    let count = files.len();
    match files {
        [] => "any file that could be read".to_owned(),
        [first] => first.display().to_string(),
        [first, .., last] if count > 4 => {
            format!("{} and {} more files, the last being {}", first.display(), count - 1, last.display())
        }
        _ => files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

/// How a launcher ended. Nothing is known of ranks where it has no symbols: a child of a script is not looked at.
fn ended(status: ExitStatus, inspected: &[PathBuf]) -> String {
    match inspected {
        [] => format!("the launcher ended before they were started, {status}"),
        _ => format!(
            "the launcher ended, {status}, and had no MPIR symbols: if it is a script, its child may have started ranks that were not held"
        ),
    }
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; its last output: {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: &MpirError, kind: Kind, text: &str, hint: Option<&str>) {
        let failure = Failure::from(error);
        assert_eq!((failure.kind(), failure.message()), (kind, text));
        assert_eq!(failure.hint().map(|hint| hint.split([',', ';']).next().unwrap()), hint);
    }

    fn argv() -> Vec<OsString> {
        ["mpiexec", "-n", "2", "./app"].map(OsString::from).to_vec()
    }

    #[test]
    fn errors_name_the_command_and_what_to_do() {
        let inspected = vec!["/usr/bin/mpiexec".into(), "/lib/libc.so".into()];
        let error = MpirError::NoSymbols { argv: argv(), inspected: inspected.clone() };
        let text =
            "hold ranks through 'mpiexec -n 2 ./app': no MPIR symbols in /usr/bin/mpiexec, /lib/libc.so";
        check(&error, Kind::Unsupported, text, Some("name the launcher itself"));
        let text = "hold the ranks of 'mpiexec -n 2 ./app': the launcher ended before they were started, exit code 1; its last output: no such option";
        let words = "no such option".to_owned();
        let status = ExitStatus::Code(1);
        let error = MpirError::Ended { argv: argv(), status, words: words.clone(), inspected: vec![] };
        check(&error, Kind::LauncherFailed, text, None);
        let error = MpirError::Ended { argv: argv(), status, words, inspected };
        let text = "hold the ranks of 'mpiexec -n 2 ./app': the launcher ended, exit code 1, and had no MPIR symbols: if it is a script, its child may have started ranks that were not held; its last output: no such option";
        check(&error, Kind::LauncherFailed, text, Some("name the launcher itself"));
        let text = "start the launcher mpiexec: No such file or directory (os error 2)";
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        check(&MpirError::NotStarted { program: "mpiexec".into(), source }, Kind::NotFound, text, None);
        let error = MpirError::Table(TableError::Empty);
        let text = "the launcher's table of ranks is empty";
        check(&error, Kind::LauncherFailed, text, Some("the launcher may not have started its ranks yet"));
    }

    #[test]
    fn long_lists_and_commands_are_cut() {
        let many: Vec<PathBuf> = (0..9).map(|number| format!("/lib/{number}.so").into()).collect();
        assert_eq!(list(&many), "/lib/0.so and 8 more files, the last being /lib/8.so");
        let argv: Vec<OsString> = (0..20).map(|number| number.to_string().into()).collect();
        assert_eq!(command(&argv), "'0 1 2 3 4 5 6 7 8 9 10 11 ...'");
    }
}
