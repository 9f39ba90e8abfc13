//! Why ranks did not start. Causes that need different actions by the reader are separate variants.

use std::io;
use std::path::PathBuf;

use gantry_types::error::Kind;

use super::ExitStatus;
use super::refusal::PtraceFacts;
use super::sys::Stage;

/// Why one rank did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StartError {
    /// The program is not there.
    #[error("start {program:?}: there is no such file")]
    ProgramMissing { program: PathBuf },
    /// The program exists, but its interpreter (`#!` or ELF loader) does not.
    #[error("start {program:?}: its interpreter {interpreter:?} is not there")]
    InterpreterMissing { program: PathBuf, interpreter: PathBuf },
    /// No permission to execute.
    #[error("start {program:?}: {path:?} is not executable for this user")]
    NotExecutable { program: PathBuf, path: PathBuf },
    /// Not a file.
    #[error("start {program:?}: {path:?} is a directory")]
    Directory { program: PathBuf, path: PathBuf },
    /// Neither a file nor a directory.
    #[error("start {program:?}: {path:?} is not a regular file")]
    NotRegular { program: PathBuf, path: PathBuf },
    /// Its file system is mounted noexec.
    #[error("start {program:?}: {path:?} is on a file system mounted noexec")]
    NoexecMount { program: PathBuf, path: PathBuf },
    /// The user may not enter a directory on the path.
    #[error("start {program:?}: directory {directory:?} may not be entered by this user")]
    NoSearch { program: PathBuf, directory: PathBuf },
    /// An ELF file for another processor.
    #[error("start {program:?}: {path:?} is built for {built_for}, this node is {node}")]
    WrongArchitecture { program: PathBuf, path: PathBuf, built_for: String, node: &'static str },
    /// Not an executable file.
    #[error("start {program:?}: {path:?} is {what}")]
    WrongFormat { program: PathBuf, path: PathBuf, what: &'static str },
    /// A process has it open for writing.
    #[error("start {program:?}: it is open for writing (ETXTBSY)")]
    Busy { program: PathBuf },
    /// `E2BIG`.
    #[error("start {program:?}: arguments and environment are longer than the system allows")]
    TooLong { program: PathBuf },
    /// Any other error of `execve`.
    #[error("start {program:?}")]
    Exec { program: PathBuf, source: io::Error },
    /// The working directory could not be entered.
    #[error("change to directory {directory:?}")]
    ChangeDirectory { directory: PathBuf, source: io::Error },
    /// The child could not be prepared.
    #[error("prepare a new process ({stage:?})")]
    Prepare { stage: Stage, source: io::Error },
    /// `fork` failed, or a pipe for it.
    #[error("make a new process")]
    Fork { source: io::Error },
    /// It did not become held.
    #[error("hold {program:?}")]
    Hold { program: PathBuf, source: HoldFailure },
    /// `/proc` could not be read for the new process.
    #[error("inspect the new process {program:?}")]
    Look { program: PathBuf, source: io::Error },
    /// The rank executed no program that matches the pattern.
    #[error("hold {pattern:?}: the rank ended and was {} before", if .became.is_empty() { "no other program".to_owned() } else { became.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ") })]
    NoneFits { pattern: String, became: Vec<PathBuf> },
    /// The start was cancelled.
    #[error("start {program:?}: the start was cancelled")]
    GivenUp { program: PathBuf },
}

/// Why a rank could not be brought to its first instruction.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldFailure {
    /// ptrace is forbidden here.
    #[error("{why}")]
    Refused { why: String, hint: Option<&'static str>, source: io::Error },
    /// A ptrace request or a wait failed unexpectedly.
    #[error("{step}")]
    Call { step: &'static str, source: io::Error },
    /// It ended.
    #[error("it ended before its first instruction ({0})")]
    Ended(ExitStatus),
    /// After `execve` it did not stand at the program's entry.
    #[error("it stopped at {counter:#x}, not at its entry {entry:#x}")]
    NotAtEntry { counter: u64, entry: u64 },
    /// It is not stopped, or a process traces it.
    #[error("it is in state {state:?} with tracer {tracer}, not stopped and untraced")]
    NotStopped { state: char, tracer: i32 },
}

impl HoldFailure {
    /// The failure of a call.
    pub(super) fn of(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Call { step, source }
    }

    /// The failure to seize a process with these facts.
    pub(super) fn of_seize(source: io::Error, facts: PtraceFacts) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EIO) => {
                let (why, hint) = facts.explain();
                Self::Refused { why, hint, source }
            }
            _ => Self::Call { step: "trace it", source },
        }
    }
}

impl StartError {
    /// Whether ptrace is forbidden.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Hold { source: HoldFailure::Refused { .. }, .. })
    }

    /// The error kind for the caller.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::ProgramMissing { .. } | Self::InterpreterMissing { .. } => Kind::NotFound,
            Self::NotExecutable { .. }
            | Self::NoexecMount { .. }
            | Self::NoSearch { .. }
            | Self::Busy { .. } => Kind::NoAccess,
            Self::Directory { .. }
            | Self::NotRegular { .. }
            | Self::WrongFormat { .. }
            | Self::NoneFits { .. }
            | Self::TooLong { .. } => Kind::Invalid,
            Self::WrongArchitecture { .. } => Kind::Unsupported,
            Self::Exec { source, .. }
            | Self::ChangeDirectory { source, .. }
            | Self::Prepare { source, .. }
            | Self::Fork { source }
            | Self::Hold { source: HoldFailure::Call { source, .. }, .. }
            | Self::Look { source, .. } => kind_of(source),
            Self::Hold { source: HoldFailure::Ended(_), .. } => Kind::LauncherFailed,
            Self::Hold { .. } => Kind::Unsupported,
            Self::GivenUp { .. } => Kind::TimedOut,
        }
    }

    /// A hint on what to do, if there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoneFits { .. } => {
                "give a pattern that fits the path of the program itself, such as '*/app'"
            }
            Self::ProgramMissing { .. } => "give the path of a program that every node has",
            Self::Directory { .. } => "give the path of a program in it",
            Self::NotRegular { .. } => "give the path of a program",
            Self::NoSearch { .. } => "make every directory on the path searchable (chmod +x)",
            Self::ChangeDirectory { .. } => "name a directory that every node has and that you may enter",
            Self::InterpreterMissing { interpreter, .. } => {
                if interpreter.as_os_str().as_encoded_bytes().ends_with(b"\r") {
                    "the script has DOS line ends: convert it (sed -i 's/\\r$//')"
                } else {
                    "install the interpreter on this node, or stage the program with its loader"
                }
            }
            Self::NotExecutable { path, .. } => return Some(format!("chmod +x {}", path.display())),
            Self::NoexecMount { .. } => "put the program on a file system that is mounted without noexec",
            Self::WrongArchitecture { .. } => "use a build of the program for this node",
            Self::WrongFormat { .. } => "a script needs a first line like #!/bin/sh",
            Self::Busy { .. } => "wait until the program has been written",
            Self::TooLong { .. } => "shorten the arguments or the environment",
            Self::Hold { source: HoldFailure::Refused { hint: Some(hint), .. }, .. } => hint,
            Self::Fork { .. } => "check the limits of processes and open files (ulimit -u, ulimit -n)",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn kind_of(error: &io::Error) -> Kind {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ESRCH) => Kind::NotFound,
        Some(libc::EACCES | libc::EPERM) => Kind::NoAccess,
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Kind::System,
        Some(libc::EINVAL | libc::ELOOP | libc::ENAMETOOLONG) => Kind::Invalid,
        _ => Kind::Unsupported,
    }
}
