//! What a session has under another name is not sent once more.
//!
//! The new name gets a file of its own: a daemon that writes to one does not mean the other. What daemons have changed meanwhile is no longer what it
//! was, and does not count.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::unpack::INCOMING_PREFIX;
use gantry_shared::wire::message::{Entry, Known, Place};
use gantry_types::id::random_text;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{linkat, symlinkat};

use super::content::ContentCache;
use super::target::parse_below;
use super::{is_here, open_parent};
use crate::tree;

/// A content that the session has, ready for another name.
#[derive(Debug)]
pub(super) enum Again<'a> {
    /// It is the node's own file.
    Link(OsString),
    /// It was sent.
    Copy(Copy<'a>),
}

/// Looks where the session is said to have the entry's content. None: it has not, or not in a form that can be used.
pub(super) fn find_again<'a>(
    root: &'a OwnedFd,
    entry: &Entry,
    known: &Known,
    cache: &mut ContentCache,
) -> io::Result<Option<Again<'a>>> {
    // Whatever prevents us from knowing means no.
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

/// Where it may not, it is sent, and what unpacks it says why.
fn may_be_copied(root: &OwnedFd, entry: &Entry, known: &Known) -> io::Result<bool> {
    let is_code = known.executable || matches!(entry.place, Place::Bin | Place::Lib);
    // Who writes beyond it is not told so but killed, by SIGXFSZ.
    let (most_bytes, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    let no_exec = || fstatvfs(root).map(|place| place.flags().contains(FsFlags::ST_NOEXEC));
    Ok(entry.content.size <= most_bytes && !(is_code && no_exec()?))
}

impl Again<'_> {
    /// Gives it its name.
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

/// A copy in a hidden folder, which goes when this is dropped.
#[derive(Debug)]
pub(super) struct Copy<'a> {
    root: &'a OwnedFd,
    folder: CString,
    dir: OwnedFd,
}

/// How many random characters the folder's name has.
const UNIQUE_CHARS: usize = 8;

/// Its name in there.
const COPY: &str = "copy";

impl<'a> Copy<'a> {
    /// None: the file changes under our eyes.
    fn make(
        root: &'a OwnedFd,
        mut file: File,
        entry: &Entry,
        known: &Known,
        cache: &mut ContentCache,
    ) -> io::Result<Option<Self>> {
        // Other nodes may be at work in the same directory.
        let unique = random_text::<UNIQUE_CHARS>().map_err(io::Error::other)?;
        let folder = CString::new(format!("{INCOMING_PREFIX}again-{unique}"))?;
        let dir = tree::make_dir(root, folder.as_c_str())?;
        let copy = Self { root, folder, dir };
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut new = File::from(openat(&copy.dir, COPY, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        // Whatever the umask.
        new.set_permissions(Permissions::from_mode(if known.executable { 0o700 } else { 0o600 }))?;
        file.rewind()?;
        io::copy(&mut file.take(entry.content.size.saturating_add(1)), &mut new)?;
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(known.modified));
        // Python takes what it has compiled for out of date otherwise. A time that cannot be had here is no loss.
        drop(modified.map(|modified| new.set_modified(modified)));
        new.rewind()?;
        Ok(cache.is_same(&new, &entry.content).then_some(copy))
    }

    fn settle(&self, parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
        // A second name never takes another's place.
        match linkat(&self.dir, COPY, parent, name, AtFlags::empty()) {
            // A file system without hard links.
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
        if let Err(error) = tree::remove(self.root, &self.folder) {
            tracing::warn!(%error, "what was left of a copy stays until its session ends");
        }
    }
}
