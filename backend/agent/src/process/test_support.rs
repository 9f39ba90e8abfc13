//! Real processes for the tests, and the check that nothing is left of them.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::ptrace;

use super::batch::Batch;
use super::hold::{Hold, StartFailure, StartedRank, start_alone, start_ranks};
use super::pauses::Pauses;
use super::signal::{self, HeldRank};
use super::spawn::ProcessSpec;
use super::{ExitStatus, Pinned, parse_end, procfs, sys};

/// Tests that start processes run one at a time. A child of another test would keep a newly written program open (ETXTBSY), and
/// would look like a leak.
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held, not read")] MutexGuard<'static, ()>);

pub(crate) fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    Turn(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Turn {
    /// Clears up after a failed test, so that the next ones do not fail too.
    fn drop(&mut self) {
        for pid in procfs::descendants(std::process::id().cast_signed()).unwrap_or_default() {
            drop(sys::kill(pid, libc::SIGKILL));
            drop(sys::wait(pid, libc::__WALL));
        }
    }
}

pub(super) fn text(value: impl AsRef<Path>) -> CString {
    use std::os::unix::ffi::OsStrExt;
    CString::new(value.as_ref().as_os_str().as_bytes()).unwrap()
}

/// A spec for `program` with stdio on `/dev/null`.
pub(super) fn spec(program: impl AsRef<Path>, arguments: &[&str]) -> ProcessSpec {
    let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let program = text(program);
    ProcessSpec {
        argv: [program.clone()].into_iter().chain(arguments.iter().map(text)).collect(),
        program,
        env: vec![c"PATH=/usr/bin:/bin".to_owned(), c"GREETING=hello".to_owned()],
        cwd: None,
        stdin: null(),
        stdout: null(),
        stderr: null(),
        served: None,
        die_with_parent: true,
        nofile: None,
        cores: None,
    }
}

/// A shell that runs `script`.
pub(super) fn shell(script: &str) -> ProcessSpec {
    spec("/bin/sh", &["-c", script])
}

pub(super) fn start(specs: Vec<ProcessSpec>, hold: Hold) -> Result<Vec<StartedRank>, StartFailure> {
    start_ranks(specs, hold, &Batch::default())
}

pub(super) fn start_one(spec: ProcessSpec) -> Result<i32, StartFailure> {
    start_alone(spec, &Batch::default())
}

pub(super) fn hold_one(spec: ProcessSpec) -> StartedRank {
    start(vec![spec], Hold::AtEntry).unwrap().remove(0)
}

/// Blocks until a child ends.
pub(super) fn wait_end(pid: i32) -> ExitStatus {
    parse_end(sys::wait(pid, 0).unwrap().unwrap()).unwrap()
}

pub(super) fn release(process: Pinned) -> signal::Released {
    signal::release(&[HeldRank { process, own: true }], false).unwrap().remove(0).unwrap()
}

pub(super) fn release_and_wait(rank: &StartedRank) -> ExitStatus {
    assert_eq!(release(rank.process), signal::Released::Continued);
    wait_end(rank.process.pid)
}

pub(super) fn kill_and_wait(rank: &StartedRank) {
    assert!(signal::send(rank.process, libc::SIGKILL).unwrap());
    assert_eq!(wait_end(rank.process.pid), ExitStatus::Signal(gantry_types::signal::Signal::KILL));
}

/// A process that even SIGKILL does not end, like one whose file server is gone: its tracer stops it at its exit.
/// Dropping this lets it end.
pub(super) struct Undying(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Undying {
    pub(super) fn of(pid: i32) -> Self {
        const AT_MOST: Duration = Duration::from_secs(60);
        let (traced, is_traced) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let tracer = std::thread::spawn(move || {
            ptrace::seize(nix::unistd::Pid::from_raw(pid), ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
            traced.send(()).unwrap();
            // The end of this thread lets go of the process.
            is_done.recv_timeout(AT_MOST).ok();
        });
        is_traced.recv().unwrap();
        Self(Some((done, tracer)))
    }
}

impl Drop for Undying {
    fn drop(&mut self) {
        if let Some((done, tracer)) = self.0.take() {
            drop(done);
            tracer.join().unwrap();
        }
    }
}

/// Waits until a condition is true. False: it has not come true in half a minute.
pub(super) fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let mut pauses = Pauses::until(Instant::now() + Duration::from_secs(30));
    loop {
        if condition() {
            return true;
        }
        if !pauses.pause() {
            return false;
        }
    }
}

/// Asserts that this process has no child of any kind.
#[track_caller]
pub(super) fn assert_no_child() {
    assert_eq!(procfs::descendants(std::process::id().cast_signed()).unwrap(), [] as [i32; 0]);
}

/// Compiles a C program.
pub(super) fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (program, code) = (folder.join(name), folder.join(format!("{name}.c")));
    std::fs::write(&code, source).unwrap();
    let output = run("cc", &[&["-o", program.to_str().unwrap(), code.to_str().unwrap()], flags].concat());
    assert!(output.status.success(), "{output:?}");
    program
}

/// Runs a command to its end.
pub(super) fn run(command: &str, arguments: &[&str]) -> std::process::Output {
    #[expect(clippy::disallowed_methods, reason = "a test's own tools")]
    let mut command = std::process::Command::new(command);
    command.args(arguments).output().unwrap()
}
