//! Ends what ranks and daemons have started, even in other process groups and sessions or after their parents have
//! ended.
//!
//! Below a subreaper no process gets lost, but the ranks of a launcher are not below the agent. A process that they
//! have started is found in one of two ways: it descends from a rank, or its environment has the app's mark. A process
//! that has lost its parents *and* its environment is not found.
//!
//! All processes are stopped before the first is killed. Otherwise the children of a killed process would lose their
//! parent, and new processes would start during the search.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use gantry_shared::environ;
use gantry_shared::mark::{GANTRY_MARK, Mark, Origin, Starter};
use gantry_types::id::{AppId, Pid};
use nix::unistd::geteuid;

use super::signal::Target;
use super::{Pinned, procfs, sys};

/// Number of searches before processes are killed. Some processes start others faster than a search finds them.
const LOOKS: u32 = 30;

/// Number of rounds of search, stop and kill.
const ROUNDS: u32 = 5;

/// Time limit for killed processes to end. One that is blocked in a system call ends later.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The processes to end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Doomed {
    /// Processes that end together with all their descendants.
    pub(crate) roots: Vec<Pinned>,
    /// The app whose marked processes end, except the descendants of this agent: other code ends those.
    pub(crate) app: Option<AppId>,
}

/// A process of this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    process: Pinned,
    parent: i32,
    mark: Option<Mark>,
}

/// Ends all processes that `doomed` describes. Blocks until they have ended, for some seconds at most. A process that
/// is blocked in a system call may end later.
///
/// # Errors
/// When `/proc` cannot be read. The roots are killed all the same.
pub(crate) fn end(doomed: &Doomed) -> io::Result<()> {
    end_chosen(&doomed.roots, |mark| Some(mark.app) == doomed.app)
}

/// Ends marked processes whose starter on this node has ended, so that no other process ends them. Returns their
/// number.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn sweep() -> io::Result<usize> {
    let namespace = read_namespace()?;
    // The user may work in a shell that such an app left behind. Then this process has the shell's mark.
    let itself = std::fs::read("/proc/self/environ").ok().and_then(|own| Mark::find(&own));
    let is_dead = |mark: &Mark| is_gone(mark.starter, namespace) && Some(*mark) != itself;
    let found = list()?.iter().filter(|seen| seen.mark.as_ref().is_some_and(is_dead)).count();
    if found > 0 {
        end_chosen(&[], is_dead)?;
    }
    Ok(found)
}

/// Marks the processes of an app, so that their descendants are found.
#[derive(Debug, Clone)]
pub(crate) struct Marker {
    app: AppId,
    starter: Starter,
    place: u64,
}

impl Marker {
    /// `starter` is the process that starts them on this node, in the control group of this process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn new(app: AppId, starter: i32) -> io::Result<Self> {
        // A parent in another pid namespace has no number here. Then use the first process of this namespace, which all
        // of them share.
        let pid = Pid::new(starter).or(Pid::new(1)).ok_or(io::ErrorKind::InvalidInput)?;
        let start_time = procfs::read_stat(pid.get())?.start_time;
        let starter = Starter { pid, start_time, namespace: read_namespace()? };
        let place = Origin::digest_place(&read_boot()?, &std::fs::read("/proc/self/cgroup")?);
        Ok(Self { app, starter, place })
    }

    /// The mark as an environment variable, for a process with this environment.
    pub(crate) fn build<'a>(
        &self,
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)> + Clone,
    ) -> (&'static str, String) {
        let value = |wanted: &str| {
            environment
                .clone()
                .find(|(name, _)| *name == OsStr::new(wanted))
                .map(|(_, value)| value.as_bytes())
        };
        let origin = Origin { place: self.place, job: digest_job(value) };
        (GANTRY_MARK, Mark { app: self.app, starter: self.starter, origin }.to_string())
    }
}

/// Digest of the job that a process belongs to, from its environment.
fn digest_job<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) -> u64 {
    let names = gantry_wlm::registry::WLMS_JOB_VARIABLES.iter().copied().flatten().copied();
    Origin::digest_job(names.filter_map(|name| Some((name, value(name)?))))
}

/// The id of this machine's boot.
fn read_boot() -> io::Result<Vec<u8>> {
    std::fs::read("/proc/sys/kernel/random/boot_id")
}

/// The pid namespace of this process.
fn read_namespace() -> io::Result<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid")?;
    let number = link.to_str().and_then(|link| link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the link of the pid namespace is not in the format of namespaces(7)",
        )
    })
}

/// Whether a starter has ended, as far as this process can tell.
fn is_gone(starter: Starter, namespace: u64) -> bool {
    if starter.namespace != namespace {
        return false;
    }
    let pid = starter.pid.get();
    match procfs::read_stat(pid) {
        Ok(stat) => stat.start_time != starter.start_time || stat.state == 'Z',
        // Some machines hide other users' processes.
        Err(_) => sys::kill(pid, 0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH)),
    }
}

fn end_chosen(roots: &[Pinned], is_marked: impl Fn(&Mark) -> bool) -> io::Result<()> {
    let mut roots = roots.to_vec();
    for _ in 0..ROUNDS {
        let mut caught = HashMap::new();
        let stopped = stop_all(&roots, &is_marked, &mut caught);
        if stopped.is_err() {
            for root in &roots {
                drop(super::signal::send(*root, libc::SIGKILL));
            }
        }
        for target in caught.values() {
            // It may have ended by itself meanwhile.
            drop(target.send(libc::SIGKILL));
        }
        stopped?;
        if caught.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + ENDS_WITHIN;
        for target in caught.values() {
            target.wait_end(until.saturating_duration_since(Instant::now()));
        }
        // Processes that were started in the last moment have lost their parents. They are found by their mark.
        roots.clear();
    }
    Ok(())
}

/// Stops all chosen processes and their descendants, until a search finds no new one.
fn stop_all(
    roots: &[Pinned],
    is_marked: &impl Fn(&Mark) -> bool,
    caught: &mut HashMap<i32, Target>,
) -> io::Result<()> {
    for _ in 0..LOOKS {
        let known: HashSet<i32> = caught.keys().copied().collect();
        let fresh = choose(&list()?, roots, &known, is_marked, std::process::id().cast_signed());
        if fresh.is_empty() {
            return Ok(());
        }
        for process in fresh {
            // A process that has ended meanwhile needs no stop.
            if let Some(target) = Target::find(process)? {
                drop(target.send(libc::SIGSTOP));
                caught.insert(process.pid, target);
            }
        }
    }
    Ok(())
}

/// The processes in `all` that are to be ended and are not yet `known`. Never this process (`own`), its ancestors or
/// its descendants.
fn choose(
    all: &[Seen],
    roots: &[Pinned],
    known: &HashSet<i32>,
    is_marked: &impl Fn(&Mark) -> bool,
    own: i32,
) -> Vec<Pinned> {
    let parents: HashMap<i32, i32> = all.iter().map(|seen| (seen.process.pid, seen.parent)).collect();
    // The pairs were read at different moments, so they may form a circle.
    let up = |pid: i32| {
        std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
            .take(parents.len().saturating_add(1))
    };
    let above: HashSet<i32> = up(own).collect();
    let itself: HashSet<i32> = all
        .iter()
        .filter(|seen| {
            roots.contains(&seen.process)
                || known.contains(&seen.process.pid)
                || seen.mark.as_ref().is_some_and(is_marked)
        })
        .map(|seen| seen.process.pid)
        .collect();
    let is_meant = |seen: &&Seen| {
        let pid = seen.process.pid;
        !known.contains(&pid)
            && !above.contains(&pid)
            && up(pid).take_while(|pid| *pid != own).any(|pid| itself.contains(&pid) && !above.contains(&pid))
            && !up(pid).any(|pid| pid == own)
    };
    all.iter().filter(is_meant).map(|seen| seen.process).collect()
}

/// The processes of this user that have not ended.
fn list() -> io::Result<Vec<Seen>> {
    use std::os::unix::fs::MetadataExt;
    let (own, boot) = (geteuid().as_raw(), read_boot()?);
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end during the search.
        if !entry.metadata().is_ok_and(|it| it.uid() == own) {
            continue;
        }
        let Some(stat) = procfs::find_stat(pid)? else { continue };
        if matches!(stat.state, 'Z' | 'X') {
            continue;
        }
        let process = Pinned { pid, start_time: stat.start_time };
        all.push(Seen { process, parent: stat.parent, mark: read_mark(pid, &boot) });
    }
    Ok(all)
}

/// The mark of a process, if it was given on this boot of this machine and in the same job. A process has no
/// environment for a moment during `execve`.
fn read_mark(pid: i32, boot: &[u8]) -> Option<Mark> {
    const TRIES: u32 = 3;
    for _ in 0..TRIES {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        if environment.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let mark = Mark::find(&environment)?;
        let cgroup = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
        let there = Origin {
            place: Origin::digest_place(boot, &cgroup),
            job: digest_job(|name| environ::value(&environment, name)),
        };
        return mark.origin.fits(&there).then_some(mark);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: &str = "3kx9w0fz";

    fn mark(pid: i32, start_time: u64, namespace: u64) -> Mark {
        let starter = Starter { pid: Pid::new(pid).unwrap(), start_time, namespace };
        Mark { app: APP.parse().unwrap(), starter, origin: Origin { place: 0, job: 0 } }
    }

    fn seen(pid: i32, parent: i32, marked: bool) -> Seen {
        Seen { process: Pinned { pid, start_time: 1 }, parent, mark: marked.then(|| mark(5, 1, 1)) }
    }

    #[track_caller]
    fn check(all: &[(i32, i32, bool)], roots: &[i32], known: &[i32], expected: &[i32]) {
        const OWN: i32 = 50;
        let all: Vec<Seen> = all.iter().map(|(pid, parent, marked)| seen(*pid, *parent, *marked)).collect();
        let roots: Vec<Pinned> = roots.iter().map(|pid| Pinned { pid: *pid, start_time: 1 }).collect();
        let known = known.iter().copied().collect();
        let chosen = choose(&all, &roots, &known, &|_| true, OWN);
        assert_eq!(chosen.iter().map(|it| it.pid).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_descends_from_a_rank_or_bears_the_mark_is_meant() {
        let all = [
            (1, 0, false),
            (5, 1, false),
            (10, 5, false),
            (11, 10, false),
            (12, 11, false),
            (20, 1, true),
            (21, 20, false),
            (30, 1, false),
        ];
        check(&all, &[10], &[], &[10, 11, 12, 20, 21]);
        check(&all, &[], &[], &[20, 21]);
        check(&all, &[10], &[10, 11, 20], &[12, 21]);
    }

    #[test]
    fn this_process_and_what_is_above_and_below_it_are_not_meant() {
        let all =
            [(1, 0, true), (49, 1, true), (50, 49, true), (51, 50, true), (52, 51, true), (60, 49, true)];
        check(&all, &[51], &[], &[60]);
        check(&[(2, 3, true), (3, 2, true)], &[], &[], &[2, 3]);
    }

    #[test]
    fn a_pid_that_belongs_to_another_process_now_is_no_rank() {
        let all = [seen(10, 1, false)];
        let was = [Pinned { pid: 10, start_time: 2 }];
        assert_eq!(choose(&all, &was, &HashSet::new(), &|_| true, 50), []);
    }

    #[test]
    fn a_starter_is_gone_when_its_pid_is_free_or_somebody_elses() {
        let own = std::process::id().cast_signed();
        let start = procfs::read_stat(own).unwrap().start_time;
        let namespace = read_namespace().unwrap();
        assert!(!is_gone(mark(own, start, namespace).starter, namespace));
        assert!(is_gone(mark(own, start + 1, namespace).starter, namespace));
        assert!(is_gone(mark(i32::MAX, 1, namespace).starter, namespace));
        assert!(!is_gone(mark(i32::MAX, 1, namespace + 1).starter, namespace), "it cannot be known here");
    }
}
