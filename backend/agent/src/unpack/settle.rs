//! Moves an archive's files to their places, all of them or none.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_types::error::{Failure, Kind};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat, renameat};
use nix::sys::stat::SFlag;
use nix::unistd::linkat;

use crate::{failure, tree};

/// Moves everything in `from` to `to`, on the same file system. An identical file that exists already stays; `from` may
/// keep some of its own.
pub(super) fn settle(from: impl AsFd, to: impl AsFd) -> Result<(), Failure> {
    let mut settling = Settling { moved: Vec::new() };
    let settled = settling.settle_dir(from.as_fd(), to.as_fd(), Path::new(""));
    if settled.is_err() {
        settling.undo(to.as_fd());
    }
    settled
}

struct Settling {
    /// Paths of moved files below `to`. A directory that did not exist there is moved as a whole.
    moved: Vec<PathBuf>,
}

impl Settling {
    fn settle_dir(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, at: &Path) -> Result<(), Failure> {
        let failed =
            |path: &Path, error: io::Error| failure::from_io(format_args!("put {path:?} in place"), &error);
        for name in tree::names(from).map_err(|error| failed(at, error))? {
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            let stat = tree::lstat(from, name.as_c_str()).map_err(|error| failed(&path, error.into()))?;
            let is_dir = tree::is_kind(&stat, SFlag::S_IFDIR);
            let moved = if is_dir { move_dir(from, to, &name) } else { move_file(from, to, &name) };
            match moved {
                Ok(()) => self.moved.push(path),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(&path, error));
                }
                Err(_) if is_dir => {
                    let sub_from =
                        tree::open_dir(from, name.as_c_str()).map_err(|error| failed(&path, error))?;
                    let sub_to = tree::open_dir(to, name.as_c_str())
                        .map_err(|_| conflict(&path, "something other than a directory is in its place"))?;
                    self.settle_dir(sub_from.as_fd(), sub_to.as_fd(), &path)?;
                }
                Err(_) => match compare(from, to, &name) {
                    Ok(Standing::Same) => {}
                    Ok(Standing::Stale) => {
                        renameat(from, name.as_c_str(), to, name.as_c_str())
                            .map_err(|error| failed(&path, error.into()))?;
                        self.moved.push(path);
                    }
                    Ok(Standing::Other(what)) => return Err(conflict(&path, what)),
                    Err(error) => return Err(failed(&path, error)),
                },
            }
        }
        Ok(())
    }

    /// Removes the moved files again, as far as possible.
    fn undo(&self, to: BorrowedFd<'_>) {
        for path in self.moved.iter().rev() {
            // What stays goes with the session.
            remove_below(to, path).ok();
        }
    }
}

fn remove_below(root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut dir = tree::open_dir(root, ".")?;
    for part in path.parent().into_iter().flatten() {
        dir = tree::open_dir(&dir, part)?;
    }
    let name = CString::new(path.file_name().unwrap_or_default().as_bytes())?;
    tree::remove(&dir, &name)
}

/// Moves a directory with all its content. It may replace an empty directory, which is no loss.
fn move_dir(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match tree::lstat(to, name) {
        Err(Errno::ENOENT) => match renameat(from, name, to, name) {
            Err(Errno::ENOTEMPTY | Errno::ENOTDIR) => Err(io::ErrorKind::AlreadyExists.into()),
            moved => Ok(moved?),
        },
        Err(error) => Err(error.into()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Gives a file its place by a hard link, which never replaces an existing name. Its first name goes with its
/// directory.
fn move_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match linkat(from, name, to, name, AtFlags::empty()) {
        // The file system has no hard links.
        Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EMLINK | Errno::EINVAL) => {
            match tree::lstat(to, name) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(Errno::ENOENT) => Ok(renameat(from, name, to, name)?),
                Err(error) => Err(error.into()),
            }
        }
        linked => Ok(linked?),
    }
}

fn conflict(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Invalid, format!("put {path:?} in place: {what}")).with_hint("rename one of the two")
}

/// The existing file, compared with the new one.
enum Standing {
    Same,
    /// A link to a file that this node lacks, has with other content, or does not keep from other users: another node
    /// has made the link, or the file has changed.
    Stale,
    /// The difference.
    Other(String),
}

/// Compares the existing file with the new one. A file that the node has itself exists as a link.
fn compare(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> io::Result<Standing> {
    let link = match readlinkat(to, name) {
        Ok(text) => Some(text),
        Err(Errno::EINVAL) => None,
        Err(error) => return Err(error.into()),
    };
    let name = OsStr::from_bytes(name.to_bytes());
    let ours = tree::open_regular(from, Path::new(name))?;
    let theirs = tree::open_entry(to, name, link.as_deref());
    Ok(match link {
        _ if theirs.is_ok_and(|theirs| same_content(ours, theirs).unwrap_or(false)) => Standing::Same,
        Some(text) if Path::new(&text).is_absolute() => Standing::Stale,
        link => {
            let shown = link.unwrap_or_else(|| name.to_owned());
            Standing::Other(format!("{shown:?} exists there with different content"))
        }
    })
}

fn same_content(one: File, other: File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) =
        (io::BufReader::with_capacity(64 * 1024, one), io::BufReader::with_capacity(64 * 1024, other));
    let (mut ours, mut theirs) = ([0; 8192], [0; 8192]);
    loop {
        let read = one.read(&mut ours)?;
        if read == 0 {
            return Ok(other.read(&mut theirs)? == 0);
        }
        other.read_exact(&mut theirs[..read])?;
        if ours[..read] != theirs[..read] {
            return Ok(false);
        }
    }
}
