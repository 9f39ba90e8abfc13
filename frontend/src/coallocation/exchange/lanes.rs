//! The lanes of a job: which there are, and of them those that a message, a bridge or the end of a link has to do with.

use std::collections::{HashMap, HashSet};

use gantry_shared::wire::bridge::{BridgeNumber, LaneNumber};
use gantry_shared::wire::runtime::Scope;
use gantry_types::id::{NodeId, Rank};
use gantry_types::runtime::Peer;

use super::mailbox::LinkId;
use crate::coallocation::state::SubjobId;

/// Lanes that may end at one rank: each may keep a window of memory on its node.
pub(super) const AT_ONE_RANK: usize = 64;

/// An agent, by its app.
pub(super) type Agent = (SubjobId, NodeId);

/// A rank.
pub(super) type Process = (SubjobId, Rank);

/// What goes from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Course {
    pub(super) from: Process,
    pub(super) scope: Scope,
    pub(super) to: Process,
}

/// An end of it, as who sends and who receives say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: LinkId,
    pub(super) to: LinkId,
    /// Whom it is for.
    pub(super) receiver: Peer,
    /// Whom it is from.
    pub(super) sender: Peer,
}

/// A lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) course: Course,
    pub(super) bridge: BridgeNumber,
    pub(super) ends: Ends,
}

/// All lanes. Every message that goes by the frontend asks here, so what it asks for is not searched.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    all: HashMap<LaneNumber, Lane>,
    courses: HashSet<Course>,
    ending: HashMap<Process, usize>,
    next: LaneNumber,
}

impl Lanes {
    /// Gives a lane its number. None: there is one of its course already, or its receiver has enough.
    pub(super) fn add(&mut self, lane: Lane) -> Option<LaneNumber> {
        let course = lane.course;
        let ending = self.ending.get(&course.to).copied().unwrap_or_default();
        if self.courses.contains(&course) || ending >= AT_ONE_RANK {
            return None;
        }
        let number = self.next;
        self.next = number.checked_add(1)?;
        self.courses.insert(course);
        self.ending.insert(course.to, ending + 1);
        self.all.insert(number, lane);
        Some(number)
    }

    pub(super) fn get(&self, number: LaneNumber) -> Option<&Lane> {
        self.all.get(&number)
    }

    /// Whether there is a lane over this bridge.
    pub(super) fn use_bridge(&self, bridge: BridgeNumber) -> bool {
        self.all.values().any(|lane| lane.bridge == bridge)
    }

    /// Forgets those lanes, and gives them.
    pub(super) fn take(&mut self, which: impl Fn(&Lane) -> bool) -> Vec<(LaneNumber, Lane)> {
        let taken: Vec<_> = self.all.extract_if(|_, lane| which(lane)).collect();
        for (_, lane) in &taken {
            self.courses.remove(&lane.course);
            if let Some(ending) = self.ending.get_mut(&lane.course.to) {
                *ending -= 1;
            }
        }
        self.ending.retain(|_, ending| *ending > 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(from: u32, to: u32) -> Lane {
        let process = |rank| (SubjobId(0), Rank(rank));
        let address = |rank| Peer { subjob: 0, rank: Rank(rank) };
        let ends = Ends {
            from: (NodeId(0), from),
            to: (NodeId(0), to),
            receiver: address(to),
            sender: address(from),
        };
        Lane { course: Course { from: process(from), scope: Scope::Job, to: process(to) }, bridge: 1, ends }
    }

    #[test]
    fn a_course_has_one_lane_and_a_rank_has_so_many() {
        let mut lanes = Lanes::default();
        assert_eq!(
            (lanes.add(lane(1, 0)), lanes.add(lane(1, 0)), lanes.add(lane(0, 1))),
            (Some(0), None, Some(1))
        );
        let most = u32::try_from(AT_ONE_RANK).unwrap();
        assert!((2..=most).all(|from| lanes.add(lane(from, 0)).is_some()));
        assert_eq!(lanes.add(lane(most + 1, 0)), None);
        // What one gives up another may have, and it itself again.
        assert_eq!(lanes.take(|lane| lane.course.from.1 == Rank(1)).len(), 1);
        assert!(lanes.add(lane(most + 1, 0)).is_some());
        assert_eq!(lanes.add(lane(1, 0)), None);
        assert_eq!(lanes.take(|_| true).len(), AT_ONE_RANK + 1);
        assert!(lanes.add(lane(1, 0)).is_some() && lanes.use_bridge(1) && !lanes.use_bridge(2));
    }
}
