//! What a tool daemon and its node's agent say to each other over the agent's private socket.
//!
//! Same frames as everywhere, without the encryption: a Unix socket in a directory of mode 0700, and both ends check the other's user id.

use gantry_types::error::Failure;
use gantry_types::id::{AppId, DaemonId, NodeId, SessionId};
use gantry_types::placement::LocalRank;
use gantry_types::session_dirs::SessionDirs;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Version of this dialogue; the first thing that a daemon says.
pub const VERSION: u16 = 3;

/// The token that a daemon is given and says with its hello. Ranks, which are the same user's processes, are not given it. They could take it from a
/// daemon's environment all the same: the system keeps processes of one user apart by nothing.
#[must_use]
pub fn build_token(secret: &Secret, session: SessionId, daemon: DaemonId) -> String {
    secret.derive(&format!("daemon {daemon} of session {session}"))
}

/// A daemon's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// First of all: who asks. Answered by [`Tell::Node`].
    Hello {
        /// The version that the daemon's library speaks.
        version: u16,
        /// From the daemon's environment.
        session: SessionId,
        /// From the daemon's environment.
        daemon: DaemonId,
        /// From the daemon's environment: what [`build_token`] has made.
        token: String,
    },
    /// The ranks of this node as they are now. Answered by [`Tell::Ranks`].
    Ranks,
    /// From here on this connection is the daemon's end of its session's channel. Answered by [`Tell::Channel`]; what follows is said in the
    /// language of [`channel`](super::channel).
    Channel,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// Where the daemon is.
    Node(NodeFacts),
    /// The node's ranks.
    Ranks(Vec<LocalRank>),
    /// The channel is open.
    Channel,
    /// The request was refused.
    Refused(Failure),
}

/// Where a daemon is.
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
