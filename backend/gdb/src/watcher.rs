//! A process that outlives a killed daemon until all its ranks are released.
//!
//! A gdb that reads the end of its input detaches from its rank and ends. But it reads nothing while the rank runs. And
//! a gdb that gets SIGTERM meanwhile may leave the rank with a half-handled breakpoint, which kills the rank. So the
//! watcher first stops the rank, as a user's interrupt does, and gdb then reads the end.
//!
//! A gdb may be killed together with the daemon. Then the watcher removes what that gdb has left in its rank.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, setpgid};

use crate::interrupt::INTERRUPT;
use crate::sys;
use crate::traps::leave_in_order;

/// Time between two checks of the ranks, in milliseconds.
const GLANCE: u16 = 50;

/// After this time a gdb gets SIGTERM, and after twice this time SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's message about a rank and its gdb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The rank's pid.
    pub(crate) rank: i32,
    /// The pid of its gdb. 0: it has none any more.
    pub(crate) gdb: i32,
    /// The rank is held, and stays so without a gdb.
    pub(crate) is_held: bool,
}

/// Length of a message.
const PAIR_BYTES: usize = 9;

impl Pair {
    fn to_bytes(self) -> [u8; PAIR_BYTES] {
        let mut bytes = [u8::from(self.is_held); PAIR_BYTES];
        bytes[..4].copy_from_slice(&self.rank.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.gdb.to_ne_bytes());
        bytes
    }

    fn of_bytes([a, b, c, d, e, f, g, h, held]: [u8; PAIR_BYTES]) -> Self {
        let (rank, gdb) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
        Self { rank, gdb, is_held: held != 0 }
    }
}

/// The daemon's end. When all copies are dropped, the watcher releases the remaining ranks.
#[derive(Debug, Clone)]
pub(crate) struct Watcher(Arc<PipeWriter>);

impl Watcher {
    /// Starts the watcher. Call it before there are threads.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn start() -> io::Result<Self> {
        let (told, tell) = io::pipe()?;
        // The other process must close its copy of `tell`: it waits for that pipe to end.
        let mut ours = Some(tell);
        sys::fork_off(|| {
            drop(ours.take());
            watch(told);
        })?;
        ours.map(|ours| Self(Arc::new(ours))).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Announces that a gdb is about to attach to a rank, or what has changed since.
    ///
    /// # Errors
    /// The watcher has ended.
    pub(crate) fn tell(&self, pair: Pair) -> io::Result<()> {
        // The system does not split writes of this length.
        (&*self.0).write_all(&pair.to_bytes())
    }
}

fn watch(mut told: PipeReader) {
    // A signal to the daemon's group must not end this process: it waits for the end of the pipe.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).unwrap_or_default();
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_unblock().unwrap_or_default();
    let (mut pairs, mut bytes) = (Vec::new(), [0; PAIR_BYTES]);
    while told.read_exact(&mut bytes).is_ok() {
        let pair = Pair::of_bytes(bytes);
        // A rank has one gdb at a time.
        pairs.retain(|it: &Pair| it.rank != pair.rank);
        pairs.extend((pair.gdb != 0).then_some(pair));
    }
    let begun = Instant::now();
    loop {
        pairs.retain(|pair| match tracer_and_state(pair.rank) {
            Some((tracer, _)) if tracer == pair.gdb => true,
            // gdb has ended: in order, or killed as the daemon was.
            Some((0, _)) => {
                leave_in_order(pair.rank, pair.is_held);
                false
            }
            _ => false,
        });
        if pairs.is_empty() {
            return;
        }
        for pair in &pairs {
            let (whom, signal) = match begun.elapsed() {
                waited if waited >= 2 * PATIENCE => (pair.gdb, Signal::SIGKILL),
                waited if waited >= PATIENCE => (pair.gdb, Signal::SIGTERM),
                // A stopped rank needs no signal.
                _ if tracer_and_state(pair.rank).is_some_and(|(_, state)| state == 't') => continue,
                _ => (pair.rank, INTERRUPT),
            };
            // It may have ended.
            kill(Pid::from_raw(whom), signal).unwrap_or_default();
        }
        // Poll: gdb is not a child of this process, so no event reports its end.
        poll(&mut [], PollTimeout::from(GLANCE)).unwrap_or_default();
    }
}

/// The tracer of a process, and the letter of its state. Source: proc_pid_status(5).
fn tracer_and_state(pid: i32) -> Option<(i32, char)> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("TracerPid:")?.parse().ok()?, field("State:")?.chars().next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_arrive_as_they_were_told() {
        for is_held in [true, false] {
            let pair = Pair { rank: 4242, gdb: i32::MAX, is_held };
            assert_eq!(Pair::of_bytes(pair.to_bytes()), pair);
        }
    }

    #[test]
    fn nobody_traces_this_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (tracer, state) = tracer_and_state(own).unwrap();
        assert!(tracer == 0 && "RS".contains(state), "{tracer} {state}");
        assert_eq!(tracer_and_state(i32::MAX), None);
    }
}
