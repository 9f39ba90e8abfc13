//! What an agent is told before it has a link.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rendezvous::handle::Subjob;
use crate::secret::Secret;
use gantry_types::id::AppId;

/// An agent's ticket: one frame on its standard input, read before anything else. It is never in argv.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// Version of the program that wrote the ticket; the agent refuses any version but its own.
    pub release: String,
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
