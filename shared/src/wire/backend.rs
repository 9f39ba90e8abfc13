//! The protocol between a tool daemon and its node's agent, on the agent's private socket.
//!
//! It uses the same frames as the rest of the wire, without the encryption: a Unix socket in a directory of mode 0700,
//! and both ends check the other's user id.

use gantry_types::error::Failure;
use gantry_types::id::{AppId, DaemonId, NodeId, SessionId};
use gantry_types::placement::LocalRank;
use gantry_types::session_dirs::SessionDirs;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Version of this protocol, the first field that a daemon sends.
pub const VERSION: u16 = 4;

/// Makes the token that a daemon gets and sends with its hello.
///
/// Ranks, which are processes of the same user, do not get it. They could still take it from a daemon's environment:
/// the system does not separate processes of one user.
#[must_use]
pub fn build_token(secret: &Secret, session: SessionId, daemon: DaemonId) -> String {
    secret.derive(&format!("daemon {daemon} of session {session}"))
}

/// A daemon's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The first request: identifies the daemon. Answered by [`Tell::Node`].
    Hello {
        /// The protocol version of the daemon's library.
        version: u16,
        /// From the daemon's environment.
        session: SessionId,
        /// From the daemon's environment.
        daemon: DaemonId,
        /// From the daemon's environment: the token that [`build_token`] has made.
        token: String,
    },
    /// The ranks of this node as they are now. Answered by [`Tell::Ranks`].
    Ranks,
    /// From here on this connection is the daemon's end of its session's channel. Answered by [`Tell::Channel`]; after
    /// that it carries the messages of [`channel`](super::channel).
    Channel,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// The daemon's place.
    Node(NodeFacts),
    /// The node's ranks.
    Ranks(Vec<LocalRank>),
    /// The channel is open.
    Channel,
    /// The request was refused.
    Refused(Failure),
}

/// The place of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The workload manager's name.
    pub wlm: String,
    /// The app.
    pub app: AppId,
    /// This node's name as the WLM knows it.
    pub host: String,
    /// This node's number.
    pub node: NodeId,
    /// Number of nodes of the app.
    pub nodes: u32,
    /// Number of ranks of the app.
    pub size: u32,
    /// The session's directories on this node.
    pub dirs: SessionDirs,
}
