//! Information about processes from /proc, and the only poll in the test code.
//!
//! All of this looks from outside, so a test does not rely on the program's own claim about "held" or "gone". In a
//! test's body on a host of a bed it covers the whole bed ([`outside`]), and every pid is the machine's pid.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gantry_shared::environ;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::outside::{self, read, read_text};
pub use crate::sys::Pidfd;

/// How long anything may take that takes no time: far more than that, since tests share a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// A process that existed when it was opened. It may be one that only [`outside`] can reach.
#[derive(Debug)]
pub(crate) enum Found {
    Here(Pidfd),
    There(i32),
}

impl Found {
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        if !outside::is_asked() {
            return Pidfd::open(pid).map(Self::Here);
        }
        stat(pid).map(|_| Self::There(pid)).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// Waits until it has ended or the timeout expires. Returns whether it has ended.
    pub(crate) fn wait_end(&self, patience: Duration) -> bool {
        match self {
            Self::Here(process) => process.wait_end(patience),
            Self::There(pid) => becomes_true(patience, || !is_alive(*pid)),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Here(process) => process.signal(signal),
            Self::There(pid) => outside::signal(*pid, signal),
        }
    }
}

/// Traces these processes until the sender is dropped. Even SIGKILL does not end them meanwhile: they stop at their exit,
/// like processes that wait for a dead file server.
///
/// # Panics
/// One cannot be traced.
#[must_use]
pub fn keep_from_ending(pids: Vec<i32>) -> (Sender<()>, JoinHandle<()>) {
    let (traced, are_traced) = channel();
    let (done, is_done) = channel();
    let tracer = std::thread::spawn(move || {
        for pid in pids {
            ptrace::seize(Pid::from_raw(pid), ptrace::Options::PTRACE_O_TRACEEXIT).expect("seized");
        }
        traced.send(()).expect("the test goes on");
        // The end of this thread lets go of them.
        is_done.recv().ok();
    });
    are_traced.recv().expect("traced");
    (done, tracer)
}

/// The fields of `/proc/PID/stat` that tests use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name of its program, at most 15 bytes.
    pub comm: String,
    /// `R`, `S`, `D`, `T` (stopped), `t` (stopped by a tracer), `Z` (zombie).
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session in the kernel's sense.
    pub session: i32,
    /// When it started, in clock ticks since boot. It distinguishes two processes with one pid.
    pub start_ticks: u64,
    /// The processor time that its threads have used, in clock ticks.
    pub used_ticks: u64,
}

/// Reads `/proc/PID/stat`. None: the process does not exist.
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&read_text(format!("/proc/{pid}/stat"))?)
}

/// The name is in brackets and may contain brackets and blanks, so it ends at the last bracket.
fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Stat {
        comm: head.split_once('(')?.1.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
        used_ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
    })
}

/// The state's letter. None: the process does not exist.
#[must_use]
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// Whether the process runs or could run: there, and no zombie.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The processor time that a process has used, in seconds. 0: it is gone.
#[must_use]
pub fn processor_time(pid: i32) -> f64 {
    // The kernel tells it in hundredths of a second on every machine.
    stat(pid).map_or(0.0, |stat| stat.used_ticks as f64 / 100.0)
}

/// The peak memory of a process, in KiB. 0: it is gone.
#[must_use]
pub fn peak_memory_kib(pid: i32) -> u64 {
    let status = read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Whether a process ignores a signal.
///
/// # Panics
/// There is no such process.
#[track_caller]
#[must_use]
pub fn ignores(pid: i32, signal: Signal) -> bool {
    let status = read_text(format!("/proc/{pid}/status")).expect("a process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("its signals").trim();
    let mask = u64::from_str_radix(mask, 16).expect("a mask");
    mask & (1 << (signal as i32 - 1)) != 0
}

/// Its tracer, if there is one.
#[must_use]
pub fn tracer(pid: i32) -> Option<i32> {
    let status = read_text(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// The program counter of a process that does not run now. None: it runs, or access is denied.
#[must_use]
pub fn program_counter(pid: i32) -> Option<u64> {
    let text = read_text(format!("/proc/{pid}/syscall"))?;
    let hex = text.split_ascii_whitespace().next_back()?.strip_prefix("0x")?;
    u64::from_str_radix(hex, 16).ok()
}

/// The address of the first instruction that this process runs in user space: the loader's entry, or the program's
/// own when it is static. Reads the auxiliary vector (proc(5), getauxval(3)) and the loader's ELF header; 64 bit only.
#[must_use]
pub fn entry_address(pid: i32) -> Option<u64> {
    const AT_BASE: u64 = 7;
    const AT_ENTRY: u64 = 9;
    const E_ENTRY: usize = 24;
    let vector = read(format!("/proc/{pid}/auxv"))?;
    let words: Vec<u64> =
        vector.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
    let value = |key| words.chunks_exact(2).find(|pair| pair[0] == key).map(|pair| pair[1]);
    let base = value(AT_BASE).unwrap_or(0);
    if base == 0 {
        return value(AT_ENTRY);
    }
    let start = format!("{base:x}-");
    let maps = read_text(format!("/proc/{pid}/maps"))?;
    let loader = maps.lines().find(|line| line.trim_start_matches('0').starts_with(&start))?;
    let header = read(loader.split_ascii_whitespace().nth(5)?)?;
    let entry = header.get(E_ENTRY..E_ENTRY + 8)?;
    Some(base + u64::from_ne_bytes(entry.try_into().ok()?))
}

/// Why a process is not held as the design requires: stopped, no tracer, at its first instruction. None: it is held.
#[must_use]
pub fn why_not_held(pid: i32) -> Option<String> {
    let Some(stat) = stat(pid) else { return Some(format!("there is no process {pid}")) };
    if stat.state != 'T' {
        return Some(format!("process {pid} ({}) is in state {}, not T", stat.comm, stat.state));
    }
    if let Some(tracer) = tracer(pid) {
        return Some(format!("process {pid} ({}) is traced by {tracer}", stat.comm));
    }
    let (at, entry) = (program_counter(pid), entry_address(pid));
    if at.is_none() || at != entry {
        return Some(format!("process {pid} ({}) is at {at:x?}, its entry is {entry:x?}", stat.comm));
    }
    None
}

/// All current pids.
#[must_use]
pub fn all() -> Vec<i32> {
    let names = outside::list("/proc").unwrap_or_default();
    names.into_iter().filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The current children of `pid`, including zombies.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    all().into_iter().filter(|child| stat(*child).is_some_and(|stat| stat.parent == pid)).collect()
}

/// Its command line with blanks between the words, or its name in brackets (a zombie has no command line any more).
#[must_use]
pub fn command_line(pid: i32) -> String {
    let words = read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A process that has replaced its arguments has empty ones behind them.
    let end = words.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let words = &words[..end];
    if words.is_empty() {
        return format!("[{}]", stat(pid).map_or_else(|| "gone".to_owned(), |stat| stat.comm));
    }
    String::from_utf8_lossy(words).replace('\0', " ")
}

/// A variable of a process's initial environment. None: it is not set, or the process hides it.
#[must_use]
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = read(format!("/proc/{pid}/environ"))?;
    Some(String::from_utf8_lossy(environ::value(&environment, name)?).into_owned())
}

/// The processes with `name=value` in their environment, except this one and its ancestors.
///
/// During `exec` a process shows no environment for an instant, and a child may start behind the current place of a
/// scan. So "none" needs two scans that agree.
#[must_use]
pub fn bearing(name: &str, value: &str) -> Vec<i32> {
    let parent = |pid: &i32| stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
    let ours: Vec<i32> = std::iter::successors(Some(outside::own_pid()), parent).collect();
    let scan = || -> Vec<i32> {
        let bears = |pid: &i32| !ours.contains(pid) && variable(*pid, name).as_deref() == Some(value);
        all().into_iter().filter(bears).collect()
    };
    let first = scan();
    if first.is_empty() { scan() } else { first }
}

/// The program that the process runs.
#[must_use]
pub fn exe(pid: i32) -> Option<PathBuf> {
    outside::read_link(format!("/proc/{pid}/exe"))
}

/// Local and remote address of each TCP socket that the process holds, as /proc/net/tcp has them.
#[must_use]
pub fn tcp_sockets(pid: i32) -> Vec<String> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let names = outside::list(&folder).unwrap_or_default();
    let targets = names.into_iter().filter_map(|name| outside::read_link(folder.join(name)));
    let held: Vec<String> = targets
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = read_text(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if let [_, local, remote, _, _, _, _, _, _, inode, ..] = fields[..]
                && held.iter().any(|ours| ours == inode)
            {
                found.push(format!("{local} -> {remote}"));
            }
        }
    }
    found
}

/// Sends a signal to one process, by pid.
///
/// # Panics
/// When the process is not there or not ours.
#[track_caller]
pub fn send(pid: i32, signal: Signal) {
    let sent = Found::open(pid).and_then(|process| process.signal(signal));
    sent.unwrap_or_else(|error| panic!("{signal} to process {pid}: {error}"));
}

/// Sends a signal to each of these processes that still exists at that time.
pub fn send_those_left(pids: impl IntoIterator<Item = i32>, signal: Signal) {
    let all: Vec<Found> = pids.into_iter().filter_map(|pid| Found::open(pid).ok()).collect();
    for process in &all {
        // The signal to another process may have ended it meanwhile.
        process.signal(signal).ok();
    }
}

/// Waits until the process has ended, by event.
///
/// # Panics
/// When it is still there after `timeout`.
#[track_caller]
pub fn wait_gone(pid: i32, timeout: Duration) {
    let Ok(process) = Found::open(pid) else { return };
    let line = command_line(pid);
    assert!(process.wait_end(timeout), "process {pid} ({line}) is still there after {timeout:?}");
}

/// Waits until the file is there. See [`eventually`].
///
/// # Panics
/// When it is not there after `timeout`.
#[track_caller]
pub fn wait_file(path: &Path, timeout: Duration) {
    eventually(timeout, &format!("{} is there", path.display()), || path.exists());
}

/// Polls `condition` until it holds, and fails the test at the timeout.
///
/// This and [`becomes_true`], which it calls, are the only poll in the tests. They serve conditions without a kernel
/// event: a state in /proc, a file of another program. Other conditions have an event to wait for: [`Pidfd::wait_end`],
/// [`crate::Run::next_event`].
///
/// # Panics
/// When the timeout expires; the message contains `what`.
#[track_caller]
pub fn eventually(timeout: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(becomes_true(timeout, condition), "after {timeout:?} it is still not so that {what}");
}

/// As [`eventually`], but returns whether it became true. Checks `condition` at least once, and once more at the end.
#[must_use]
pub fn becomes_true(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    loop {
        let asked = Instant::now();
        if condition() {
            return true;
        }
        if asked >= end {
            return false;
        }
        // A question that reads all of /proc must not take the processors from what it waits for.
        let rest = pause.max(asked.elapsed() * 4);
        std::thread::sleep(rest.min(end.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, char, i32, u64)>) {
        let got = parse_stat(text);
        let got = got.as_ref().map(|stat| (stat.comm.as_str(), stat.state, stat.parent, stat.start_ticks));
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_name_holds() {
        let tail = "S 7 8 9 0 -1 1 0 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        check(&format!("5 (sh) {tail}"), Some(("sh", 'S', 7, 4242)));
        check(&format!("5 (a) R 1 (b) {tail}"), Some(("a) R 1 (b", 'S', 7, 4242)));
        check("5 (sh) S 7", None);
        check("", None);
    }

    #[test]
    fn this_process_is_found_and_described() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(is_alive(own) && all().contains(&own));
        assert_eq!(tracer(own), None);
        assert_eq!(exe(own), std::env::current_exe().ok());
        assert_eq!(variable(own, "PATH"), std::env::var("PATH").ok());
        assert!(why_not_held(own).unwrap().contains("not T"));
    }

    #[test]
    fn a_tcp_socket_is_seen_with_its_owner() {
        let own = i32::try_from(std::process::id()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = format!(":{:04X} ", listener.local_addr().unwrap().port());
        assert!(tcp_sockets(own).iter().any(|socket| socket.contains(&port)));
    }

    #[test]
    #[should_panic(expected = "still not so that pigs fly")]
    fn eventually_gives_up_and_says_on_what() {
        eventually(Duration::from_millis(5), "pigs fly", || false);
    }
}
