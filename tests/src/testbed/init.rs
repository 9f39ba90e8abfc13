//! Process 1 of a namespace. It reaps orphans there, without limit or until its owner has ended.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{fs, io};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::command::{Result, err};
use super::place::Place;

/// The report of an init on its stdout when its host is ready.
const READY: &str = "ready";

/// Starts an init as the first process of the pid namespace that this process has unshared. Waits until it is ready.
pub(crate) fn start(place: &Place, host: &str, stdin: Stdio) -> Result<Child> {
    let log = fs::File::create(place.log(host)).map_err(err(place.log(host).display()))?;
    let program = std::env::current_exe().map_err(err("this program"))?;
    let mut command = Command::new(program);
    command
        .args(["inside", "init"])
        .arg(place.dir())
        .arg(host)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(log);
    let mut child = command.spawn().map_err(err("init"))?;
    match wait_ready(child.stdout.take()) {
        Ok(()) => Ok(child),
        Err(why) => {
            // It has ended, or has sent an unknown report.
            drop(child.kill());
            drop(child.wait());
            Err(format!("{host}: {why}"))
        }
    }
}

fn wait_ready(stdout: Option<ChildStdout>) -> Result<()> {
    let said = stdout.map(io::read_to_string).transpose().map_err(err("init"))?.unwrap_or_default();
    match said.trim() {
        READY => Ok(()),
        "" => Err("its init died without a word".to_owned()),
        said => Err(said.to_owned()),
    }
}

/// Sends [`start`] the outcome, and closes the output.
pub(crate) fn report(outcome: &Result<()>) -> Result<()> {
    let word = outcome.as_ref().map_or_else(String::as_str, |()| READY);
    let mut stdout = io::stdout();
    writeln!(stdout, "{word}").and_then(|()| stdout.flush()).map_err(err("stdout"))?;
    // The reader waits for the end of the pipe.
    let null = fs::OpenOptions::new().write(true).open("/dev/null").map_err(err("/dev/null"))?;
    nix::unistd::dup2_stdout(&null).map_err(err("dup2"))
}

/// The signals that an init receives through a descriptor. Making this blocks them.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    pub(crate) fn block() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.add(Signal::SIGTERM);
        set.thread_block().map_err(err("sigprocmask"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Self).map_err(err("signalfd"))
    }

    /// Reaps until SIGTERM arrives or `owner` (a pidfd) has ended.
    pub(crate) fn serve(&self, owner: Option<BorrowedFd<'_>>) -> Result<()> {
        loop {
            // Before the first wait too: a child may have ended before the signals were blocked.
            while reap(WaitPidFlag::WNOHANG) {}
            let mut ready = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            ready.extend(owner.map(|owner| PollFd::new(owner, PollFlags::POLLIN)));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(format!("poll: {error}")),
            }
            if ready.get(1).is_some_and(|owner| owner.any() == Some(true)) {
                return Ok(());
            }
            while let Ok(Some(signal)) = self.0.read_signal() {
                if signal.ssi_signo == Signal::SIGTERM as u32 {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for the end of any child; an init must reap all of them. False: there is no child, or none has ended.
pub(crate) fn reap(flags: WaitPidFlag) -> bool {
    loop {
        match waitpid(None, Some(flags)) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::StillAlive) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}
