//! Content that a session already has under another name is copied, not sent again.
//!
//! The new name gets a file of its own: a daemon that writes to one file does not mean the other. A file that a daemon
//! has changed since no longer has the content, and does not count.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::unpack::INCOMING_PREFIX;
use gantry_shared::wire::message::{Entry, Known, Place};
use gantry_types::id::random_text;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat, renameat};
use nix::unistd::{linkat, symlinkat};

use super::content::ContentCache;
use super::target::parse_below;
use super::{is_here, open_parent};
use crate::tree;

/// Content that the session has, ready for another name.
#[derive(Debug)]
pub(super) enum Again<'a> {
    /// A link to the node's own file.
    Link(OsString),
    /// A copy of a file that was sent.
    Copy(Copy<'a>),
}

/// Looks for the entry's content in the session, under the name in `known`. `None`: it is not there, or not in a usable
/// form.
pub(super) fn find_again<'a>(
    root: &'a OwnedFd,
    entry: &Entry,
    known: &Known,
    cache: &mut ContentCache,
) -> io::Result<Option<Again<'a>>> {
    // Any failure of the check counts as "not there".
    let Ok(original) = parse_below(known.place, &known.name) else { return Ok(None) };
    let Ok(Some(parent)) = open_parent(root, &original) else { return Ok(None) };
    if let Ok(text) = readlinkat(&parent, original.name()) {
        let there = Entry { source: text.clone(), known: None, ..entry.clone() };
        return Ok(is_here(&there, cache).then_some(Again::Link(text)));
    }
    let Ok(file) = tree::open_regular(&parent, Path::new(original.name())) else { return Ok(None) };
    if !cache.is_same(&file, &entry.content) || !may_be_copied(root, entry, known)? {
        return Ok(None);
    }
    Ok(Copy::make(root, file, entry, known, cache)?.map(Again::Copy))
}

/// Whether the content may be copied. If not, it is sent, and the unpacking code reports the reason.
fn may_be_copied(root: &OwnedFd, entry: &Entry, known: &Known) -> io::Result<bool> {
    let is_code = known.executable || matches!(entry.place, Place::Bin | Place::Lib);
    Ok(entry.content.size <= tree::most_bytes()? && !(is_code && tree::is_noexec(root)?))
}

impl Again<'_> {
    /// Moves the content to its name.
    ///
    /// # Errors
    /// Of kind `AlreadyExists` when something has that name.
    pub(super) fn settle(self, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        match self {
            Self::Link(text) => Ok(symlinkat(text.as_os_str(), parent, name)?),
            Self::Copy(copy) => copy.settle(parent, name),
        }
    }
}

/// A copy in a hidden folder. Dropping this removes the folder.
#[derive(Debug)]
pub(super) struct Copy<'a> {
    root: &'a OwnedFd,
    folder: CString,
    dir: OwnedFd,
}

/// Number of random characters in the folder's name.
const UNIQUE_CHARS: usize = 8;

/// Name of the copy in the folder.
const COPY: &str = "copy";

impl<'a> Copy<'a> {
    /// Copies the file. `None`: it changes during the copy.
    fn make(
        root: &'a OwnedFd,
        mut file: File,
        entry: &Entry,
        known: &Known,
        cache: &mut ContentCache,
    ) -> io::Result<Option<Self>> {
        // Other nodes may work in the same directory.
        let unique = random_text::<UNIQUE_CHARS>().map_err(io::Error::other)?;
        let folder = CString::new(format!("{INCOMING_PREFIX}again-{unique}"))?;
        let dir = tree::make_dir(root, folder.as_c_str())?;
        let copy = Self { root, folder, dir };
        let mut new = tree::create_file(&copy.dir, OsStr::new(COPY), known.executable)?;
        file.rewind()?;
        io::copy(&mut file.take(entry.content.size.saturating_add(1)), &mut new)?;
        tree::set_modified(&new, known.modified);
        new.rewind()?;
        Ok(cache.is_same(&new, &entry.content).then_some(copy))
    }

    fn settle(&self, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        // A hard link never replaces an existing name.
        match linkat(&self.dir, COPY, parent, name, AtFlags::empty()) {
            // The file system has no hard links.
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EMLINK | Errno::EINVAL) => {
                match tree::lstat(parent, name) {
                    Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                    Err(Errno::ENOENT) => Ok(renameat(&self.dir, COPY, parent, name)?),
                    Err(error) => Err(error.into()),
                }
            }
            linked => Ok(linked?),
        }
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        // What stays goes with the session.
        tree::remove(self.root, &self.folder).ok();
    }
}
