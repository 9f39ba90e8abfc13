//! Checks that frontend and agent have the same release.

use gantry_shared::wire::message::Ticket;
use gantry_types::error::{Failure, Kind};

/// Checks that the frontend that wrote a ticket has this release.
///
/// # Errors
/// The frontend has another release.
pub(crate) fn check_release(ticket: &Ticket) -> Result<(), Failure> {
    if ticket.release != env!("CARGO_PKG_VERSION") {
        let versions = format!(
            "the frontend is version {}, this agent is {}",
            ticket.release,
            env!("CARGO_PKG_VERSION")
        );
        return Err(
            Failure::new(Kind::Unsupported, versions).with_hint("install all of gantry from one version")
        );
    }
    Ok(())
}
