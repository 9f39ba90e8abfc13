//! What can go wrong between gantry and a workload manager, sorted by what the caller can do about it.

use std::io;
use std::path::PathBuf;

use gantry_shared::error::{Failure, Kind};

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the seam.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for makes no sense to this WLM.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// No such WLM.
    #[error("no workload manager is named '{name}'")]
    UnknownWlm {
        /// The name that was given.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// No such job or process.
    #[error("{message}")]
    NotFound {
        /// What was looked for.
        message: String,
        /// What to try.
        hint: Option<String>,
    },
    /// It is known and has no ranks yet.
    #[error("{message}")]
    NotYet {
        /// What it waits for.
        message: String,
        /// What to try.
        hint: Option<String>,
    },
    /// It is there and may not be touched.
    #[error("{message}")]
    NoAccess {
        /// What was refused.
        message: String,
        /// What to try.
        hint: Option<String>,
    },
    /// A process could not be started.
    #[error("{0}")]
    NotStarted(
        /// Which, and why.
        Failure,
    ),
    /// The launcher or the WLM refused, or ended early.
    #[error("{0}")]
    Refused(
        /// What it said.
        Failure,
    ),
    /// A file of this machine could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: None }
    }

    pub(crate) fn invalid_with(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: Some(hint.into()) }
    }

    /// The kind of error, as every layer of gantry sorts them.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } | Self::UnknownWlm { .. } => Kind::Invalid,
            Self::NotFound { .. } | Self::NotYet { .. } => Kind::NotFound,
            Self::NoAccess { .. } => Kind::NoAccess,
            Self::NotStarted(failure) | Self::Refused(failure) => failure.kind(),
            Self::Read { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Kind::NotFound,
                io::ErrorKind::PermissionDenied => Kind::NoAccess,
                _ => Kind::LauncherFailed,
            },
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. }
            | Self::NotFound { hint, .. }
            | Self::NotYet { hint, .. }
            | Self::NoAccess { hint, .. } => hint.clone(),
            Self::UnknownWlm { known, .. } => Some(format!("known are: {}", known.join(", "))),
            Self::NotStarted(failure) | Self::Refused(failure) => failure.hint().map(str::to_owned),
            Self::Read { .. } => None,
        }
    }
}
