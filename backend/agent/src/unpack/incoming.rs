//! The hidden directory that holds an archive's files until the archive is complete.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use gantry_shared::storage::LOADER_DIR;
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::archive::{Archive, CopyError, Entry, EntryContent};
use super::name::parse_parts;
use super::refused;
use crate::{failure, tree};

pub(super) struct Incoming<'a> {
    root: &'a OwnedFd,
    /// The directory of the last entry, with its name. Consecutive files of an archive are often in one directory.
    last: Option<(Vec<u8>, OwnedFd)>,
    no_exec: bool,
    most_bytes: u64,
    /// Bytes that may still be copied.
    copies_left: u64,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(root: &'a OwnedFd, copied_bytes: u64) -> Result<Self, Failure> {
        let failed = |error: Errno| failure::from_io("inspect the session's directory", &error.into());
        let no_exec = tree::is_noexec(root).map_err(failed)?;
        let most_bytes = tree::most_bytes().map_err(failed)?;
        Ok(Self { root, last: None, no_exec, most_bytes, copies_left: copied_bytes })
    }

    /// Makes the entry. Never touches an existing file of its name.
    pub(super) fn put<R: BufRead>(&mut self, entry: &Entry, archive: &mut Archive<R>) -> Result<(), Failure> {
        let name = &entry.name;
        let mut parts = parse_parts(name).map_err(|why| refused(name, why))?;
        if self.no_exec && is_code(&parts, entry) {
            return Err(no_exec(name));
        }
        let failed = |error: io::Error| explain(name, &error);
        let (original, size) = match &entry.content {
            EntryContent::Here(size) if *size > self.most_bytes => {
                return Err(too_large(name, *size, self.most_bytes));
            }
            EntryContent::Here(size) => (None, *size),
            EntryContent::Copy(of) => {
                let (original, size) = self.open_original(name, of)?;
                (Some(original), size)
            }
        };
        let Some(last) = parts.pop() else { return Err(refused(name, "the name is empty")) };
        let parent = name.get(..name.len() - last.len()).unwrap_or_default();
        let dir = self.open(parent, &parts).map_err(failed)?;
        let mut file = tree::create_file(dir, last, entry.executable).map_err(failed)?;
        match original {
            None => archive.copy(size, &mut file).map_err(|error| match error {
                CopyError::Read(failure) => failure,
                CopyError::Write(error) => failed(error),
            })?,
            Some(mut original) => {
                if io::copy(&mut original, &mut file).map_err(failed)? != size {
                    return Err(refused(name, "is a hard link to a file that another process is changing"));
                }
            }
        }
        tree::set_modified(&file, entry.modified);
        Ok(())
    }

    /// Opens the file whose content another one gets, and returns its length.
    ///
    /// The file is searched only in this archive's hidden directory, so that no other file can be read. No link is
    /// followed.
    fn open_original(&mut self, name: &[u8], of: &[u8]) -> Result<(File, u64), Failure> {
        let none = || refused(name, "is a hard link to something other than an earlier file of the archive");
        let mut parts = parse_parts(of).map_err(|_| none())?;
        let last = parts.pop().ok_or_else(none)?;
        let failed = |error: io::Error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => none(),
            _ => explain(name, &error),
        };
        let mut dir = tree::open_dir(self.root, ".").map_err(failed)?;
        for part in parts {
            dir = tree::open_dir(&dir, part).map_err(failed)?;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&dir, last, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let file = File::from(file);
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(none());
        }
        self.copies_left = self.copies_left.checked_sub(about.len()).ok_or_else(|| {
            refused(name, "with it, more bytes would be copied within the archive than were announced")
        })?;
        Ok((file, about.len()))
    }

    /// Opens a directory, after making its missing parts. Never goes through a link.
    fn open(&mut self, name: &[u8], parts: &[&OsStr]) -> io::Result<&OwnedFd> {
        let last = match self.last.take() {
            Some(last) if last.0 == name => last,
            _ => {
                let mut dir = tree::open_dir(self.root, ".")?;
                for part in parts {
                    dir = tree::ensure_dir(&dir, *part)?;
                }
                (name.to_vec(), dir)
            }
        };
        Ok(&self.last.insert(last).1)
    }
}

/// Whether an entry is useless where nothing can be executed.
fn is_code(parts: &[&OsStr], entry: &Entry) -> bool {
    let in_code_dir =
        parts.first().is_some_and(|first| [BIN_DIR, LIB_DIR, LOADER_DIR].iter().any(|dir| first == dir));
    entry.executable || in_code_dir
}

fn no_exec(name: &[u8]) -> Failure {
    let name = OsStr::from_bytes(name);
    Failure::new(Kind::Unsupported, format!("unpack {name:?}: the session's file system is mounted noexec"))
        .with_hint("set GANTRY_STAGE_DIR to a directory on a file system mounted without noexec")
}

fn too_large(name: &[u8], size: u64, most: u64) -> Failure {
    let name = OsStr::from_bytes(name);
    let message = format!("unpack {name:?}: it has {size} bytes, and no file here may have more than {most}");
    Failure::new(Kind::NoAccess, message)
        .with_hint("raise the limit of files' sizes (ulimit -f) of what starts the agents")
}

/// The system's error; a fault of the archive where the archive caused it.
fn explain(name: &[u8], error: &io::Error) -> Failure {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EEXIST) => refused(name, "comes twice"),
        Some(Errno::ELOOP | Errno::ENOTDIR) => refused(name, "its path leads through a file or a link"),
        Some(Errno::ENAMETOOLONG) => refused(name, "a name is too long for the node's file system"),
        _ => failure::from_io(format_args!("unpack {:?}", OsStr::from_bytes(name)), error),
    }
}
