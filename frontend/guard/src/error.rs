//! The errors of the guard's executable.

use gantry_types::error::{Failure, Kind};

/// Result with this program's [`Error`].
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason of a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// In this program.
    #[error("{0}")]
    Here(#[from] Failure),
    /// In the workload manager, or reported by it.
    #[error(transparent)]
    Wlm(#[from] gantry_wlm::Error),
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self::Here(Failure::new(kind, message))
    }

    pub(crate) fn io(what: &str, source: &std::io::Error) -> Self {
        Self::new(source.into(), format!("{what}: {source}"))
    }

    /// The error for the wire.
    pub(crate) fn to_failure(&self) -> Failure {
        match self {
            Self::Here(failure) => failure.clone(),
            Self::Wlm(error) => error.to_failure(),
        }
    }
}
