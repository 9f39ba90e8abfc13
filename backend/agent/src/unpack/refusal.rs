//! Why an archive or an entry is not unpacked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use gantry_types::error::{Failure, Kind};

/// Prefix of the directories that hold incomplete archives. Archives and manifests have no such name at their top.
pub const INCOMING_PREFIX: &str = ".incoming-";

/// The error for an archive that is not in our format, or not as it was announced.
pub(super) fn damaged(what: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Protocol, format!("unpack an archive: {what}"))
        .with_hint("send it again; if that fails too, see that all of gantry is of one version")
}

/// The error for an entry that is refused. Odd characters in its name are escaped.
pub(super) fn refused(name: &[u8], why: impl std::fmt::Display) -> Failure {
    let name = OsStr::from_bytes(name);
    Failure::new(Kind::Invalid, format!("unpack {name:?}: {why}"))
        .with_hint("leave it out of the manifest, or rename it")
}
