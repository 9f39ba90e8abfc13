//! What frontend and agents say to each other of an MPI world that is made of several apps, or of ranks that a launcher has started.
//!
//! Ranks of one app that agents start themselves need none of this: their order to start says all.

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

/// Digits of the numbers that ranks begin with where the numbers are not known yet. Any rank has room for its own in there.
pub const WIDE_DIGITS: usize = 10;

/// How the ranks of a launcher are served as MPI programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiRanks {
    /// They are not: the launcher does that.
    #[default]
    NotServed,
    /// They are part of a world, and held until it is told by [`JoinWorld`].
    Join,
}

/// What has ended a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiEnd {
    /// A rank has asked for it, by `MPI_Abort`. Libraries also do that when they lose the way to another rank.
    Aborted,
    /// A rank was killed by a signal: surely not because another one has ended.
    Killed,
    /// A rank has left, by its own SIGABRT too, or has broken the rules.
    Left,
}

/// An MPI world, told to the agents of an app whose ranks are part of it. Comes once, while the ranks are held or wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinWorld {
    /// The name of its key-value space.
    pub name: String,
    /// Which of its ranks each node has, with the nodes of all apps in turn.
    pub layout: Vec<RankSet>,
    /// The number in the world of the app's rank 0.
    pub first: Rank,
    /// The number of the app among those of the world.
    pub part: u32,
    /// Whether it is made of several apps: what a fence brings is then one level higher.
    pub shared: bool,
}
