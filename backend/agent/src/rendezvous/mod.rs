//! Rendezvous on a node: where ranks register data and wait for the data of others.
//!
//! [`service`] has the socket, and one task for each process that asks. [`caller`] finds the rank of that process.
//! [`desk`] is the state in the agent's loop: which process waits for what, which items are on their way up, which
//! aggregates are here. The frontend gathers the items. [`link`] carries the bytes between a rank of a co-allocated job
//! and its frontend.

pub(crate) mod caller;
pub(crate) mod command;
pub(crate) mod desk;
pub(crate) mod link;
mod room;
pub(crate) mod service;

pub(crate) use desk::{Desk, Request};
pub(crate) use room::Room;
pub(crate) use service::Socket;

use gantry_shared::wire::message::Ticket;
use gantry_types::error::Failure;

use crate::failure;

/// Binds the socket of an agent whose ranks may have been started by other programs.
///
/// # Errors
/// As [`bind`].
pub(crate) fn bind_own(ticket: &Ticket) -> Result<Socket, Failure> {
    // On a machine that plays several nodes the first agent gets this name. All agents give their ranks their own
    // names.
    Socket::bind_own(ticket.app, &ticket.secret).or_else(|_| bind(ticket))
}

/// Binds this agent's socket.
///
/// # Errors
/// The system refuses a socket, or the name is taken.
pub(crate) fn bind(ticket: &Ticket) -> Result<Socket, Failure> {
    Socket::bind(ticket.app, &ticket.secret)
        .map_err(|error| failure::from_io("listen for ranks that exchange data", &error))
}
