//! The keeper: a parent process of guard and agent that cleans up after them when they are killed.
//!
//! Guard and agents are subreapers: all descendants of ranks and daemons stay below them. When one of them is killed,
//! its children go to the next subreaper above. That is the keeper; until then it is idle. It is a copy of a process
//! that has only just begun, so it is small and starts quickly.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;
use gantry_shared::environ;
use gantry_types::status::ExitStatus;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::sys;

/// Set in the environment of processes that end by themselves after their guard has died. The keeper waits for them
/// instead of killing them.
pub const GANTRY_KEPT: &str = "GANTRY_KEPT";

/// The keeper's name in the kernel, as `ps -o comm` shows it.
const NAME: &std::ffi::CStr = c"gantry-keeper";

/// Signals that are passed on to the process below.
const PASSED_ON: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// How often to check remaining processes while a killed one does not end. It may be in an uninterruptible system
/// call.
const LAST_LOOKS: u32 = 50;

/// How long to wait for a killed process before the next check.
const KILLED: Duration = Duration::from_millis(100);

/// When the guard dies, its launcher gets SIGTERM. After this time it gets another one: it may lose a signal while it
/// submits its job.
const ASK_AGAIN: Duration = Duration::from_millis(1500);

/// How long the children of a killed process may take to end by themselves.
const MOMENT: Duration = Duration::from_millis(500);

/// How often to check the children of processes that end by themselves.
const KEPT: Duration = Duration::from_secs(1);

/// Becomes two processes. In the lower one, which continues the work, this returns None at once. The upper one is the
/// keeper. In it, this returns the lower one's exit status when that has ended and all its descendants are gone; the
/// keeper should then exit alike.
///
/// Descendants may end by themselves for `grace`: launchers use that time to tell their WLM that their job is over.
/// Then they are killed.
///
/// Call this first in `main`, while there is one thread.
///
/// # Errors
/// No process can be started. The caller is unchanged.
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
    // The pipes and sockets belong to the lower process: their closing signals its end.
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
                // It has not been reaped, so its pid has not been reused.
                kill(Pid::from_raw(below), signal).ok();
            }
            Err(_) => break ExitStatus::Unknown,
        }
        if let Some(status) = sys::reap(below) {
            break ExitStatus::from_wait_status(status);
        }
    };
    end_orphans(&news, grace);
    status
}

/// Kills the remaining processes, and waits for those that end by themselves.
///
/// With a `grace`, children of the process below get another SIGTERM, and SIGKILL after that time. The children of a
/// killed process then have a short time of their own: one of them may be telling a WLM that a job is over.
fn end_orphans(news: &SignalFd, grace: Duration) {
    let until = Instant::now() + bounded(grace);
    let first = read_children();
    let mut ask_at = (!grace.is_zero()).then(|| Instant::now() + ASK_AGAIN);
    let mut kill_at: HashMap<libc::pid_t, Instant> = HashMap::new();
    let mut looks = 0;
    loop {
        let children = read_children();
        let (kept, left): (Vec<_>, Vec<_>) = children.iter().copied().partition(|pid| is_kept(*pid));
        if children.is_empty() || (kept.is_empty() && looks == LAST_LOOKS) {
            return;
        }
        let now = Instant::now();
        if ask_at.is_some_and(|at| now >= at) {
            ask_at = None;
            let still_there = left.iter().filter(|pid| first.contains(pid));
            still_there.for_each(|pid| send(*pid, Signal::SIGTERM));
        }
        let newcomers_at = until.max(if grace.is_zero() { now } else { now + MOMENT });
        kill_at.retain(|pid, _| left.contains(pid));
        let mut is_killing = false;
        for pid in &left {
            if *kill_at.entry(*pid).or_insert(newcomers_at) <= now {
                send(*pid, Signal::SIGKILL);
                is_killing = true;
            }
        }
        looks = if is_killing { (looks + 1).min(LAST_LOOKS) } else { 0 };
        let next = kill_at.values().copied().chain(ask_at).min();
        wait_for(news, Some(next.map_or(KEPT, |next| next.saturating_duration_since(now).max(KILLED))));
        while let Ok(Some(_)) = news.read_signal() {}
        for pid in children {
            // It has not ended yet; the next check sees it again.
            sys::reap(pid);
        }
    }
}

/// Sends a signal to a child that has not been reaped.
fn send(pid: libc::pid_t, signal: Signal) {
    // An error means that it has ended.
    kill(Pid::from_raw(pid), signal).ok();
}

fn wait_for(news: &SignalFd, at_most: Option<Duration>) {
    let limit = at_most.map_or(PollTimeout::NONE, |it| PollTimeout::try_from(it).unwrap_or(PollTimeout::MAX));
    // An error shortens the wait, which does no harm.
    poll(&mut [PollFd::new(news.as_fd(), PollFlags::POLLIN)], limit).ok();
}

fn read_children() -> Vec<libc::pid_t> {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_kept(pid: libc::pid_t) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ::value(&environment, GANTRY_KEPT).is_some()
}
