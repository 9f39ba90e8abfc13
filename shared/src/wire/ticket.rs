//! What an agent is told before it has a link.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::build::{self, OtherBuild};
use super::frame::{self, FrameError};
use crate::rendezvous::handle::Subjob;
use crate::secret::Secret;
use gantry_types::id::AppId;

/// An agent's ticket: one frame on its standard input, read before anything else. It is never in argv. The build that
/// wrote it comes first; the agent refuses any build but its own.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The app that the agent serves.
    pub app: AppId,
    /// The app's secret; every link proves that it knows it.
    pub secret: Secret,
    /// Addresses of the frontend, best first. The agent tries all of them side by side.
    pub frontend: Vec<SocketAddr>,
    /// The WLM's name for this node.
    pub host: String,
    /// The WLM's name, for daemons that ask.
    pub wlm: String,
    /// Directory for session storage, if the user asked for one.
    pub stage_base: Option<OsString>,
    /// Prefixes of variables that processes get from the agent's own environment, not from the frontend's.
    pub node_variables: Vec<String>,
    /// Timeout for reaching the frontend or a parent.
    pub patience: Duration,
    /// The app's place in a multijob.
    pub subjob: Option<Subjob>,
}

/// Why a text is not a ticket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// It is not made of hexadecimal digits. The text is not shown: it holds a secret.
    #[error("read GANTRY_TICKET: it is not hexadecimal digits")]
    NotHex,
    /// Another build wrote it.
    #[error(transparent)]
    OtherBuild(#[from] OtherBuild),
    /// The bytes are not a ticket.
    #[error("read the ticket")]
    Malformed(#[from] FrameError),
}

impl Ticket {
    /// The ticket's frame.
    ///
    /// # Errors
    /// It is too large.
    pub fn to_frame(&self) -> Result<Vec<u8>, FrameError> {
        let body = build::stamp(&Zeroizing::new(frame::encode_body(self)?));
        Ok([&frame::build_prefix(body.len())?[..], body.as_slice()].concat())
    }

    /// The ticket in a frame of [`Ticket::to_frame`], without the prefix.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn from_body(body: &[u8]) -> Result<Self, TicketError> {
        Ok(frame::decode(build::check(body)?)?)
    }
}
