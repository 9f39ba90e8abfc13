//! Finds the ranks of a running app on this machine: by their pids, or beneath a launcher.

use std::path::PathBuf;

use gantry_types::id::Pid;
use gantry_types::placement::{Placement, PlacementBuilder};

use crate::beneath::{Beneath, MAX_PROCESSES, check_complete, children, exe_of, find_beneath};
use crate::host::{Host, check_process};
use crate::{Error, Result};

/// Parses `PID` or `PID,PID,...`; the order is the order of ranks.
pub(super) fn parse_pids(text: &str) -> Result<Vec<Pid>> {
    let hint = "write a launcher's pid, or the pids of the ranks in order, with commas between";
    let mut pids = Vec::new();
    for part in text.split(',') {
        let pid = part.trim().parse().ok().and_then(Pid::new);
        let pid = pid.ok_or_else(|| Error::invalid_with(format!("'{part}' is not a pid"), hint))?;
        if pids.contains(&pid) {
            return Err(Error::invalid(format!("pid {pid} is named twice")));
        }
        pids.push(pid);
    }
    Ok(pids)
}

/// The ranks that `target` names: by pids, or as `PID.NAME`, the processes with that name beneath one.
pub(crate) fn find_target(target: &str, host: &dyn Host) -> Result<Placement> {
    match target.split_once('.') {
        Some((parent, name)) if !name.is_empty() => find_named(parent, name, host),
        _ => find_ranks(&parse_pids(target)?, host),
    }
}

/// The nearest processes with that name beneath `parent`, in the order of their pids.
fn find_named(parent: &str, name: &str, host: &dyn Host) -> Result<Placement> {
    let [parent] = parse_pids(parent)?[..] else {
        return Err(Error::invalid(format!("'{parent}.{name}' names more than one process")));
    };
    check_process(parent, host)?;
    let is_named = |pid: &Pid| {
        let comm = host.read(&PathBuf::from(format!("/proc/{pid}/comm"))).unwrap_or_default();
        comm.trim_ascii_end() == name.as_bytes()
    };
    let mut found = Vec::new();
    let mut level = children(parent, host);
    let mut seen = 0;
    while !level.is_empty() && seen < MAX_PROCESSES {
        seen += level.len();
        let (named, others): (Vec<Pid>, Vec<Pid>) = level.into_iter().partition(is_named);
        found.extend(named);
        level = others.into_iter().flat_map(|pid| children(pid, host)).collect();
    }
    if found.is_empty() {
        return Err(Error::not_found(
            format!("there is no process named '{name}' beneath {parent}"),
            "the name is that of /proc/PID/comm, of at most 15 characters",
        ));
    }
    found.sort_unstable();
    place_here(&found, host)
}

/// The ranks: those beneath a single pid if that is a launcher, else the pids themselves.
pub(super) fn find_ranks(pids: &[Pid], host: &dyn Host) -> Result<Placement> {
    for pid in pids {
        check_process(*pid, host)?;
    }
    let beneath = match pids {
        [launcher] => ranks_beneath(*launcher, host)?,
        _ => Vec::new(),
    };
    place_here(if beneath.is_empty() { pids } else { &beneath }, host)
}

/// The ranks below a launcher, in order; empty if there are none.
fn ranks_beneath(launcher: Pid, host: &dyn Host) -> Result<Vec<Pid>> {
    let found = find_beneath(launcher, host)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let told: Vec<(u32, Option<u32>)> = found.iter().map(|it| (it.rank, it.size)).collect();
    check_complete(&told).map_err(|why| {
        Error::not_found(
            format!("the processes beneath {launcher} {why}"),
            "some ranks have ended or run on other nodes: name with --wlm how to reach those, or give the pids to attach to these",
        )
    })?;
    Ok(found.into_iter().map(|Beneath { pid, .. }| pid).collect())
}

fn place_here(ranks: &[Pid], host: &dyn Host) -> Result<Placement> {
    let name = host.hostname();
    let mut placement = PlacementBuilder::new();
    for pid in ranks {
        placement.push(&name, Some(*pid), &exe_of(*pid, host)).map_err(|e| Error::invalid(e.to_string()))?;
    }
    Ok(placement.build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn process(host: FakeHost, pid: u32, children: &str, environment: &str) -> FakeHost {
        host.with_file(format!("/proc/{pid}/status"), "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
            .with_file(format!("/proc/{pid}/task/{pid}/children"), children)
            .with_file(format!("/proc/{pid}/environ"), environment)
            .with_link(format!("/proc/{pid}/exe"), "/bin/app")
    }

    fn check(host: &FakeHost, target: &str, expected: std::result::Result<&[i32], &str>) {
        let found = find_target(target, host);
        match (found, expected) {
            (Ok(placement), Ok(expected)) => {
                let pids: Vec<i32> = placement.iter().map(|rank| rank.pid.unwrap().get()).collect();
                assert_eq!(pids, expected, "{target}");
            }
            (Err(error), Err(text)) => assert_eq!(error.to_string(), text, "{target}"),
            (found, expected) => panic!("{target}: {found:?}, expected {expected:?}"),
        }
    }

    /// A launcher 10 with a helper 11. The helper has the ranks 12 and 13. Rank 13 has a child process.
    fn launcher() -> FakeHost {
        let host = process(FakeHost::default(), 10, "11 ", "A=b\0");
        let host = process(host, 11, "13 12 ", "A=b\0");
        let host = process(host, 12, "", "PMI_RANK=0\0PMI_SIZE=2\0");
        let host = process(host, 13, "14", "PMI_RANK=1\0");
        process(host, 14, "", "PMI_RANK=1\0")
    }

    #[test]
    fn ranks_beneath_a_launcher_in_rank_order() {
        check(&launcher(), "10", Ok(&[12, 13]));
    }

    #[test]
    fn pids_are_taken_in_the_order_given() {
        check(&launcher(), "13,12", Ok(&[13, 12]));
        check(&launcher(), "12", Ok(&[12]));
    }

    #[test]
    fn processes_of_a_name_beneath_one() {
        let host = launcher().with_file("/proc/12/comm", "app\n").with_file("/proc/13/comm", "app\n");
        // A child of an `app` is part of that app.
        let host = host.with_file("/proc/14/comm", "app\n").with_file("/proc/11/comm", "proxy\n");
        check(&host, "10.app", Ok(&[12, 13]));
        check(&host, "11.app", Ok(&[12, 13]));
        check(&host, "10.proxy", Ok(&[11]));
        check(&host, "10.other", Err("there is no process named 'other' beneath 10"));
        check(&host, "77.app", Err("there is no process 77 on fake"));
        check(&host, "10,11.app", Err("'10,11.app' names more than one process"));
    }

    #[test]
    fn targets_that_cannot_be_attached_to() {
        check(&launcher(), "77", Err("there is no process 77 on fake"));
        check(&launcher(), "x", Err("'x' is not a pid"));
        check(&launcher(), "0", Err("'0' is not a pid"));
        check(&launcher(), "12,12", Err("pid 12 is named twice"));
        let foreign = FakeHost::default().with_file("/proc/5/status", "Uid:\t0\t0\t0\t0\n");
        check(&foreign, "5", Err("process 5 belongs to another user"));
    }

    #[test]
    fn a_missing_rank_is_said() {
        let host = process(FakeHost::default(), 10, "11 12", "");
        let host = process(process(host, 11, "", "PMI_RANK=0\0"), 12, "", "PMI_RANK=2\0");
        check(&host, "10", Err("the processes beneath 10 have the ranks 0,2, which is not 0 and up"));
        let host = process(FakeHost::default(), 10, "11", "");
        let host = process(host, 11, "", "PMI_RANK=0\0PMI_SIZE=3\0");
        check(&host, "10", Err("the processes beneath 10 are 1 of 3 ranks"));
    }
}
