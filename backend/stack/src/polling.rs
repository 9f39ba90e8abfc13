//! Whether a busy thread beside the first one only polls.
//!
//! A thread polls if all its samples are in a communication library, in an OpenMP runtime or in a short wait of the
//! kernel, and its callers have the same variables in all of them. The innermost function of the program may call from
//! several places: its variables hold what it needs from one call to the next. A thread without a function of the
//! program is one that such a library has started.
//!
//! All else counts as work: a thread in the program's own code, in another library, or in a script.

use std::collections::HashMap;

use crate::script::is_interpreter;
use crate::steady::StateHash;
use crate::unwind::RawFrame;

/// Communication libraries and OpenMP runtimes, by the beginning of their files' names.
const COMMUNICATION: [&str; 36] = [
    "libcxi.",
    "libefa.",
    "libfabric.",
    "libgomp.",
    "libhcoll.",
    "libibverbs.",
    "libiomp5.",
    "libmca_common_",
    "libmlx4.",
    "libmlx5.",
    "libmpi.",
    "libmpi_",
    "libmpich",
    "libmpicxx.",
    "libmpifort.",
    "libomp.",
    "libopen-pal.",
    "libopen-rte.",
    "liboshmem.",
    "libpami.",
    "libpmi.",
    "libpmi2.",
    "libpmix.",
    "libpmpi.",
    "libportals.",
    "libpsm2.",
    "libpsm_infinipath.",
    "librdmacm.",
    "libsharp.",
    "libsma.",
    "libucc.",
    "libucm.",
    "libucp.",
    "libucs.",
    "libuct",
    "mca_",
];

/// The end of the names of libfabric's providers.
const PROVIDER: &str = "-fi.so";

/// Libraries that both programs and communication libraries call.
const SYSTEM: [&str; 8] =
    ["[vdso]", "ld-linux", "ld-musl", "libc.so", "libevent", "libnuma.", "libpthread.", "librt."];

/// System calls with which a thread only waits: poll, select, `sched_yield`, nanosleep, futex, `restart_syscall`,
/// `clock_nanosleep`, `epoll_wait`, pselect6, ppoll, `epoll_pwait`, `epoll_pwait2`. After a sample, `restart_syscall` continues
/// such a wait. Source: arch/x86/entry/syscalls/syscall_64.tbl.
const WAITS: [u64; 12] = [7, 23, 24, 35, 202, 219, 230, 232, 270, 271, 281, 441];

/// Whose code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Communication,
    System,
    Program,
    /// Its variables are not in its frames.
    Script,
}

impl Owner {
    fn of_file(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_one_of = |names: &[&str]| names.iter().any(|it| name.starts_with(it));
        if is_one_of(&COMMUNICATION) || name.ends_with(PROVIDER) {
            Self::Communication
        } else if is_one_of(&SYSTEM) {
            Self::System
        } else if is_interpreter(path) {
            Self::Script
        } else {
            Self::Program
        }
    }

    fn of(frame: &RawFrame) -> Self {
        frame.file.as_ref().map_or(Self::Program, |(key, ..)| Self::of_file(&key.path))
    }
}

/// The state of a thread that may only poll, from its frames, innermost first, and the number of the system call that
/// it is in. None: it works.
pub(crate) fn state_of(frames: &[RawFrame], system_call: Option<u64>) -> Option<u64> {
    let owners: Vec<Owner> = frames.iter().map(Owner::of).collect();
    let caller = find_caller(&owners, system_call.is_some_and(|call| WAITS.contains(&call)))?;
    let mut hash = StateHash::default();
    let mut state = 0;
    if let [innermost, callers @ ..] = frames.get(caller..)? {
        state = hash.add(innermost.variables);
        for frame in callers {
            state = hash.add(frame.state());
        }
    }
    Some(state)
}

/// The index of the innermost frame of the program in a thread that may only poll; without one, the number of frames.
fn find_caller(owners: &[Owner], waits: bool) -> Option<usize> {
    if owners.contains(&Owner::Script) {
        return None;
    }
    let caller = owners.iter().position(|owner| *owner == Owner::Program);
    let inner = owners.get(..caller.unwrap_or(owners.len()))?;
    let is_in_communication = inner.contains(&Owner::Communication);
    match caller {
        Some(caller) => (is_in_communication || (waits && !inner.is_empty())).then_some(caller),
        // The C library starts threads. Where another file is the outermost, callers may be missing.
        None => (is_in_communication && owners.last() == Some(&Owner::System)).then_some(owners.len()),
    }
}

/// The samples of a thread since the last request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Nothing,
    /// All of them had this state.
    Polls(u64),
    Works,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// Its state at the last request.
    before: Option<u64>,
    since: Seen,
}

/// The busy threads of each process.
#[derive(Debug, Default)]
pub(crate) struct Polling(HashMap<i32, HashMap<i32, Thread>>);

impl Polling {
    /// Names the threads of a process that are to be sampled. What is known of others is dropped.
    pub(crate) fn watch(&mut self, pid: i32, threads: &[i32]) {
        if threads.is_empty() {
            self.0.remove(&pid);
            return;
        }
        let known = self.0.entry(pid).or_default();
        known.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            known.entry(*thread).or_default();
        }
    }

    /// The threads whose next sample matters.
    pub(crate) fn wanted(&self, pid: i32) -> Vec<i32> {
        let known = self.0.get(&pid).into_iter().flatten();
        known.filter(|(_, thread)| thread.since != Seen::Works).map(|(number, _)| *number).collect()
    }

    /// Takes a sample of a thread: its state, if it may only poll.
    pub(crate) fn take(&mut self, pid: i32, thread: i32, state: Option<u64>) {
        let Some(thread) = self.0.get_mut(&pid).and_then(|known| known.get_mut(&thread)) else { return };
        let before = match thread.since {
            Seen::Nothing => thread.before,
            Seen::Polls(state) => Some(state),
            Seen::Works => return,
        };
        let same = state.filter(|state| before.is_none_or(|before| before == *state));
        thread.since = same.map_or(Seen::Works, Seen::Polls);
    }

    /// Takes the first sample of a thread after those whose callers were guessed. They differ also for a thread that polls.
    pub(crate) fn correct(&mut self, pid: i32, thread: i32, state: Option<u64>) {
        if let Some(thread) = self.0.get_mut(&pid).and_then(|known| known.get_mut(&thread)) {
            thread.before = thread.before.and(state);
            if matches!(thread.since, Seen::Polls(_)) {
                thread.since = Seen::Nothing;
            }
        }
        self.take(pid, thread, state);
    }

    /// Whether a thread has only polled since the last request.
    pub(crate) fn ask(&mut self, pid: i32, thread: i32) -> bool {
        let Some(thread) = self.0.get_mut(&pid).and_then(|known| known.get_mut(&thread)) else {
            return false;
        };
        let before = thread.before;
        thread.before = match thread.since {
            Seen::Polls(state) => Some(state),
            Seen::Nothing | Seen::Works => None,
        };
        thread.since = Seen::Nothing;
        before.is_some() && thread.before.is_some()
    }

    /// Drops a process that has ended or cannot be read.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_known_by_their_files() {
        let check = |path, expected| assert_eq!(Owner::of_file(path), expected, "{path}");
        check("/usr/lib/x86_64-linux-gnu/libmpich.so.12.2.1", Owner::Communication);
        check("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_btl_vader.so", Owner::Communication);
        check("/opt/ucx/lib/ucx/libuct_ib.so.0", Owner::Communication);
        check("/opt/ofi/lib/libfabric/libpsm3-fi.so", Owner::Communication);
        check("/usr/lib/libgomp.so.1.0.0", Owner::Communication);
        check("/usr/lib/x86_64-linux-gnu/libc.so.6", Owner::System);
        check("/lib/ld-musl-x86_64.so.1", Owner::System);
        check("/usr/bin/python3.11", Owner::Script);
        // Libraries for numbers.
        check("/usr/lib/libmpir.so.23", Owner::Program);
        check("/usr/lib/libmpc.so.3", Owner::Program);
        check("/usr/lib/libopenblas.so.0", Owner::Program);
        // Its threads are busy while a GPU computes.
        check("/usr/lib/libnccl.so.2", Owner::Program);
        check("/home/me/heat", Owner::Program);
        assert!(COMMUNICATION.is_sorted() && SYSTEM.is_sorted() && WAITS.is_sorted());
    }

    #[test]
    fn a_thread_may_only_poll_in_a_communication_library_or_in_a_short_wait() {
        use Owner::{Communication, Program, Script, System};
        // Innermost first.
        let check = |owners: &[Owner], waits, expected| assert_eq!(find_caller(owners, waits), expected);
        check(&[System, Communication, Communication, System], false, Some(4));
        check(&[Communication, Program, System], false, Some(1));
        check(&[System, Communication, Program, Program, System], false, Some(2));
        check(&[System, Program, System], true, Some(1));
        // A team of OpenMP has the program's function between its own.
        check(&[Communication, Program, Communication, System], false, Some(1));
        check(&[Program, Communication, System], false, None);
        check(&[Program, System], true, None);
        check(&[System, Program, System], false, None);
        // The callers may be missing.
        check(&[System, Communication], false, None);
        check(&[System, System], true, None);
        check(&[Communication, Program, Script, System], false, None);
        check(&[], true, None);
    }

    #[test]
    fn a_thread_polls_from_one_request_to_the_next_in_one_state() {
        let mut polling = Polling::default();
        polling.watch(1, &[2, 3]);
        let check = |polling: &mut Polling, samples: &[Option<u64>], expected| {
            samples.iter().for_each(|state| polling.take(1, 2, *state));
            assert_eq!(polling.ask(1, 2), expected, "{samples:?}");
        };
        // What it did before is not known.
        check(&mut polling, &[Some(7), Some(7)], false);
        check(&mut polling, &[Some(7), Some(7)], true);
        check(&mut polling, &[Some(7), None, Some(7)], false);
        check(&mut polling, &[Some(7)], false);
        check(&mut polling, &[Some(7)], true);
        check(&mut polling, &[Some(8), Some(8)], false);
        check(&mut polling, &[Some(8)], false);
        check(&mut polling, &[], false);
        check(&mut polling, &[Some(8)], false);
        // Its callers are known at last.
        check(&mut polling, &[Some(8), Some(8)], true);
        polling.correct(1, 2, Some(9));
        check(&mut polling, &[Some(9)], true);
        polling.take(1, 2, Some(9));
        polling.correct(1, 2, Some(7));
        check(&mut polling, &[Some(7)], true);
        check(&mut polling, &[Some(9)], false);
        // Once it has worked, its other samples do not matter.
        polling.take(1, 2, None);
        assert_eq!(polling.wanted(1), [3]);
        polling.watch(1, &[]);
        assert!(polling.wanted(1).is_empty() && !polling.ask(1, 2));
    }
}
