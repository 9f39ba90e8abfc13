//! Finds running ranks of this node by the variables that their launcher has set in their environment.
//!
//! A rank's children inherit that environment, so one of its variables has to be the pid of the rank itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gantry_shared::environ;
use gantry_shared::wire::message::RankMarks;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{Pid, Rank};
use gantry_types::rank_set::RankSet;

/// The processes of `wanted`, by rank. Looks at every process with a readable environment: those of this user.
///
/// # Errors
/// A rank has no process or two.
pub(crate) fn find_ranks(wanted: &RankSet, marks: &RankMarks) -> Result<Vec<(Rank, Pid)>, Failure> {
    find_ranks_in(Path::new("/proc"), wanted, marks)
}

fn find_ranks_in(proc: &Path, wanted: &RankSet, marks: &RankMarks) -> Result<Vec<(Rank, Pid)>, Failure> {
    let entries = proc.read_dir().map_err(|error| crate::failure::from_io("list processes", &error))?;
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::new(name.parse().ok()?)) else {
            continue;
        };
        // The process may have ended, or belong to another user.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let Some(rank) = parse_rank(&environment, pid, marks).filter(|rank| wanted.contains(*rank)) else {
            continue;
        };
        if let Some(other) = found.insert(rank, pid) {
            let message = format!("processes {other} and {pid} both claim to be rank {rank}");
            return Err(Failure::new(Kind::Protocol, message));
        }
    }
    let missing: RankSet = wanted.iter().filter(|rank| !found.contains_key(rank)).collect();
    if missing.is_empty() {
        return Ok(found.into_iter().collect());
    }
    let message = format!("no process on this node is rank {missing} of the app to attach to");
    Err(Failure::new(Kind::NotFound, message)
        .with_hint("it has ended, or cleared its environment before it started"))
}

/// The rank of process `pid` with this environment, if any.
fn parse_rank(environment: &[u8], pid: Pid, marks: &RankMarks) -> Option<Rank> {
    let value = |name: &OsStr| environ::value(environment, name).map(OsStr::from_bytes);
    let number = |name: &OsStr| value(name)?.to_str();
    let is_marked = marks.variables.iter().all(|(name, expected)| value(name) == Some(expected));
    let is_itself = number(&marks.pid)?.parse() == Ok(pid.get());
    (is_marked && is_itself).then(|| number(&marks.rank)?.parse().ok().map(Rank)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> RankMarks {
        RankMarks { variables: vec![("JOB".into(), "7".into())], rank: "RANK".into(), pid: "TASK".into() }
    }

    #[test]
    fn a_rank_is_known_by_its_job_and_its_own_pid() {
        let check = |environment: &str, expected: Option<u32>| {
            let environment = environment.replace(' ', "\0");
            let found = parse_rank(environment.as_bytes(), Pid::new(40).unwrap(), &marks());
            assert_eq!(found, expected.map(Rank), "{environment}");
        };
        check("A=1 JOB=7 RANK=3 TASK=40 ", Some(3));
        check("JOB=7 RANK=3 TASK=41", None);
        check("JOB=8 RANK=3 TASK=40", None);
        check("JOB=77 RANK=3 TASK=40", None);
        check("XJOB=7 RANK=3 TASK=40", None);
        check("JOB=7 RANK=x TASK=40", None);
        check("JOB=7 TASK=40", None);
        check("", None);
    }

    #[test]
    fn all_wanted_ranks_must_be_there_once() {
        let proc = tempfile::tempdir().unwrap();
        let add = |pid: u32, environment: &str| {
            std::fs::create_dir(proc.path().join(pid.to_string())).unwrap();
            std::fs::write(proc.path().join(format!("{pid}/environ")), environment.replace(' ', "\0"))
                .unwrap();
        };
        add(10, "JOB=7 RANK=1 TASK=10");
        add(11, "JOB=7 RANK=1 TASK=10");
        add(12, "JOB=7 RANK=0 TASK=12");
        std::fs::create_dir(proc.path().join("sys")).unwrap();
        let find = |wanted: &str| find_ranks_in(proc.path(), &wanted.parse().unwrap(), &marks());
        let pid = |pid| Pid::new(pid).unwrap();
        assert_eq!(find("0-1").unwrap(), [(Rank(0), pid(12)), (Rank(1), pid(10))]);
        assert_eq!(find("1").unwrap(), [(Rank(1), pid(10))]);
        assert!(find("0-2").unwrap_err().to_string().contains("rank 2 "));
        add(13, "JOB=7 RANK=0 TASK=13");
        assert!(find("0").unwrap_err().to_string().contains("both claim"));
    }
}
