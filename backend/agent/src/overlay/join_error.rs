//! Why an agent found no place.

use gantry_link::LinkError;
use gantry_shared::wire::frame::FrameError;
use gantry_types::error::Failure;

/// Why an agent found no place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// Nobody answered, or nobody who knows the app.
    #[error("reach the frontend or the parent: {}", if .reasons.is_empty() { "no address is known".to_owned() } else { .reasons.join("; ") })]
    Unreachable {
        /// What was seen at each address.
        reasons: Vec<String>,
    },
    /// The frontend does not want this agent.
    #[error("take a place: {0}")]
    Refused(Failure),
    /// The frontend went before it gave out places.
    #[error("wait for a place")]
    Link(#[from] LinkError),
    /// The frontend closed the link, or said something else.
    #[error("wait for a place: {0}")]
    Answer(String),
    /// What has brought this agent is gone.
    #[error("reach the frontend: the process that started this agent has ended")]
    Gone,
    /// No port can be had for children.
    #[error("listen for other agents")]
    Listen(#[source] std::io::Error),
}

impl From<FrameError> for JoinError {
    fn from(error: FrameError) -> Self {
        Self::Answer(error.to_string())
    }
}
