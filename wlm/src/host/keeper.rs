//! A keeper: a process above one of ours that ends what that one leaves behind when it is killed.
//!
//! Guard and agents are subreapers: what ranks and daemons start stays below them, wherever it goes. When one of them is killed, its
//! children go to the next subreaper above. That is the keeper, and it has nothing to do before. It is a copy of a process that has only
//! just begun, so it is small and quick to make.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gantry_shared::status::ExitStatus;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::sys;

/// In the environment of processes that end by themselves when their guard is gone, so that they are waited for and not killed.
pub const GANTRY_KEPT: &str = "GANTRY_KEPT";

/// The keeper's name for the kernel, as `ps -o comm` shows it.
const NAME: &std::ffi::CStr = c"gantry-keeper";

/// Signals that are for the process below.
const PASSED_ON: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Looks at what is left, while something is killed and does not end. The kernel may hold it in a system call.
const LAST_LOOKS: u32 = 50;

/// How long a killed process is waited for before the next look.
const KILLED: Duration = Duration::from_millis(100);

/// How often it is seen what processes that end by themselves have left.
const KEPT: Duration = Duration::from_secs(1);

/// Becomes two processes. In the lower one, which goes on with the work, this returns at once, with nothing. The upper one is the keeper: here it
/// returns when the lower one has ended and nothing is left of it, with how that ended; it should then end alike.
///
/// What is left may end by itself for as long as `grace`: launchers have a process that tells their WLM when they were killed. Then it is killed.
///
/// To be called first thing in `main`, while there is one thread.
///
/// # Errors
/// There is no room for a process. The caller is as it was.
pub fn keep(grace: Duration) -> io::Result<Option<ExitStatus>> {
    let mut signals = SigSet::from_iter(PASSED_ON);
    signals.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
    let forked = sys::fork();
    let Ok(Some(below)) = forked else {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        return forked.map(|_| None);
    };
    sys::become_subreaper();
    sys::set_name(NAME);
    // The pipes and sockets belong to the lower process: their end tells of its end.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        (0..3).for_each(|standard| sys::put_at(&null, standard));
    }
    sys::close_from(3).ok();
    nix::unistd::chdir("/").ok();
    Ok(Some(watch(below, &signals, grace)))
}

fn watch(below: libc::pid_t, signals: &SigSet, grace: Duration) -> ExitStatus {
    let news = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let Ok(news) = news else { return ExitStatus::Unknown };
    let status = loop {
        match news.read_signal() {
            Ok(None) => wait_for(&news, None),
            Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {}
            Ok(Some(info)) => {
                let signal = i32::try_from(info.ssi_signo).ok().and_then(|it| Signal::try_from(it).ok());
                // It has not been waited for, so the pid is its own.
                kill(Pid::from_raw(below), signal).ok();
            }
            Err(_) => break ExitStatus::Unknown,
        }
        if let Some(status) = sys::reap(below) {
            break ExitStatus::from_wait_status(status);
        }
    };
    end_orphans(&news, Instant::now() + grace);
    status
}

/// Ends what is left after `until`, and waits for what ends by itself.
fn end_orphans(news: &SignalFd, until: Instant) {
    let mut looks = 0;
    loop {
        let children = read_children();
        let (kept, left): (Vec<_>, Vec<_>) = children.iter().copied().partition(|pid| is_kept(*pid));
        if children.is_empty() || (kept.is_empty() && looks == LAST_LOOKS) {
            return;
        }
        let grace = until.saturating_duration_since(Instant::now());
        if grace.is_zero() {
            for pid in &left {
                // A child of ours that has not been waited for.
                kill(Pid::from_raw(*pid), Signal::SIGKILL).ok();
            }
            looks = if left.is_empty() { 0 } else { (looks + 1).min(LAST_LOOKS) };
        }
        let pause = if left.is_empty() { KEPT } else { grace.max(KILLED) };
        wait_for(news, Some(pause));
        while let Ok(Some(_)) = news.read_signal() {}
        for pid in children {
            // Not yet: it is seen again.
            sys::reap(pid);
        }
    }
}

fn wait_for(news: &SignalFd, at_most: Option<Duration>) {
    let limit = at_most.map_or(PollTimeout::NONE, |it| PollTimeout::try_from(it).unwrap_or(PollTimeout::MAX));
    // An error is a wait that was too short.
    poll(&mut [PollFd::new(news.as_fd(), PollFlags::POLLIN)], limit).ok();
}

fn read_children() -> Vec<libc::pid_t> {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_kept(pid: libc::pid_t) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_it = |entry: &[u8]| {
        entry.strip_prefix(GANTRY_KEPT.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    };
    environment.split(|byte| *byte == 0).any(is_it)
}
