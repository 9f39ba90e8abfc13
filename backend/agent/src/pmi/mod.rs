//! One MPI world of the ranks that this agent and the app's others have started: a server of PMI-1 and PMI-2, by which MPI libraries find out who they are and where the
//! others listen.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`message`] | messages, read and built; pure |
//! | `mapping` | which rank is on which node, as MPI libraries read it |
//! | `world` | what ranks are told, what they have put, who is in the fence; it decides and never waits |
//! | `serve` | the ranks' sockets |
//!
//! A rank inherits its socket as the descriptor that `PMI_FD` names. A node answers all questions itself. A fence is one rendezvous of the nodes
//! (`Resource::Fence`): what the ranks of a node have put goes up as one item, and what all have put comes down.

mod mapping;
pub mod message;
mod serve;
mod world;

pub(crate) use serve::{Server, Wish, open_socket};
pub(crate) use world::{Failed, World};

use gantry_types::id::Rank;

use crate::process::SERVED;

/// Variables that lead a program to another server, or say of it what is not so.
pub(crate) const FOREIGN: [&str; 4] = ["PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_APPNUM"];

/// What a rank is told: where its socket is, which rank it is, and, in Hydra's words, the same of its node.
pub(crate) fn build_variables(
    rank: Rank,
    size: u32,
    (local, locals): (usize, usize),
) -> [(&'static str, String); 5] {
    [
        ("PMI_FD", SERVED.to_string()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", size.to_string()),
        ("MPI_LOCALRANKID", local.to_string()),
        ("MPI_LOCALNRANKS", locals.to_string()),
    ]
}
