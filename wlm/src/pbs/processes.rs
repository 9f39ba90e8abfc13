//! The processes of a job on this machine, from `/proc`. The variables that PBS gives to every process of a job
//! identify them.

use std::path::{Path, PathBuf};

use gantry_shared::environ;
use gantry_types::id::Pid;

use super::tm::environment::{JOB, TASK};
use crate::host::Host;

/// Variables with a rank's number and the number of ranks: those of gantry's agents, and those of launchers.
const RANKS: [(&str, &str); 4] = [
    ("GANTRY_RANK", "GANTRY_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
];

/// The task that is a job's script, or its interactive shell.
pub(super) const SCRIPT: u32 = 1;

/// A process of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    /// The process that leads its session.
    pub(super) session: i32,
    /// When it was started, in the kernel's ticks.
    pub(super) started: u64,
    /// The first letters of its program's name.
    pub(super) name: String,
    /// The task of the job that it belongs to.
    pub(super) task: u32,
    /// Its rank number, if a launcher or an agent has started it or an ancestor, and the number of ranks if known.
    pub(super) rank: Option<(u32, Option<u32>)>,
}

impl Process {
    /// Whether it is a process of gantry, and so no part of the job's own work.
    pub(super) fn is_ours(&self) -> bool {
        self.name.starts_with("gantry")
    }
}

/// All processes of the job that this user may inspect, in the order in which they were started.
pub(super) fn find(job: &[u8], host: &dyn Host) -> Vec<Process> {
    let names = host.list(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|name| Pid::new(name.to_str()?.parse().ok()?));
    let mut all: Vec<Process> = pids.filter_map(|pid| read(pid, job, host)).collect();
    all.sort_by_key(|process| (process.started, process.pid.get()));
    all
}

fn read(pid: Pid, job: &[u8], host: &dyn Host) -> Option<Process> {
    // It may have ended meanwhile, or belong to another user.
    let variables = host.read(&PathBuf::from(format!("/proc/{pid}/environ"))).ok()?;
    if environ::value(&variables, JOB)? != job {
        return None;
    }
    let text = |name| std::str::from_utf8(environ::value(&variables, name)?).ok();
    let task = u32::from_str_radix(text(TASK)?, 16).ok()?;
    let number = |name| text(name)?.parse().ok();
    let rank = RANKS.iter().find_map(|(rank, size)| Some((number(rank)?, number(size))));
    let stat = host.read(&PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    // The name may contain any character. Source: proc_pid_stat(5).
    let (front, back) = stat.rsplit_once(')')?;
    let name = front.split_once('(')?.1.to_owned();
    let mut fields = back.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    (state != "Z").then_some(Process { pid, parent, session, started, name, task, rank })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// Adds a process: its pid, parent, session, name, task, and its rank if it has one.
    pub(in super::super) fn with(
        host: FakeHost,
        (pid, parent, session): (i32, i32, i32),
        name: &str,
        task: u32,
        rank: &str,
    ) -> FakeHost {
        let rank = if rank.is_empty() { String::new() } else { format!("PMI_SIZE=2\0PMI_RANK={rank}\0") };
        let variables = format!("A=1\0PBS_JOBID=7.head\0PBS_TASKNUM={task:08X}\0{rank}");
        let stat = format!(
            "{pid} ({name}) S {parent} {session} {session} 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 {pid}00 0 0"
        );
        host.with_file(format!("/proc/{pid}/environ"), variables).with_file(format!("/proc/{pid}/stat"), stat)
    }

    #[test]
    fn processes_of_the_job_in_the_order_of_their_starts() {
        let host = with(FakeHost::default(), (30, 1, 30), "a) (b", 1, "");
        let host = with(host, (20, 30, 30), "app", 0x4000_0001, "3");
        let host = host.with_file("/proc/40/environ", "PBS_JOBID=7\0").with_file("/proc/self/stat", "");
        let found = find(b"7.head", &host);
        let shown: Vec<_> = found.iter().map(|it| (it.pid.get(), it.parent, it.name.as_str())).collect();
        assert_eq!(shown, [(20, 30, "app"), (30, 1, "a) (b")]);
        assert_eq!((found[0].task, found[0].rank, found[0].started), (0x4000_0001, Some((3, Some(2))), 2000));
        assert!(find(b"8.head", &host).is_empty());
    }
}
