//! Finds the ranks beneath a process on this machine: processes with a rank number from a launcher in their
//! environment.
//!
//! A rank's own children inherit that environment. So of several processes with the same number, the one nearest to the
//! launcher counts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gantry_shared::environ;
use gantry_types::id::Pid;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::{Error, Result};

/// Variables in which launchers pass a process its rank.
const RANK_VARIABLES: [&str; 5] =
    ["GANTRY_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_RANK"];

/// Variables in which launchers tell a process the number of ranks.
const SIZE_VARIABLES: [&str; 3] = ["GANTRY_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The maximum number of processes examined beneath a launcher.
pub(crate) const MAX_PROCESSES: usize = 1_000_000;

/// A rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beneath {
    pub(crate) rank: u32,
    /// The number of ranks on all hosts, if its environment tells.
    pub(crate) size: Option<u32>,
    pub(crate) pid: Pid,
    /// Its executable. Empty: unknown.
    pub(crate) exe: String,
}

/// Finds the ranks beneath `launcher`, in order. Walks level by level, nearest first.
///
/// # Errors
/// There are too many processes.
pub(crate) fn find_beneath(launcher: Pid, host: &dyn Host) -> Result<Vec<Beneath>> {
    let mut found: BTreeMap<u32, (Pid, Option<u32>)> = BTreeMap::new();
    let mut level = children(launcher, host);
    let mut seen = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        for pid in level {
            seen += 1;
            if seen > MAX_PROCESSES {
                return Err(Error::invalid(format!(
                    "more than {MAX_PROCESSES} processes beneath {launcher}"
                )));
            }
            let environment = host.read(&PathBuf::from(format!("/proc/{pid}/environ"))).unwrap_or_default();
            if let Some(rank) = parse_first(&environment, &RANK_VARIABLES) {
                found.entry(rank).or_insert((pid, parse_first(&environment, &SIZE_VARIABLES)));
            }
            next.extend(children(pid, host));
        }
        level = next;
    }
    let ranks = found.into_iter();
    Ok(ranks.map(|(rank, (pid, size))| Beneath { rank, size, pid, exe: exe_of(pid, host) }).collect())
}

/// Checks that the ranks are complete. Gets their sorted numbers, each with its size if known.
///
/// # Errors
/// Describes the processes instead; the text follows "the processes".
pub(crate) fn check_complete(ranks: &[(u32, Option<u32>)]) -> std::result::Result<(), String> {
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let size = ranks.iter().filter_map(|(_, size)| *size).max();
    match size {
        _ if ranks.is_empty() => Err("are not its ranks".to_owned()),
        _ if !ranks.iter().map(|(rank, _)| *rank).eq(0..count) => {
            let numbers = ranks.iter().map(|(rank, _)| rank.to_string()).collect::<Vec<_>>().join(",");
            Err(format!("have the ranks {numbers}, which is not 0 and up"))
        }
        Some(size) if size > count => Err(format!("are {count} of {size} ranks")),
        _ => Ok(()),
    }
}

/// The direct children of a process' first thread. An ended process has none.
pub(crate) fn children(pid: Pid, host: &dyn Host) -> Vec<Pid> {
    let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let text = host.read(&path).unwrap_or_default();
    String::from_utf8_lossy(&text).split_whitespace().filter_map(|pid| Pid::new(pid.parse().ok()?)).collect()
}

/// Whether a process is a descendant of another one.
pub(crate) fn is_below(pid: Pid, above: Pid, host: &dyn Host) -> bool {
    let parent = |of: &Pid| {
        let text = host.read(&PathBuf::from(format!("/proc/{of}/status"))).ok()?;
        let text = String::from_utf8_lossy(&text);
        let parent = text.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Pid::new(parent.trim().parse().ok()?)
    };
    // Reused pids could form a cycle.
    std::iter::successors(parent(&pid), parent).take(MAX_ABOVE).any(|it| it == above)
}

/// The maximum number of generations examined.
const MAX_ABOVE: usize = 64;

/// The first of these variables with a number, in an environment with the format of `/proc/PID/environ`.
fn parse_first(environment: &[u8], names: &[&str]) -> Option<u32> {
    let number = |name| std::str::from_utf8(environ::value(environment, name)?).ok()?.parse().ok();
    names.iter().find_map(number)
}

/// The executable of a process. Empty: unknown.
pub(crate) fn exe_of(pid: Pid, host: &dyn Host) -> String {
    match host.read_link(&PathBuf::from(format!("/proc/{pid}/exe"))) {
        Ok(path) => OsStr::from_bytes(path.as_os_str().as_bytes()).to_string_lossy().into_owned(),
        Err(_) => String::new(),
    }
}
