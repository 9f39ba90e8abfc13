//! A world that is not served yet.

use std::os::fd::OwnedFd;

use gantry_shared::wire::mpi::MpiRanks;
use gantry_types::id::Rank;

use super::world::World;

/// A world that is not served yet.
#[derive(Debug)]
pub(crate) enum Upcoming {
    /// There is none, or it is served already.
    None,
    /// The app's own: its ranks are about to start.
    Known(Box<World>),
    /// It will be told. These ranks are there by then, at these sockets.
    Told(Vec<(Rank, OwnedFd)>),
}

impl Upcoming {
    /// That of ranks that a launcher has started.
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
