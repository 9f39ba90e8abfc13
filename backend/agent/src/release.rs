//! The failure for a ticket that this agent cannot take.

use gantry_shared::wire::message::TicketError;
use gantry_types::error::{Failure, Kind};

use crate::ranks::with_causes;

/// Explains why a ticket is refused.
pub(crate) fn refuse(error: &TicketError) -> Failure {
    match error {
        TicketError::OtherBuild(_) => Failure::new(Kind::Unsupported, error.to_string())
            .with_hint("install all of gantry from one version"),
        _ => Failure::new(Kind::Protocol, with_causes(error)),
    }
}
