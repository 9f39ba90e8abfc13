//! Frontend and agent are of one release.

use gantry_shared::wire::message::Ticket;
use gantry_types::error::{Failure, Kind};

/// Checks that the frontend which wrote a ticket is of this release.
///
/// # Errors
/// It is of another one.
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
