//! Children that bring agents: their start, and the end of what they say on standard error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use gantry_types::error::Failure;
use gantry_wlm::host::{GANTRY_KEPT, explain_open_files, raise_open_files, spawn_with_given_limit};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use gantry_guard::protocol::{StartAgent, StartStep};

/// How much of a child's standard error is kept.
const LAST_WORDS_BYTES: usize = 4096;

/// Bytes per read. A pipe holds as many, unless somebody has changed that.
const PIPE_BYTES: usize = 64 * 1024;

/// How often the pipe of an ended child is read. Its own children may go on writing.
const LAST_READS: u32 = 16;

/// A child of the guard, and its last words.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Child,
    /// Its standard error, until that ends. None for a launcher: the tool reads that.
    pub(crate) stderr: Option<File>,
    last_words: Vec<u8>,
}

impl From<Child> for Running {
    fn from(mut process: Child) -> Self {
        let stderr = process.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        Self { process, stderr, last_words: Vec::new() }
    }
}

impl Running {
    /// Reads from its standard error without blocking, and keeps the end. A command that brings agents passes on what
    /// all nodes say. It would wait for ever at a full pipe. False: there is no more now.
    pub(crate) fn hear(&mut self) -> bool {
        let Some(pipe) = self.stderr.as_mut().filter(|pipe| is_readable(pipe.as_fd())) else { return false };
        let mut bytes = [0; PIPE_BYTES];
        match pipe.read(&mut bytes) {
            Ok(count @ 1..) => {
                self.last_words.extend_from_slice(&bytes[..count]);
                let surplus = self.last_words.len().saturating_sub(LAST_WORDS_BYTES);
                self.last_words.drain(..surplus);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => self.stderr = None,
        }
        false
    }

    /// What it said last. It has ended.
    pub(crate) fn last_words(mut self) -> String {
        for _ in 0..LAST_READS {
            if !self.hear() {
                break;
            }
        }
        String::from_utf8_lossy(&self.last_words).trim().to_owned()
    }
}

/// Whether a read returns at once.
pub(crate) fn is_readable(pipe: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::new(pipe, PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

pub(crate) fn agent_failure(order: &StartAgent, error: &io::Error) -> Failure {
    let program = order.program.to_string_lossy();
    let hint = explain_open_files(error)
        .unwrap_or_else(|| "see that all of gantry is installed and may be executed".to_owned());
    Failure::new(error.into(), format!("cannot start the agent {program}: {error}")).with_hint(hint)
}

pub(crate) fn start_agent(order: &StartAgent) -> io::Result<Child> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the guard is the one place that starts long-lived processes"
    )]
    let mut command = Command::new(&order.program);
    command.arg("serve");
    start_with(command, &order.ticket.0)
}

pub(crate) fn step_failure(order: &StartStep, error: &io::Error) -> Failure {
    let program = order.argv.first().map(|program| program.display().to_string()).unwrap_or_default();
    Failure::new(error.into(), format!("cannot start {program}, which was to start agents: {error}"))
}

pub(crate) fn start_step(order: &StartStep) -> io::Result<Child> {
    let (program, args) = order.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the guard is the one place that starts long-lived processes"
    )]
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(order.env.iter().map(|(name, value)| (name, value)));
    start_with(command, &order.ticket.0)
}

/// Starts a command that reads `ticket` from its standard input.
fn start_with(mut command: Command, ticket: &[u8]) -> io::Result<Child> {
    raise_open_files();
    let (stdin, mut to_stdin) = io::pipe()?;
    let (from_stderr, stderr) = io::pipe()?;
    let nowhere = File::options().write(true).open("/dev/null")?;
    let stdio = [stdin.as_raw_fd(), nowhere.as_raw_fd(), stderr.as_raw_fd()];
    command.stdin(stdin).stdout(nowhere).stderr(stderr).process_group(0);
    command.env(GANTRY_KEPT, "1");
    let mut child = spawn_with_given_limit(&mut command, stdio)?;
    // The command owns this process's ends of the pipes, which would stay open.
    drop(command);
    child.stderr = Some(OwnedFd::from(from_stderr).into());
    if let Err(error) = to_stdin.write_all(ticket)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        drop(child.kill());
        drop(child.wait());
        return Err(error);
    }
    // An agent that closed its input early reports the reason on standard error and by its exit status.
    Ok(child)
}
