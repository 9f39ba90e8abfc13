//! The cores of this node, for ranks that are bound to one core each.
//!
//! Source: sched_setaffinity(2), the kernel's `admin-guide/cputopology`.

use std::collections::BTreeMap;
use std::io;

use gantry_types::error::{Failure, Kind};
use gantry_types::rank_set::RankSet;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// This thread.
const HERE: Pid = Pid::from_raw(0);

/// The number of processors that this process may use. None: the kernel has more than a `CpuSet` holds.
pub(crate) fn count() -> Option<usize> {
    let allowed = sched_getaffinity(HERE).ok()?;
    Some((0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count())
}

/// Chooses a core for each of `count` ranks, among those that this process may use. A core is all its hardware threads.
///
/// # Errors
/// There are fewer cores, or the kernel has more processors than a `CpuSet` holds.
pub(crate) fn choose(count: usize) -> Result<Vec<CpuSet>, Failure> {
    let allowed = sched_getaffinity(HERE)
        .map_err(|errno| crate::failure::from_io("read which processors may be used", &errno.into()))?;
    let cores = list(&allowed, |cpu| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            .ok()
    });
    let found = cores.len();
    if found < count {
        let what = format!("{count} ranks are to be bound to a core each, and this node has {found}");
        return Err(Failure::new(Kind::Invalid, what)
            .with_hint("ask for fewer ranks on each node (--ppn), or leave out --bind-to"));
    }
    Ok(cores.into_iter().take(count).collect())
}

/// The cores with a processor in `allowed`, ordered by their first processors. `siblings` returns the processors of a
/// processor's core.
fn list(allowed: &CpuSet, siblings: impl Fn(usize) -> Option<String>) -> Vec<CpuSet> {
    let mut cores = BTreeMap::<usize, CpuSet>::new();
    for cpu in (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)) {
        // The kernel writes the list of processors in the format of a set of ranks. Without a list, a processor is a
        // core.
        let set = siblings(cpu).and_then(|text| text.trim().parse::<RankSet>().ok());
        let first = set.and_then(|set| set.iter().next()).map_or(cpu, |first| first.index());
        // This cannot fail: all sets have room for the same processors.
        let _is_there = cores.entry(first).or_default().set(cpu);
    }
    cores.into_values().collect()
}

/// Runs `start` on `cores`. The child that `start` makes inherits them.
///
/// # Errors
/// The kernel does not let this thread run there.
pub(super) fn start_on<T>(cores: Option<&CpuSet>, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cores) = cores else { return start() };
    let move_to = |cores: &CpuSet| sched_setaffinity(HERE, cores).map_err(Errno::into);
    let before = sched_getaffinity(HERE).map_err(io::Error::from)?;
    move_to(cores)?;
    let started = start();
    // The thread ran there a moment ago. If it cannot move back, it still works: it only starts children, each on its
    // own core.
    let back: io::Result<()> = move_to(&before);
    drop(back);
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu).unwrap());
        set
    }

    #[test]
    fn hardware_threads_of_a_core_stay_together() {
        let threads = |cpu: usize| Some(format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        assert_eq!(list(&set(&[0, 1, 4, 5, 6]), threads), [set(&[0, 4]), set(&[1, 5]), set(&[6])]);
        assert_eq!(list(&set(&[2, 3]), |_| None), [set(&[2]), set(&[3])]);
        assert_eq!(list(&set(&[2, 3]), |_| Some("2-3".to_owned())), [set(&[2, 3])]);
    }

    #[test]
    fn what_is_started_runs_there_and_who_starts_it_stays_where_it_was() {
        let before = sched_getaffinity(HERE).unwrap();
        let core = choose(1).unwrap().remove(0);
        assert_eq!(start_on(Some(&core), || Ok(sched_getaffinity(HERE)?)).unwrap(), core);
        assert_eq!(sched_getaffinity(HERE).unwrap(), before);
        let failure = choose(CpuSet::count() + 1).unwrap_err();
        assert!(
            failure.message().contains("ranks are to be bound to a core each, and this node has"),
            "{failure:?}"
        );
    }
}
