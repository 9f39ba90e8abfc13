//! A node's part of an MPI world that takes any input, for fuzzing: messages of ranks, their ends, and what fences
//! bring. It checks what must hold whatever happens.

use gantry_shared::wire::mpi::JoinWorld;
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use gantry_types::rendezvous::codec::{Head, write_item};
use gantry_types::status::ExitStatus;
use tokio::sync::oneshot;

use super::message::Message;
use super::world::{Deed, Heard, World};

/// The ranks of this node. Another node has one more.
pub const RANKS: u32 = 3;

/// A rule that the world has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(&'static str);

/// A world with two nodes, and what is known of it from outside.
#[derive(Debug)]
pub struct Trial {
    world: World,
    /// Answers that ranks wait for.
    waiting: Vec<oneshot::Receiver<Vec<u8>>>,
    /// What this node has put, while a fence is open.
    open: Option<Vec<u8>>,
    fences: u32,
    is_over: bool,
}

impl Trial {
    /// A world of one app, or of several: then a fence's data is one level higher.
    #[must_use]
    pub fn new(shared: bool) -> Self {
        let mine: Vec<Rank> = (0..RANKS).map(Rank).collect();
        let layout = vec![RankSet::first_n(RANKS), RankSet::from_range(Rank(RANKS)..=Rank(RANKS))];
        let name = "trial".to_owned();
        let world = if shared {
            World::joined(&JoinWorld { name, layout, first: Rank(0), part: 0 }, &mine)
        } else {
            World::new(name, &layout, &[], &mine)
        };
        Self { world, waiting: Vec::new(), open: None, fences: 0, is_over: false }
    }

    /// A rank sends these bytes. What is behind the first message is dropped.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn say(&mut self, rank: u32, bytes: &[u8]) -> Result<(), Broken> {
        let rank = Rank(rank % RANKS);
        let heard = match Message::take(bytes) {
            Ok(None) => return Ok(()),
            Ok(Some((message, _))) => self.world.hear(rank, &message),
            Err(malformed) => self.world.refuse(rank, malformed.0),
        };
        match heard {
            Heard::Answer(_) | Heard::Later(_) if self.is_over => {
                return Err(Broken("a world that is over answers"));
            }
            Heard::Answer(answer) if answer.is_empty() => return Err(Broken("an answer is empty")),
            Heard::Later(answer) => self.waiting.push(answer),
            Heard::Answer(_) | Heard::Nothing => {}
        }
        self.check()
    }

    /// A rank's process ends.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn end(&mut self, rank: u32, code: i32) -> Result<(), Broken> {
        self.world.ended(Rank(rank % RANKS), ExitStatus::Code(code));
        self.check()
    }

    /// The open fence brings these bytes. None: what this node has put, and nothing of the other.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn fence(&mut self, bytes: Option<&[u8]>) -> Result<(), Broken> {
        let Some(puts) = self.open.take() else { return Ok(()) };
        let mut own = Head::new(1).as_bytes().to_vec();
        // A write to memory cannot fail.
        drop(write_item(&mut own, &puts));
        self.world.fenced(bytes.unwrap_or(&own));
        self.check()?;
        self.waiting.retain_mut(|answer| answer.try_recv().is_err());
        Ok(())
    }

    /// Takes the world's deeds, and compares them with the rules.
    fn check(&mut self) -> Result<(), Broken> {
        for deed in self.world.take_deeds() {
            match deed {
                _ if self.is_over => return Err(Broken("a world that is over still acts")),
                Deed::End(_) => self.is_over = true,
                Deed::Note(_) | Deed::Outlive(_) => {}
                Deed::Answer(_) => return Err(Broken("a world without a library answers one")),
                Deed::Fence { .. } if self.open.is_some() => {
                    return Err(Broken("a fence opens within a fence"));
                }
                Deed::Fence { number, .. } if number != self.fences => {
                    return Err(Broken("fences are not numbered in turn"));
                }
                Deed::Fence { puts, .. } => {
                    self.fences += 1;
                    self.open = Some(puts);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message that a rank might send, or nearly.
    fn said() -> impl Strategy<Value = Vec<u8>> {
        let commands = prop::sample::select(vec![
            "cmd=init pmi_version=1 pmi_subversion=1\n",
            "cmd=put key=a value=b\n",
            "cmd=get key=a\n",
            "cmd=barrier_in\n",
            "cmd=barrier_in\n",
            "cmd=finalize\n",
            "cmd=abort exitcode=3\n",
            "cmd=dance\n",
            "mcmd=spawn\ntotspawns=2\nspawnssofar=1\nendcmd\n",
            "    16cmd=kvs-fence;;;",
            "hello\n",
        ]);
        commands.prop_map(|text| text.as_bytes().to_vec())
    }

    proptest! {
        #[test]
        fn no_order_of_messages_ends_and_fences_breaks_a_rule(
            shared: bool,
            steps in prop::collection::vec((0..8_u8, 0..RANKS, said()), 0..60),
        ) {
            let mut trial = Trial::new(shared);
            for rank in 0..RANKS {
                trial.say(rank, b"cmd=init pmi_version=1 pmi_subversion=1\n").unwrap();
            }
            for (what, rank, bytes) in steps {
                match what {
                    0 => trial.end(rank, i32::from(bytes.len() % 2 == 1)),
                    1 => trial.fence(Some(&bytes)),
                    2 => trial.fence(None),
                    _ => trial.say(rank, &bytes),
                }.unwrap();
            }
        }
    }
}
