//! A world before the agent serves it.

use std::os::fd::OwnedFd;

use gantry_shared::wire::mpi::MpiRanks;
use gantry_types::id::Rank;

use super::world::World;

/// A world before the agent serves it.
#[derive(Debug)]
pub(crate) enum Upcoming {
    /// There is none, or the agent serves it already.
    None,
    /// The app's own: its ranks are about to start.
    Known(Box<World>),
    /// The frontend will announce it. These ranks exist by then, at these sockets.
    Told(Vec<(Rank, OwnedFd)>),
}

impl Upcoming {
    /// The world of ranks that a launcher has started.
    pub(crate) fn of_launcher(mpi: MpiRanks) -> Self {
        match mpi {
            MpiRanks::NotServed => Self::None,
            MpiRanks::Join => Self::Told(Vec::new()),
        }
    }

    /// Whether there is one.
    pub(crate) fn is_upcoming(&self) -> bool {
        !matches!(self, Self::None)
    }
}
