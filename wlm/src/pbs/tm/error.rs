//! Errors between a client and its mom, with the request.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};

use super::code::Code;
use super::dis::DisError;
use super::id::NodeId;
use super::packet::PacketError;
use super::request::Verb;

/// Result with [`TmError`].
pub(super) type Result<T> = std::result::Result<T, TmError>;

/// A request and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The command.
    pub verb: Verb,
    /// The node that it was for.
    pub node: Option<NodeId>,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb)?;
        self.node.map_or(Ok(()), |node| write!(f, " on {node}"))
    }
}

/// Why a request was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TmError {
    /// The process is not in a job, or its variables have been changed.
    #[error("use the task management of PBS: {variable} {problem}")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// The problem. The value is not shown.
        problem: &'static str,
    },
    /// No mom listens on this host.
    #[error("connect to the mom at {address}")]
    Connect {
        /// Where it should be.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: Arc<io::Error>,
    },
    /// The mom has refused.
    #[error("{asked}: {code}")]
    Refused {
        /// The request.
        asked: Asked,
        /// The error number.
        code: Code,
    },
    /// The connection ended before the answer arrived.
    #[error("{asked}: {loss}")]
    Lost {
        /// The request.
        asked: Asked,
        /// How it ended.
        loss: Loss,
    },
    /// There was no answer within the timeout.
    #[error("{asked}: no answer within {timeout:?}")]
    TimedOut {
        /// The request.
        asked: Asked,
        /// The time it had.
        timeout: Duration,
    },
    /// It exceeds what a mom reads at once.
    #[error("{asked}: the request has {bytes} bytes, and moms accept at most {most}")]
    TooLarge {
        /// The request.
        asked: Asked,
        /// Its size.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The request is not valid, and a mom would disconnect.
    #[error("{asked}: {reason}")]
    Invalid {
        /// The request.
        asked: Asked,
        /// The problem.
        reason: &'static str,
    },
    /// The caller was attached to the job, and so cannot send requests to another host's mom.
    #[error("{asked}: the caller was attached to the job, so only nodes of its own host can be asked")]
    AttachedCaller {
        /// The request.
        asked: Asked,
    },
    /// The client was closed.
    #[error("{asked}: the client is closed")]
    Gone {
        /// The request.
        asked: Asked,
    },
}

/// How a connection ended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The mom disconnected at the first request. It gives no reason when it does not trust the caller.
    #[error(
        "the mom hung up without an answer: the cookie is not that of the job, the job is not known on this host, or the connection did not come from it"
    )]
    Distrust,
    /// The mom disconnected after it had answered other requests.
    #[error("the mom hung up: the job or the mom has ended, or the request cannot be read")]
    HungUp,
    /// The connection broke.
    #[error("the connection to the mom broke: {0}")]
    Broken(Arc<io::Error>),
    /// The received bytes are not a reply of a mom.
    #[error("the mom violates the protocol: {0}")]
    Nonsense(
        #[from]
        #[source]
        Nonsense,
    ),
    /// The mom takes no more requests.
    #[error("the mom has accepted nothing for {0:?}")]
    Stuck(Duration),
}

/// Why received bytes are not a reply of a mom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Nonsense {
    /// No packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No reply in a packet.
    #[error("a reply cannot be read: {0}")]
    Reply(#[from] DisError),
    /// Another protocol.
    #[error("protocol {protocol}, version {version}")]
    Protocol {
        /// Its number.
        protocol: i32,
        /// Its version.
        version: i32,
    },
    /// An answer without a request, whose length is unknown.
    #[error("an answer to event {0}, which was not requested")]
    Event(
        /// Its name.
        i32,
    ),
    /// A reply without an end.
    #[error("a reply of more than {0} bytes")]
    Endless(
        /// The most.
        usize,
    ),
}

impl TmError {
    /// The kind by the caller's remedy.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Environment { .. } | Self::TooLarge { .. } | Self::Invalid { .. } => Kind::Invalid,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Kind::NoAccess
            }
            Self::Connect { .. } => Kind::Lost,
            Self::Refused { code, .. } => code.kind(),
            Self::Lost { loss, .. } => match loss {
                Loss::Distrust => Kind::NoAccess,
                Loss::HungUp | Loss::Broken(_) | Loss::Stuck(_) => Kind::Lost,
                Loss::Nonsense(_) => Kind::Protocol,
            },
            Self::TimedOut { .. } => Kind::TimedOut,
            Self::AttachedCaller { .. } => Kind::Unsupported,
            Self::Gone { .. } => Kind::Gone,
        }
    }

    /// The user's remedy.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Environment { .. } => Some("run this inside of a PBS job"),
            Self::Connect { .. } => Some("see whether pbs_mom runs on this host"),
            Self::Lost { loss: Loss::Distrust, .. } => {
                Some("PBS_JOBID and PBS_JOBCOOKIE must be those of one job that runs on this host")
            }
            Self::Lost { loss: Loss::Nonsense(_), .. } => {
                Some("OpenPBS since version 20 sends packets; older servers need the bare framing")
            }
            Self::TimedOut { .. } => {
                Some("PBS does not report a mom that has died: check whether the node's pbs_mom runs")
            }
            Self::TooLarge { .. } => Some("send fewer variables, or put them into a file"),
            Self::AttachedCaller { .. } => Some("call from the job's script or from a task that was spawned"),
            _ => None,
        }
    }

    /// The number by which C programs know it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Environment { .. } => Code::BAD_ENVIRONMENT,
            Self::Refused { code, .. } => *code,
            Self::Lost { .. } => Code::NOT_CONNECTED,
            Self::Connect { .. } | Self::TimedOut { .. } | Self::TooLarge { .. } => Code::SYSTEM,
            Self::Invalid { .. } => Code::NOT_FOUND,
            Self::AttachedCaller { .. } => Code::NOT_IMPLEMENTED,
            Self::Gone { .. } => Code::BAD_INIT,
        }
    }
}

impl From<TmError> for crate::Error {
    fn from(error: TmError) -> Self {
        let message = match &error {
            TmError::Connect { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        Failure::new(error.kind(), message).with_hint_of(error.hint()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { verb: Verb::Spawn, node: Some(NodeId(3)) };

    fn check(error: TmError, text: &str, kind: Kind, code: i32) {
        assert_eq!((error.to_string().as_str(), error.kind(), error.code().0), (text, kind, code));
    }

    #[test]
    fn an_error_names_the_request_and_its_target() {
        check(
            TmError::Refused { asked: ASKED, code: Code(17006) },
            "spawn on node 3: no such node, task, job or name (TM_ENOTFOUND, 17006)",
            Kind::NotFound,
            17006,
        );
        check(
            TmError::TimedOut { asked: ASKED, timeout: Duration::from_secs(3) },
            "spawn on node 3: no answer within 3s",
            Kind::TimedOut,
            17000,
        );
        check(
            TmError::Lost { asked: Asked { verb: Verb::Init, node: None }, loss: Loss::HungUp },
            "init: the mom hung up: the job or the mom has ended, or the request cannot be read",
            Kind::Lost,
            17002,
        );
    }
}
