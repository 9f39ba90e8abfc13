//! A world whose ranks speak to a PMIx library, not to the agent.
//!
//! The library answers ranks, and knows which of them wait in a fence. It tells how ranks come and go, and asks for what
//! all nodes have put. The rules are those of PMI.

use gantry_shared::wire::mpi::{MpiEnd, MpiNote, MpiSubject};
use gantry_types::id::Rank;
use gantry_types::rendezvous::{Data, Limits};
use gantry_types::status::ExitStatus;

use super::{Deed, Failed, NAMES, SPAWN, Stage, World};
use crate::pmix::FromServer;

impl World {
    /// The same world, for ranks of a library.
    pub(crate) fn of_library(self) -> Self {
        Self { by_library: true, ..self }
    }

    /// Takes a message of the library, and the bytes behind it.
    ///
    /// # Errors
    /// It must not say that now.
    pub(in crate::pmi) fn hear_library(
        &mut self,
        message: FromServer,
        puts: Vec<u8>,
    ) -> Result<(), &'static str> {
        match message {
            FromServer::Joined(rank) => self.joined_library(rank),
            FromServer::Left(rank) => self.left_library(rank),
            FromServer::Aborted(rank, code) => self.aborted_library(rank, code),
            FromServer::Asked(rank, subject) => self.asked_library(rank, subject),
            FromServer::Fence { .. } => self.enter_library(puts),
            FromServer::Variables(..) | FromServer::Ready(_) | FromServer::Failed(_) => {
                return Err("comes too late");
            }
        }
        Ok(())
    }

    /// A rank has begun.
    fn joined_library(&mut self, rank: Rank) {
        if self.over || !self.members.contains_key(&rank) {
            return;
        }
        if let Some(member) = self.members.get_mut(&rank).filter(|it| it.stage == Stage::Silent) {
            member.stage = Stage::Joined;
        }
        // It waits for all ranks before it is through MPI_Init.
        if let Some((gone, status)) = self.find_ended() {
            self.miss(gone, status);
        }
    }

    /// A rank has left in good order.
    fn left_library(&mut self, rank: Rank) {
        if let Some(member) = self.members.get_mut(&rank).filter(|it| it.stage == Stage::Joined) {
            member.stage = Stage::Left;
        }
    }

    /// A rank has called MPI_Abort.
    fn aborted_library(&mut self, rank: Rank, code: i32) {
        if self.members.contains_key(&rank) {
            drop(self.abort(rank, Some(code)));
        }
    }

    /// A rank asks for something that is not served.
    fn asked_library(&mut self, rank: Rank, subject: MpiSubject) {
        let what = match subject {
            MpiSubject::Spawn => &SPAWN,
            MpiSubject::Names => &NAMES,
            MpiSubject::Foreign | MpiSubject::Network | MpiSubject::Unserved => return,
        };
        if !self.members.contains_key(&rank) || self.over {
            return;
        }
        let text = format!(
            "{} asks for {}, and gantry does not {}: use the library's launcher, --launcher mpirun",
            self.name_of(rank),
            what.call,
            what.why
        );
        self.deeds.push(Deed::Note(MpiNote { rank, subject, text }));
    }

    /// All ranks of this node that live are in the fence.
    fn enter_library(&mut self, puts: Vec<u8>) {
        if self.over {
            return;
        }
        if let Some((gone, status)) = self.find_ended() {
            return self.miss(gone, status);
        }
        let by = self.first_member();
        if self.nodes > 1 {
            self.fresh.clone_from(&puts);
            self.deeds.push(Deed::Fence { number: self.fences, by, puts });
        } else {
            self.answer_library(puts);
        }
    }

    /// The library's process has ended.
    pub(in crate::pmi) fn library_ended(&mut self, library: &str) {
        let gone = |member: &super::Member| matches!(member.stage, Stage::Left | Stage::Ended(_));
        if self.members.values().all(gone) {
            return;
        }
        let why = format!("the process that serves PMIx to the ranks, by {library}, has ended");
        self.end_with(Failed { rank: self.first_member(), code: 1, why, end: MpiEnd::Left });
    }

    /// The library has sent something invalid.
    pub(in crate::pmi) fn refuse_library(&mut self, library: &str, what: &str) {
        let why = format!(
            "the process that serves PMIx to the ranks, by {library}, has sent an invalid message: it {what}"
        );
        self.end_with(Failed { rank: self.first_member(), code: 1, why, end: MpiEnd::Left });
    }

    /// Puts together what all nodes have put: the library wants it as one piece.
    pub(super) fn join_puts(&mut self, all: &[u8]) -> Result<(), &'static str> {
        let nodes = Data::decode(1, all, Limits::default()).map_err(|_| "malformed")?;
        let items = nodes.as_group().unwrap_or_default().iter().filter_map(Data::as_item);
        let joined = items.collect::<Vec<_>>().concat();
        self.answer_library(joined);
        Ok(())
    }

    /// The fence is complete, with this data.
    pub(super) fn answer_library(&mut self, all: Vec<u8>) {
        self.fences = self.fences.wrapping_add(1);
        self.fresh = Vec::new();
        self.deeds.push(Deed::Answer(all));
    }

    /// Whether ranks wait for one that has ended before it had sent anything: they are in MPI_Init, or on the way there.
    pub(super) fn waits_for_silent(&self) -> bool {
        self.by_library && self.members.values().any(|member| member.stage == Stage::Joined)
    }

    fn find_ended(&self) -> Option<(Rank, ExitStatus)> {
        self.members.iter().find_map(|(rank, member)| match member.stage {
            Stage::Ended(status) => Some((*rank, status)),
            Stage::Silent | Stage::Joined | Stage::Left => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::rank_set::RankSet;
    use gantry_types::rendezvous::codec::{Head, write_item};

    use super::*;

    /// A world with two nodes of two ranks, of which this one has the first two.
    fn world() -> World {
        let layout: Vec<RankSet> = ["0-1", "2-3"].map(|ranks| ranks.parse().unwrap()).to_vec();
        let all: RankSet = "0-3".parse().unwrap();
        World::new("gantry_x".to_owned(), &layout, &[&all], &[Rank(0), Rank(1)]).of_library()
    }

    fn failure(world: &mut World) -> Option<(u32, i32, String)> {
        world.take_deeds().into_iter().find_map(|deed| match deed {
            Deed::End(failed) => Some((failed.rank.0, failed.code, failed.why)),
            _ => None,
        })
    }

    #[test]
    fn what_all_nodes_put_comes_back_as_one_piece() {
        let mut world = world();
        (0..2).for_each(|rank| world.joined_library(Rank(rank)));
        for number in 0..2 {
            world.enter_library(b"ab".to_vec());
            let fence = Deed::Fence { number, by: Rank(0), puts: b"ab".to_vec() };
            assert_eq!(world.take_deeds(), [fence]);
            let mut all = Head::new(2).as_bytes().to_vec();
            for item in [&b"ab"[..], b"cde"] {
                write_item(&mut all, item).unwrap();
            }
            world.fenced(&all);
            assert_eq!(world.take_deeds(), [Deed::Answer(b"abcde".to_vec())]);
        }
        world.fenced(b"nonsense");
        assert_eq!(failure(&mut world).unwrap().2, "what ranks have put came back malformed");
    }

    #[test]
    fn a_rank_that_never_begins_is_missed_by_those_that_have() {
        let killed = ExitStatus::Code(3);
        let mut one = world();
        one.joined_library(Rank(0));
        one.ended(Rank(1), killed);
        assert_eq!(failure(&mut one).unwrap().0, 1);
        let mut other = world();
        other.ended(Rank(1), killed);
        assert_eq!(failure(&mut other), None);
        other.joined_library(Rank(0));
        let why = "rank 1 ended (exit code 3), and the others wait for it".to_owned();
        assert_eq!(failure(&mut other), Some((1, 3, why)));
    }

    #[test]
    fn who_leaves_in_good_order_may_end_with_any_code() {
        let mut world = world();
        (0..2).for_each(|rank| world.joined_library(Rank(rank)));
        world.left_library(Rank(0));
        world.ended(Rank(0), ExitStatus::Code(5));
        assert_eq!(failure(&mut world), None);
        world.ended(Rank(1), ExitStatus::Code(5));
        let why = "rank 1 ended before MPI_Finalize: exit code 5".to_owned();
        assert_eq!(failure(&mut world), Some((1, 5, why)));
        world.aborted_library(Rank(0), 7);
        assert_eq!(failure(&mut world), None, "it is over");
    }

    #[test]
    fn the_end_of_the_library_matters_as_long_as_ranks_need_it() {
        let mut one = world();
        one.joined_library(Rank(0));
        one.library_ended("/l/libpmix.so.2");
        let why = "the process that serves PMIx to the ranks, by /l/libpmix.so.2, has ended".to_owned();
        assert_eq!(failure(&mut one), Some((0, 1, why)));
        let mut other = world();
        (0..2).for_each(|rank| other.joined_library(Rank(rank)));
        (0..2).for_each(|rank| other.left_library(Rank(rank)));
        other.library_ended("/l/libpmix.so.2");
        assert_eq!(failure(&mut other), None);
    }

    #[test]
    fn ranks_of_others_are_nobody_here() {
        let mut world = world();
        world.joined_library(Rank(9));
        world.left_library(Rank(9));
        world.aborted_library(Rank(9), 1);
        world.asked_library(Rank(9), MpiSubject::Spawn);
        assert_eq!(world.take_deeds(), []);
        world.asked_library(Rank(1), MpiSubject::Spawn);
        let [Deed::Note(note)] = &world.take_deeds()[..] else { panic!("one note") };
        assert!(note.text.ends_with("use the library's launcher, --launcher mpirun"), "{}", note.text);
    }
}
