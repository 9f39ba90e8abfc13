//! Starts one new process: its specification, and its fork.
//!
//! The child of a batch waits at the batch's gate. A process that is started alone executes its program at once.
//!
//! A child prepares itself and then reads one byte from the gate before it executes its program. So all children of a
//! batch exist, and are traced if they are to be held, before the first of them goes on. A child reports a failure as
//! (stage, errno) on a pipe that a successful `execve` closes.

use std::ffi::{CString, OsStr};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sched::CpuSet;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::batch::Batch;
use super::cores::start_on;
use super::diagnose::explain_exec;
use super::error::StartError;
use super::sys::{self, Stage};

/// How many open files the table has room for from the start. Each rank has seven in its agent. The table takes eight
/// bytes a file.
const ROOM_FOR_FILES: RawFd = 4096;

/// A process to be started.
#[derive(Debug)]
pub(crate) struct ProcessSpec {
    /// The program's path, already looked up. Relative to `cwd` if it is relative.
    pub(crate) program: CString,
    /// All arguments, with the name of the program first.
    pub(crate) argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Its working directory; ours, if `None`.
    pub(crate) cwd: Option<CString>,
    /// Its standard input.
    pub(crate) stdin: OwnedFd,
    /// Its standard output.
    pub(crate) stdout: OwnedFd,
    /// Its standard error.
    pub(crate) stderr: OwnedFd,
    /// Its descriptor [`SERVED`](sys::SERVED).
    pub(crate) served: Option<OwnedFd>,
    /// Whether it dies (SIGKILL) when the forking thread ends. The kernel forgets this when a set-user-id program is
    /// executed, and the process's own children do not inherit it.
    pub(crate) die_with_parent: bool,
    /// Soft and hard limit of open files for it; ours, if `None`.
    pub(crate) nofile: Option<(u64, u64)>,
    /// The processors that it may use; ours, if `None`.
    pub(crate) cores: Option<CpuSet>,
}

impl ProcessSpec {
    /// Moves its descriptors above 0, 1 and 2.
    fn lift_stdio(mut self) -> Result<Self, StartError> {
        self.stdin = above_stdio(self.stdin)?;
        self.stdout = above_stdio(self.stdout)?;
        self.stderr = above_stdio(self.stderr)?;
        self.served = self.served.map(above_stdio).transpose()?;
        Ok(self)
    }

    fn as_child(&self) -> sys::Child<'_> {
        sys::Child {
            program: &self.program,
            argv: &self.argv,
            env: &self.env,
            cwd: self.cwd.as_deref(),
            stdio: [&self.stdin, &self.stdout, &self.stderr].map(AsRawFd::as_raw_fd),
            served: self.served.as_ref().map(AsRawFd::as_raw_fd),
            die_with_parent: self.die_with_parent,
            nofile: self.nofile,
        }
    }
}

/// Holds the children of one batch back until it is opened. If it is dropped closed, or this process dies, they end.
#[derive(Debug)]
pub(super) struct Gate {
    reader: PipeReader,
    keeper: PipeWriter,
}

impl Gate {
    pub(super) fn new() -> Result<Self, StartError> {
        let (reader, keeper) = pipe()?;
        Ok(Self { reader, keeper })
    }

    /// Lets `count` children through.
    pub(super) fn open(mut self, count: usize) -> Result<(), StartError> {
        let prepare = |source| StartError::Prepare { stage: Stage::Gate, source };
        self.keeper.write_all(&vec![1; count]).map_err(prepare)
    }
}

/// A child that has not executed its program yet.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) pid: i32,
    pub(super) program: PathBuf,
    cwd: Option<PathBuf>,
    report: PipeReader,
}

/// Starts a child and returns its pid once it has executed its program. `batch` knows the pid from the child's first
/// moment.
pub(super) fn spawn(spec: ProcessSpec, batch: &Batch) -> Result<i32, StartError> {
    let spec = spec.lift_stdio()?;
    let child = spec.as_child();
    let spawned = batch.starting(|pid| start_on(spec.cores.as_ref(), || sys::spawn(&child, pid)));
    match spawned.map_err(|source| StartError::Fork { source })? {
        (pid, None) => Ok(pid),
        (_, Some((stage, errno))) => {
            let cwd = spec.cwd.as_ref().map(path);
            Err(explain(&path(&spec.program), cwd.as_deref(), stage, errno))
        }
    }
}

/// Why a child has not executed its program.
fn explain(program: &Path, cwd: Option<&Path>, stage: Stage, errno: i32) -> StartError {
    let source = io::Error::from_raw_os_error(errno);
    match stage {
        Stage::Exec => explain_exec(program, cwd, errno),
        Stage::Directory => {
            StartError::ChangeDirectory { directory: cwd.unwrap_or(Path::new("")).to_owned(), source }
        }
        stage => StartError::Prepare { stage, source },
    }
}

impl Forked {
    /// Forks a child that waits at `gate`.
    pub(super) fn fork(spec: ProcessSpec, gate: &Gate) -> Result<Self, StartError> {
        let (report, reporter) = pipe()?;
        let spec = spec.lift_stdio()?;
        let child = spec.as_child();
        let wait = sys::Wait {
            report: reporter.as_raw_fd(),
            gate: gate.reader.as_raw_fd(),
            gate_keeper: gate.keeper.as_raw_fd(),
        };
        let forked = start_on(spec.cores.as_ref(), || sys::fork(&child, wait));
        let pid = forked.map_err(|source| StartError::Fork { source })?;
        Ok(Self { pid, program: path(&spec.program), cwd: spec.cwd.as_ref().map(path), report })
    }

    /// Waits until the child has executed its program or is dead. Returns the failure if the child reported one.
    ///
    /// # Errors
    /// The failure that the child reported.
    pub(super) fn wait_for_exec(&mut self) -> Result<(), StartError> {
        let mut failure = [0; sys::FAILURE_LENGTH];
        match self.report.read_exact(&mut failure) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(source) => return Err(StartError::Look { program: self.program.clone(), source }),
            Ok(()) => {}
        }
        Err(match sys::decode_failure(failure) {
            Some((stage, errno)) => explain(&self.program, self.cwd.as_deref(), stage, errno),
            None => StartError::Look {
                program: self.program.clone(),
                source: io::Error::new(io::ErrorKind::InvalidData, "the child reported nonsense"),
            },
        })
    }
}

/// Raises our own soft limit of open files to the hard one.
///
/// Returns (soft, hard) as they were before the first call, for [`ProcessSpec::nofile`]: programs that use `select`
/// must not inherit a limit above 1024.
///
/// # Errors
/// The kernel's error.
pub(crate) fn raise_open_files() -> io::Result<(u64, u64)> {
    static BEFORE: OnceLock<(u64, u64)> = OnceLock::new();
    let now = getrlimit(Resource::RLIMIT_NOFILE)?;
    let (soft, hard) = *BEFORE.get_or_init(|| now);
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok((soft, hard))
}

/// Makes room for [`ROOM_FOR_FILES`] open files in the kernel's table of this process.
///
/// Call this before the first thread starts. Then the table grows at once. With more threads each growth waits for an
/// RCU grace period of about 10 ms: at file 64, 128, 256 and so on (Linux: fs/file.c, `expand_fdtable`). The table never
/// shrinks.
pub(crate) fn make_room_for_open_files() {
    let grow = || {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        // The last number that the limit allows is `soft - 1`.
        let below = RawFd::try_from(soft.saturating_sub(2)).unwrap_or(RawFd::MAX).min(ROOM_FOR_FILES - 2);
        let (reader, _writer) = io::pipe()?;
        sys::duplicate_above(below, &reader.into())
    };
    grow().ok();
}

/// A close-on-exec pipe whose ends are above the numbers that a child replaces.
fn pipe() -> Result<(PipeReader, PipeWriter), StartError> {
    let fork = |source| StartError::Fork { source };
    let (reader, writer) = io::pipe().map_err(fork)?;
    Ok((above(sys::SERVED, reader.into())?.into(), above(sys::SERVED, writer.into())?.into()))
}

/// Moves a descriptor above 0, 1 and 2, even if the agent was started with one of them closed.
fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, StartError> {
    above(2, fd)
}

fn above(last: RawFd, fd: OwnedFd) -> Result<OwnedFd, StartError> {
    if fd.as_raw_fd() > last {
        return Ok(fd);
    }
    sys::duplicate_above(last, &fd).map_err(|source| StartError::Fork { source })
}

/// The text as a path.
pub(super) fn path(text: &CString) -> PathBuf {
    Path::new(OsStr::from_bytes(text.as_bytes())).to_path_buf()
}
