//! Which rank a process belongs to: it is a rank, or descends from one.
//!
//! A script that is a rank registers by a command of its own, so the command's ancestors count. The kernel names the
//! process at the other end of a socket, and `/proc` names its parents. If a process between it and the rank has ended,
//! the caller belongs to no rank.

use gantry_types::id::Rank;
use gantry_types::placement::LocalRank;

use crate::process::procfs::read_stat;

/// The most generations between a rank and its caller.
const GENERATIONS: usize = 64;

/// The rank that is this process or one of its ancestors. `None` if there is none.
pub(crate) fn find_rank(pid: i32, ranks: &[LocalRank]) -> Option<Rank> {
    find_rank_by(pid, ranks, |pid| read_stat(pid).ok().map(|stat| stat.parent))
}

fn find_rank_by(pid: i32, ranks: &[LocalRank], parent: impl Fn(i32) -> Option<i32>) -> Option<Rank> {
    let mut pid = pid;
    for _ in 0..GENERATIONS {
        if pid <= 1 {
            return None;
        }
        // Another process may have the pid of a rank that has ended.
        if let Some(rank) = ranks.iter().find(|rank| rank.pid.get() == pid && !rank.state.is_over()) {
            return Some(rank.rank);
        }
        pid = parent(pid)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use gantry_types::id::Pid;
    use gantry_types::status::{ExitStatus, RankState};

    use super::*;

    fn rank(rank: u32, pid: i32, state: RankState) -> LocalRank {
        LocalRank { rank: Rank(rank), pid: Pid::new(pid).unwrap(), exe: "/bin/sh".into(), state }
    }

    #[test]
    fn a_process_is_the_rank_that_it_is_or_comes_from() {
        let ended = RankState::Exited(ExitStatus::Code(0));
        let ranks = [rank(3, 100, RankState::Running), rank(4, 200, RankState::Held), rank(5, 300, ended)];
        // 101 and 102 come from 100; 301 from 300, which has ended; 400 from the agent.
        let parents =
            [(100, 50), (101, 100), (102, 101), (200, 50), (301, 300), (300, 50), (400, 50), (50, 1)];
        let parent = |pid: i32| parents.iter().find(|(child, _)| *child == pid).map(|(_, parent)| *parent);
        let check = |pid: i32, expected: Option<u32>| {
            assert_eq!(find_rank_by(pid, &ranks, parent).map(|rank| rank.0), expected, "{pid}");
        };
        check(100, Some(3));
        check(102, Some(3));
        check(200, Some(4));
        check(300, None);
        check(301, None);
        check(400, None);
        check(999, None);
        assert_eq!(find_rank_by(7, &ranks, |_| Some(7)), None);
    }

    #[test]
    fn our_own_parent_is_found() {
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let ranks = [rank(1, parent, RankState::Running)];
        assert_eq!(find_rank(own, &ranks), Some(Rank(1)));
        assert_eq!(find_rank(own, &[]), None);
    }
}
