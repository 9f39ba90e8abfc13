//! Messages between frontend and agents about MPI worlds.
//!
//! Ranks of one app that agents start themselves have everything in their start order, also [`PmixServer`]. The other
//! messages are about a world of several apps, or of ranks that a launcher has started.

use std::ffi::OsString;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

/// Digits of the placeholder numbers that ranks start with while the real numbers are unknown. The number of any rank
/// fits.
pub const WIDE_DIGITS: usize = 10;

/// How agents serve a launcher's ranks as MPI programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiRanks {
    /// Agents do not serve them: the launcher does.
    #[default]
    NotServed,
    /// They are part of a world, and held until [`JoinWorld`] announces it.
    Join,
}

/// A PMIx server for ranks that agents start themselves, in place of one of PMI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixServer {
    /// The library, where the program's MPI library has one of its own. `None`, or if a node lacks it: the node's own.
    pub library: Option<OsString>,
    /// The name of each node, by its number.
    pub hosts: Vec<String>,
}

/// What ended a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpiEnd {
    /// A rank has requested it with `MPI_Abort`. Libraries also do that when they lose the connection to another rank.
    Aborted,
    /// A signal killed a rank: this is certainly not a consequence of another rank's end.
    Killed,
    /// A rank has left, also by its own SIGABRT, or has violated the protocol.
    Left,
}

/// What a note about an MPI world is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MpiSubject {
    /// A rank has asked for further processes, which gantry does not start.
    Spawn,
    /// A rank has asked for a published name, or to publish one. gantry keeps none.
    Names,
    /// A rank uses a library that the app's server does not serve.
    Foreign,
    /// Hosts do not reach each other.
    Network,
    /// A rank's connection to the app's server was not taken.
    Unserved,
}

/// A note for the user about an MPI world, which goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiNote {
    /// The rank that it is about.
    pub rank: Rank,
    /// What it is about. The frontend passes on the first note about each subject.
    pub subject: MpiSubject,
    /// The sentence, with the remedy.
    pub text: String,
}

/// Announces an MPI world to the agents of an app whose ranks are part of it. Sent once, while the ranks are held or
/// wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinWorld {
    /// The name of its key-value space.
    pub name: String,
    /// The world's ranks on each node, with the nodes of all apps in turn.
    pub layout: Vec<RankSet>,
    /// The world's number for the app's rank 0.
    pub first: Rank,
    /// The app's number in the world.
    pub part: u32,
}
