//! Which ranks have not moved from one look to the next.
//!
//! A rank that computes counts as moving, even in an endless loop: from outside the two look the same. A rank that
//! waits has not moved if the same callers have called the waiting function with the same variables. A loop around
//! that function changes a counter or another variable, so it counts as moving.
//! A communication library may poll while it waits, and use a processor. All other waiting functions are idle: a rank that
//! used a processor, read or wrote has returned from them. A script has variables of its own. Where they have changed,
//! or cannot be read, a rank counts as still only if it is idle.

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::motion::Motion;
use gantry_stack::orders::ranks_of;
use gantry_types::filter::PrefixTree;
use gantry_types::rank_set::RankSet;

use super::classes::{ends, steps_of};
use super::resolve::Resolver;
use super::sets::unite;

/// Functions that may poll while they wait, by the beginning of their names.
const SPINNING: [&str; 9] = [
    "MPI_",
    "MPIX_",
    "shmem_",
    "nccl",
    "rccl",
    "gaspi_",
    "GOMP_barrier",
    "__kmpc_barrier",
    "pthread_spin_lock",
];

/// The functions among them that wait for files. Reading and writing is their progress.
const FILES: &str = "MPI_File_";

/// The ranks that have moved, and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stillness {
    /// All ranks that have not ended.
    pub(crate) live: RankSet,
    pub(crate) moved: RankSet,
    pub(crate) ended: RankSet,
    /// Those of the live ones that no daemon has read.
    pub(crate) unseen: RankSet,
    /// Those of the unseen ones whose daemon has ended.
    pub(crate) without_daemon: RankSet,
}

/// Where a rank was seen, as far as it matters for movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is held or stopped.
    Stopped,
    Ended,
    /// Its stack cannot be read.
    Unreadable,
    /// It waits in a function below this many frames.
    Waits {
        callers: u32,
        may_spin: bool,
        for_files: bool,
    },
    /// It is in a function of its own, below this many frames.
    Elsewhere {
        frames: u32,
    },
}

impl Stillness {
    /// Compares the last call paths, and the changes since the previous request. A node may have answered one request and
    /// not the other: its ranks are missing.
    pub(crate) fn of(
        tree: &PrefixTree,
        resolver: &Resolver,
        samples: u32,
        motions: &[(Motion, RankSet)],
    ) -> Self {
        let mut found = Self::default();
        let compared = unite(motions.iter().map(|(_, ranks)| ranks));
        for (path, numbers) in ends(tree) {
            // The processor time shows whether other threads work.
            if path.iter().any(|frame| matches!(frame, Frame::Mark(Mark::Thread(_)))) {
                continue;
            }
            let ranks = ranks_of(&numbers, samples);
            let place = Place::of(&path, resolver);
            if place == Place::Ended {
                found.ended = found.ended.union(&ranks);
                continue;
            }
            let ranks = ranks.intersection(&compared);
            found.live = found.live.union(&ranks);
            let is_still = |(motion, _): &&(Motion, RankSet)| place.is_still(*motion);
            let still = unite(motions.iter().filter(is_still).map(|(_, ranks)| ranks));
            found.moved = found.moved.union(&ranks.difference(&still));
        }
        // A rank may have ended between two samples of a look.
        found.live = found.live.difference(&found.ended);
        found.moved = found.moved.difference(&found.ended);
        found
    }

    /// The ranks that daemons have read.
    pub(crate) fn seen(&self) -> RankSet {
        self.live.union(&self.ended).difference(&self.unseen)
    }

    /// Adds ranks that no daemon has read. Those that are `over` have ended. The others may have done anything.
    pub(crate) fn add_unseen(&mut self, unseen: &RankSet, over: &RankSet) {
        self.ended = self.ended.union(&unseen.intersection(over));
        self.unseen = unseen.difference(over);
        self.live = self.live.union(&self.unseen);
    }

    /// Whether there are live ranks and no daemon has read any of them.
    pub(crate) fn is_blind(&self) -> bool {
        !self.live.is_empty() && self.live == self.unseen
    }

    /// Whether daemons have read live ranks and none of these has moved.
    pub(crate) fn is_still(&self) -> bool {
        self.live != self.unseen && self.moved.is_empty()
    }
}

impl Place {
    fn of(path: &[Frame], resolver: &Resolver) -> Self {
        let mut frames = 0;
        for frame in path {
            match frame {
                Frame::Mark(Mark::Held | Mark::Stopped) => return Self::Stopped,
                Frame::Mark(Mark::Ended) => return Self::Ended,
                Frame::Mark(Mark::Unreadable(_) | Mark::Kernel(_)) => return Self::Unreadable,
                Frame::Mark(Mark::Thread(_)) | Frame::Script(_) => continue,
                Frame::LeftOut { code, .. } => {
                    frames += code;
                    continue;
                }
                Frame::Code { .. } | Frame::Unknown => {}
            }
            if let Some(step) = steps_of(frame, resolver).into_iter().find(|step| step.waits) {
                let name = super::waiting::waiting_name(&step.name).unwrap_or_default();
                let may_spin = SPINNING.iter().any(|family| name.starts_with(family));
                return Self::Waits { callers: frames, may_spin, for_files: name.starts_with(FILES) };
            }
            frames += 1;
        }
        Self::Elsewhere { frames }
    }

    fn is_still(self, motion: Motion) -> bool {
        let stood = |frames| motion.steady.is_some_and(|steady| steady >= frames);
        let idle = !motion.is_busy && !motion.is_busy_elsewhere && !motion.has_read_or_written;
        let may_work = motion.is_busy_elsewhere || motion.has_other_variables;
        match self {
            Self::Stopped | Self::Ended => true,
            Self::Unreadable => idle,
            Self::Waits { callers, may_spin: true, for_files } => {
                let reads_or_writes = for_files && motion.has_read_or_written;
                stood(callers) && (idle || !(may_work || reads_or_writes))
            }
            Self::Waits { callers, may_spin: false, .. } => stood(callers) && idle,
            Self::Elsewhere { frames } => stood(frames) && idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_stack::module::ModuleId;
    use gantry_stack::symbols::Found;

    use super::*;

    /// A resolver with functions at addresses of one file: `ab+1` is the first.
    fn resolver(functions: &[&str]) -> Resolver {
        let mut found = PrefixTree::new();
        for (address, function) in functions.iter().enumerate() {
            let call =
                gantry_stack::frame::Call { function: Some((*function).to_owned()), ..Default::default() };
            let text = Found { inlined: false, call }.to_text();
            let place = Frame::Code { module: ModuleId::parse("ab").unwrap(), address: address as u64 + 1 };
            found.add([place.to_string().as_str(), &text], &RankSet::first_n(1)).unwrap();
        }
        let mut resolver = Resolver::default();
        resolver.take_found(&found);
        resolver
    }

    #[track_caller]
    fn check(path: &str, motion: &str, is_still: bool) {
        let resolver = resolver(&["main", "solve", "PMPI_Allreduce", "poll", "read", "MPI_File_read_all"]);
        let mut tree = PrefixTree::new();
        tree.add(path.split(' '), &"0-3".parse().unwrap()).unwrap();
        let motion = Motion::parse(motion).unwrap();
        let found = Stillness::of(&tree, &resolver, 2, &[(motion, RankSet::first_n(2))]);
        assert_eq!(found.is_still(), is_still, "{path} with {motion}");
        assert_eq!(found.live.union(&found.ended).to_string(), "0-1");
    }

    #[test]
    fn a_rank_that_computes_moves_and_one_that_waits_does_not() {
        let (main, solve, allreduce, poll, read, file) = ("ab+1", "ab+2", "ab+3", "ab+4", "ab+5", "ab+6");
        // A rank that waits in MPI polls below the same callers.
        let waits = format!("{main} {solve} {allreduce} {poll}");
        check(&waits, "2 c", true);
        check(&waits, "2 ci", true);
        check(&waits, "1 c", false);
        check(&waits, "4 t", false);
        // A wait for files makes progress while they are read.
        check(&format!("{main} {file}"), "1 c", true);
        check(&format!("{main} {file}"), "1 i", false);
        // Callers may be left out.
        let deep = format!("{main} ~9+7 {allreduce}");
        check(&deep, "8 c", true);
        check(&deep, "7 c", false);
        // A wait in the kernel uses no processor time.
        for wait in [poll, read] {
            check(&format!("{main} {wait}"), "2 ", true);
            check(&format!("{main} {wait}"), "1 ", true);
            check(&format!("{main} {wait}"), "0 ", false);
            check(&format!("{main} {wait}"), "2 c", false);
            check(&format!("{main} {wait}"), "2 i", false);
            check(&format!("{main} {wait}"), "2 t", false);
        }
        // From outside, an endless loop looks like work.
        check(&format!("{main} {solve}"), "2 c", false);
        check(&format!("{main} {solve}"), "1 ", false);
        check(&format!("{main} {solve}"), "2 ", true);
    }

    #[test]
    fn a_rank_whose_script_has_other_variables_stands_still_only_when_it_does_nothing() {
        let call = gantry_stack::frame::Call { function: Some("train".to_owned()), ..Default::default() };
        let script = Frame::Script(call);
        let path = |wait| format!("ab+1 {script} {wait}");
        let (allreduce, poll) = (path("ab+3"), path("ab+4"));
        check(&allreduce, "1 c", true);
        check(&allreduce, "1 vc", false);
        check(&allreduce, "0 c", false);
        check(&poll, "1 c", false);
        for wait in [allreduce, poll] {
            check(&wait, "1 ", true);
            check(&wait, "1 v", true);
            check(&wait, "0 v", false);
        }
    }

    #[test]
    fn stopped_ranks_stand_still_and_ended_ones_are_not_counted() {
        check("!stopped ab+1", "0 cti", true);
        check("!held ab+1", "0 ", true);
        check("!unreadable x", "- ", true);
        check("!unreadable x", "- i", false);
        check("!ended", "- ", false);
        let mut tree = PrefixTree::new();
        tree.add(["ab+1"], &"0-1".parse().unwrap()).unwrap();
        // The daemon has just begun.
        let motions = [(Motion::parse("1 ").unwrap(), "0"), (Motion::UNKNOWN, "1")];
        let motions = motions.map(|(motion, ranks)| (motion, ranks.parse().unwrap()));
        let found = Stillness::of(&tree, &resolver(&["main"]), 1, &motions);
        assert_eq!(found.moved.to_string(), "1");
    }

    #[test]
    fn a_rank_that_no_daemon_has_read_neither_moves_nor_stands_still() {
        let mut tree = PrefixTree::new();
        // The node of ranks 1 to 3 has fallen silent since.
        tree.add(["ab+1"], &RankSet::first_n(4)).unwrap();
        let motions = [(Motion::parse("1 ").unwrap(), RankSet::first_n(1))];
        let seen = Stillness::of(&tree, &resolver(&["main"]), 1, &motions);
        assert!(seen.is_still() && !seen.is_blind() && seen.seen() == RankSet::first_n(1));
        let check = |seen: &Stillness, unseen: &str, over: &str, expected: [&str; 2], is_still| {
            let mut found = seen.clone();
            found.add_unseen(&unseen.parse().unwrap(), &over.parse().unwrap());
            assert_eq!([&found.unseen, &found.ended].map(RankSet::to_string), expected, "{unseen} {over}");
            assert_eq!((found.is_still(), found.moved.is_empty()), (is_still, true), "{unseen} {over}");
        };
        check(&seen, "1-3", "", ["1-3", ""], true);
        check(&seen, "1-3", "2", ["1,3", "2"], true);
        check(&seen, "1-3", "0-3", ["", "1-3"], true);
        let none = Stillness::default();
        check(&none, "0-3", "", ["0-3", ""], false);
        check(&none, "0-3", "0-3", ["", "0-3"], false);
    }
}
