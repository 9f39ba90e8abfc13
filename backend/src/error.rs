//! Errors of a daemon, sorted by the daemon's remedy.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::rendezvous::Broken;

/// Why a daemon could not get its node's data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This process was not started as a tool daemon.
    #[error("find this node's agent: not started by gantry ({variable} is not set)")]
    NotStartedByGantry {
        /// The variable that every tool daemon has.
        variable: &'static str,
    },
    /// A program between the agent and this process has changed a variable that gantry set.
    #[error("find this node's agent: {variable} is {value:?}, which gantry does not set")]
    BadEnvironment {
        /// The variable.
        variable: &'static str,
        /// Its value; empty when it is missing although another one is set.
        value: OsString,
    },
    /// No agent listens. It has ended, or this process sees another file system than the agent (a container). The
    /// session is over.
    #[error("reach this node's agent at {}", .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The socket belongs to another user, so it is not used. See which user runs this process.
    #[error("trust the agent at {}: it belongs to user {found}, this process to user {expected}", .socket.display())]
    ForeignAgent {
        /// The socket.
        socket: PathBuf,
        /// Its owner.
        found: u32,
        /// The user of this process.
        expected: u32,
    },
    /// The agent did not answer in time. The node is overloaded, or the agent is stopped: connect again, with a longer
    /// timeout.
    #[error("{phase}: no answer in {} s", .after.as_secs_f64())]
    TimedOut {
        /// The attempted step.
        phase: &'static str,
        /// How long the call waited.
        after: Duration,
    },
    /// The agent refused and gave a reason; the hint names the remedy.
    #[error("get an answer from this node's agent")]
    Refused(#[source] Failure),
    /// The rendezvous cannot be completed: a member ended before it had registered.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The agent broke the protocol. Library and agent may be of different releases.
    #[error("read the answer of this node's agent")]
    Protocol(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer does not match the question, or the connection had failed before.
    #[error("ask this node's agent: {reason}")]
    Unusable {
        /// The problem of the connection.
        reason: &'static str,
    },
    /// A message or a contribution exceeds its limit.
    #[error("send {bytes} bytes: at most {limit} are allowed")]
    TooLong {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The connection broke: the agent has ended, and the session with it. Clean up and leave.
    #[error("ask this node's agent: the connection is lost")]
    Lost(#[source] Option<io::Error>),
}

impl Error {
    pub(crate) fn protocol(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Protocol(error.into())
    }

    /// The kind by the caller's remedy, as for all errors of gantry.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotStartedByGantry { .. } => Kind::NotFound,
            Self::BadEnvironment { .. } | Self::TooLong { .. } => Kind::Invalid,
            Self::Unreachable { .. } => Kind::Gone,
            Self::ForeignAgent { .. } => Kind::NoAccess,
            Self::TimedOut { .. } => Kind::TimedOut,
            Self::Refused(failure) => failure.kind(),
            Self::Protocol(_) => Kind::Protocol,
            Self::Broken(_) | Self::Unusable { .. } | Self::Lost(_) => Kind::Lost,
        }
    }

    /// The user's remedy, if it is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NotStartedByGantry { .. } => Some("start this program as a tool daemon of a session"),
            Self::BadEnvironment { .. } => Some("keep the variables that begin with GANTRY_ as they are"),
            Self::Refused(failure) => failure.hint(),
            _ => None,
        }
    }
}
