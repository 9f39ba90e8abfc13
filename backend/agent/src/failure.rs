//! The system's errors as failures for the wire: one table from the kernel's error to what the user can do.

use std::fmt::Display;
use std::io;

use gantry_types::error::{Failure, Kind};

/// A failure that names the action and the system's error.
#[must_use]
pub(crate) fn from_io(doing: impl Display, error: &io::Error) -> Failure {
    use io::ErrorKind as E;
    let (kind, hint) = match error.kind() {
        E::NotFound => (Kind::NotFound, None),
        E::PermissionDenied | E::ReadOnlyFilesystem => (Kind::NoAccess, None),
        E::StorageFull | E::QuotaExceeded => {
            (Kind::NoAccess, Some("free some space there, or set GANTRY_STAGE_DIR to another directory"))
        }
        E::TimedOut => (Kind::TimedOut, None),
        E::InvalidInput | E::InvalidFilename | E::AlreadyExists | E::NotADirectory => (Kind::Invalid, None),
        _ => (Kind::Unsupported, None),
    };
    let failure = Failure::new(kind, format!("{doing}: {error}"));
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
