//! Content that is on the node already.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::tree;
use gantry_shared::wire::message::{Entry, Place};
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{AccessFlags, faccessat};

use super::content::ContentCache;
use super::target::Target;

/// Opens the directory of a target. `None`: it does not exist.
pub(super) fn open_parent(root: &OwnedFd, target: &Target) -> io::Result<Option<OwnedFd>> {
    let mut dir = tree::open_dir(root, ".")?;
    for part in target.parents() {
        dir = match tree::open_dir(&dir, part.as_os_str()) {
            Ok(next) => next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(dir))
}

/// Whether the node has the entry's content at its source path, in a form that the session can use, and safe from other
/// users. Any failure of the check counts as no.
pub(super) fn is_here(entry: &Entry, cache: &mut ContentCache) -> bool {
    let source = Path::new(&entry.source);
    // A relative path has no meaning here: its base is unknown.
    if !source.is_absolute() {
        return false;
    }
    // access(2) also denies execution on a noexec mount.
    let executable = || faccessat(AT_FDCWD, source, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok();
    if entry.place == Place::Bin && !executable() {
        return false;
    }
    let Ok(file) = tree::open_trusted(source) else { return false };
    // Mapping a library as code needs a mount without noexec, like execution.
    let mappable = || fstatvfs(&file).is_ok_and(|place| !place.flags().contains(FsFlags::ST_NOEXEC));
    if entry.place == Place::Lib && !mappable() {
        return false;
    }
    cache.is_same(&file, &entry.content)
}
