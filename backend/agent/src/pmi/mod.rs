//! One MPI world of the ranks that this agent and the app's others have started: a server of PMI-1 and PMI-2, by which MPI libraries find out who they are and where the
//! others listen.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`message`] | messages, read and built; pure |
//! | `mapping` | which rank is on which node, as MPI libraries read it |
//! | `world` | what ranks are told, what they have put, who is in the fence; it decides and never waits |
//! | `serve` | the ranks' sockets |
//! | `upcoming` | a world that is not served yet |
//!
//! A rank inherits its socket as the descriptor that `PMI_FD` names. A node answers all questions itself. A fence is one rendezvous of the nodes
//! (`Resource::Fence`): what the ranks of a node have put goes up as one item, and what all have put comes down.

mod mapping;
pub mod message;
mod serve;
mod world;
mod upcoming;

pub(crate) use serve::{Server, Wish, open_socket};
pub(crate) use upcoming::Upcoming;
pub(crate) use world::{Failed, World};

use std::os::fd::RawFd;

use gantry_shared::wire::mpi::WIDE_DIGITS;
use gantry_types::id::Rank;

/// Variables that lead a program to another server, or say of it what is not so.
pub(crate) const FOREIGN: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_APPNUM"];

/// Which rank it is.
const PMI_RANK: &str = "PMI_RANK";

/// How many there are.
const PMI_SIZE: &str = "PMI_SIZE";

/// What a rank is told: where its socket is, which rank it is, and, in Hydra's words, the same of its node. `wide`: its number is not known yet, and there is room for it.
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
