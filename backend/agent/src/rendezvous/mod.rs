//! Rendezvous on a node: where ranks register data and wait for others'.
//!
//! [`service`] has the socket and one task for each process that asks; [`caller`] finds out which rank that is. [`desk`] is what the agent's loop knows of
//! it: who waits for what, what is on its way up, which aggregates are here. The gathering itself is the frontend's. [`link`] carries what a rank of a co-allocated job and its
//! frontend say to each other.

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

/// Binds the socket of an agent whose ranks may have been started without it.
///
/// # Errors
/// As [`bind`].
pub(crate) fn bind_own(ticket: &Ticket) -> Result<Socket, Failure> {
    // On a machine that plays several nodes the first agent has it, and all tell their ranks their own names.
    Socket::bind_own(ticket.app, &ticket.secret).or_else(|_| bind(ticket))
}

/// Binds this agent's socket.
///
/// # Errors
/// The system has no socket for it, or the name is taken.
pub(crate) fn bind(ticket: &Ticket) -> Result<Socket, Failure> {
    Socket::bind(ticket.app, &ticket.secret)
        .map_err(|error| failure::from_io("listen for ranks that exchange data", &error))
}
