//! Why an agent could not join the tree.

use gantry_link::LinkError;
use gantry_shared::wire::frame::FrameError;
use gantry_types::error::Failure;

/// Why an agent could not join the tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// No peer answered, or none that knows the app.
    #[error("reach the frontend or the parent: {}", if .reasons.is_empty() { "no address is known".to_owned() } else { .reasons.join("; ") })]
    Unreachable {
        /// The error at each address.
        reasons: Vec<String>,
    },
    /// The frontend refuses this agent.
    #[error("take a place: {0}")]
    Refused(Failure),
    /// The link to the frontend failed before the frontend assigned places.
    #[error("wait for a place")]
    Link(#[from] LinkError),
    /// The frontend closed the link, or sent an unexpected message.
    #[error("wait for a place: {0}")]
    Answer(String),
    /// The process that started this agent has ended.
    #[error("reach the frontend: the process that started this agent has ended")]
    Gone,
    /// The agent cannot listen for its children.
    #[error("listen for other agents")]
    Listen(#[source] std::io::Error),
}

impl From<FrameError> for JoinError {
    fn from(error: FrameError) -> Self {
        Self::Answer(crate::ranks::with_causes(&error))
    }
}
