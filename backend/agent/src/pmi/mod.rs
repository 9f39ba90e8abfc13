//! A server of PMI-1 and PMI-2: it makes the app's ranks on all nodes one MPI world.
//!
//! By PMI an MPI library finds out its rank, and where the others listen.
//!
//! | module | contents |
//! | --- | --- |
//! | [`message`] | messages, parsed and built; pure |
//! | `mapping` | which rank is on which node, in the form that MPI libraries read |
//! | `world` | answers to ranks, their puts, the ranks in the fence; it decides and never waits |
//! | `foreign` | finds processes whose MPI library does not speak PMI |
//! | `line` | the line to a process that runs a PMIx library for the ranks |
//! | `serve` | the ranks' sockets, and that line |
//! | `trial` | a world with any input, for fuzzing; only with the feature `fuzz`, and in tests |
//! | `upcoming` | a world before the agent serves it |
//!
//! Ranks of Open MPI speak to a PMIx library instead (`pmix`). Its messages end in the same world.
//!
//! A rank inherits its socket as the descriptor that `PMI_FD` names. A node answers all questions itself. A fence is
//! one rendezvous of the nodes (`Resource::Fence`). What the ranks of a node have put goes up as one item. What the
//! ranks of all nodes have put comes down.

mod mapping;
pub mod message;
mod foreign;
mod line;
mod serve;
mod world;
mod upcoming;
#[cfg(any(test, feature = "fuzz"))]
pub mod trial;

pub(crate) use serve::{Server, Wish, open_socket};
pub(crate) use upcoming::Upcoming;
pub(crate) use world::{Failed, World};

use std::os::fd::RawFd;

use gantry_shared::wire::mpi::WIDE_DIGITS;
use gantry_types::id::Rank;

/// Variables that lead a program to another server, or describe that server's world.
pub(crate) const FOREIGN: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_APPNUM"];

/// The rank's number.
const PMI_RANK: &str = "PMI_RANK";

/// The number of ranks.
const PMI_SIZE: &str = "PMI_SIZE";

/// A rank's variables: its socket, its number, and the same for its node by the names of Hydra.
///
/// `wide`: the rank's final number is not known yet, so the variables leave room for it.
pub(crate) fn build_variables(
    socket: RawFd,
    (rank, size): (Rank, u32),
    (local, locals): (usize, usize),
    wide: bool,
) -> [(&'static str, String); 5] {
    let width = if wide { WIDE_DIGITS } else { 1 };
    [
        ("PMI_FD", socket.to_string()),
        (PMI_RANK, format!("{:0width$}", rank.0)),
        (PMI_SIZE, format!("{size:0width$}")),
        ("MPI_LOCALRANKID", local.to_string()),
        ("MPI_LOCALNRANKS", locals.to_string()),
    ]
}

/// Variables with the number that a rank has in a world of several apps, and with that world's size.
pub(crate) fn build_numbers(rank: u32, size: u32) -> [(&'static str, String); 2] {
    [(PMI_RANK, rank.to_string()), (PMI_SIZE, size.to_string())]
}
