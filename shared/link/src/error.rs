//! Errors of a link, sorted by the caller's remedy.

use std::{fmt, io};

use super::bulk::BulkError;
use gantry_shared::wire::frame::FrameError;

/// The phase of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The preambles, in clear: program and version.
    Preamble,
    /// Proof of the secret.
    Handshake,
    /// Messages.
    Open,
    /// The goodbye.
    Close,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preamble => "waiting for the peer's first bytes",
            Self::Handshake => "proving the app's secret",
            Self::Open => "carrying messages",
            Self::Close => "saying goodbye",
        })
    }
}

/// Why a link could not be made or has failed. [`LinkError::Encode`] and a failed send with [`LinkError::Oversized`]
/// leave the link usable. All others end it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer closed the link and gave a reason. Before the handshake is done, the reason is in clear, so an attacker
    /// between may have written it. After it, the reason is the peer's.
    #[error("keep a link that the peer refused while {phase}: {reason}")]
    Refused {
        /// The phase.
        phase: Phase,
        /// The peer's text, bounded, without control characters.
        reason: String,
    },
    /// The peer has another secret, belongs to another app, or the handshake was altered.
    #[error("prove the app's secret: the peer has another secret or belongs to another app")]
    HandshakeFailed,
    /// The peer speaks another version of the protocol.
    #[error("talk to a peer of protocol version {theirs}: this is version {ours}")]
    Version {
        /// The version of this side.
        ours: u16,
        /// The version of the peer.
        theirs: u16,
    },
    /// A record or frame is larger than its limit.
    #[error("carry a {what} of more than {limit} bytes")]
    Oversized {
        /// What is too large.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// The stream ended without a goodbye: the peer died, or the network between.
    #[error("keep the link while {phase}: it was cut")]
    Cut {
        /// The phase.
        phase: Phase,
        /// The operating system's error; none if the stream just ended.
        #[source]
        source: Option<io::Error>,
    },
    /// The stream failed in another way.
    #[error("use the link's stream while {phase}")]
    Io {
        /// The phase.
        phase: Phase,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The deadline passed.
    #[error("make a link: the deadline passed while {phase}")]
    TimedOut {
        /// The phase.
        phase: Phase,
    },
    /// The peer violated the protocol, or bytes were altered, repeated or reordered on the way.
    #[error("read the peer's message while {phase}: {what}")]
    Malformed {
        /// The phase.
        phase: Phase,
        /// What is wrong.
        what: &'static str,
    },
    /// A value of this side has no encoding. Nothing was sent, and the link remains usable.
    #[error("send a message")]
    Encode(#[source] FrameError),
    /// The link failed before, and reported the cause then.
    #[error("use a link that has failed")]
    Failed,
}

impl LinkError {
    /// Whether the peer may simply be gone, so that a loss is reported rather than a protocol violation.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cut { .. })
    }

    pub(super) fn io(phase: Phase, source: io::Error) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
            NotConnected, TimedOut, UnexpectedEof, WriteZero,
        };
        match source.kind() {
            // A read beyond the end; not an error of the operating system.
            UnexpectedEof => Self::Cut { phase, source: None },
            // A timeout of the operating system (keep-alive, retransmission) means that the host is gone.
            BrokenPipe | ConnectionAborted | ConnectionReset | HostUnreachable | NetworkDown
            | NetworkUnreachable | NotConnected | TimedOut | WriteZero => {
                Self::Cut { phase, source: Some(source) }
            }
            _ => Self::Io { phase, source },
        }
    }

    /// The error for a frame of the peer.
    pub(super) fn received(error: &FrameError) -> Self {
        match error {
            FrameError::Oversized { limit, .. } => Self::Oversized { what: "frame", limit: *limit },
            _ => Self::Malformed { phase: Phase::Open, what: "the frames cannot be cut" },
        }
    }

    /// The error for a frame of this side.
    pub(super) fn sending(error: FrameError) -> Self {
        match error {
            FrameError::Oversized { limit, .. } => Self::Oversized { what: "frame", limit },
            other => Self::Encode(other),
        }
    }

    pub(super) fn bulk(error: &BulkError) -> Self {
        match error {
            BulkError::Oversized { limit, .. } => {
                Self::Oversized { what: "bulk chunk", limit: usize::try_from(*limit).unwrap_or(usize::MAX) }
            }
            _ => {
                Self::Malformed { phase: Phase::Open, what: "a bulk chunk is too short or has unknown flags" }
            }
        }
    }
}
