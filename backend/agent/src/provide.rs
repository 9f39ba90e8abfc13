//! Makes files available in a session without sending them: links the node's files, copies the session's own.
//!
//! Content decides. A file counts as present if the path that the login side names has the same length here, and the
//! same build id or the same BLAKE3. The existence of a path proves nothing. A file that another user could have put
//! there does not count: its owner could exchange it later. Names come from outside, so the agent parses them before it
//! touches anything.

mod again;
mod c_library;
mod libc_version;
mod content;
mod here;
mod scan;
mod target;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use gantry_shared::wire::message::{Entry, EntrySet, LibcNeeds, Place};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::EntryIndex;
use gantry_types::session_dirs::SessionDirs;
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::unistd::symlinkat;

use again::find_again;
pub(crate) use content::ContentCache;
use here::{is_here, open_parent};
pub(crate) use scan::holds;
use target::{Target, build_targets};

use crate::{failure, tree};

/// The result of [`provide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provided {
    /// The entries that the frontend must send.
    pub(crate) missing: EntrySet,
    /// If the node's C library is too old: the name of the loader in `loader/` that runs the programs.
    pub(crate) loader: Option<OsString>,
}

/// Makes each entry available that this node has, and reports the missing ones.
///
/// Links each entry that the node has into the session. Copies what the session has under another name. Blocks while
/// it reads files. May be called again, with more or with the same entries: existing files stay. A file that a daemon
/// could not use in its place (a binary that may not be executed, anything on a noexec mount) counts as missing, so
/// that the frontend sends it. The links point to the node's own files: a later change to such a file changes what the
/// session sees.
///
/// Entries of [`Place::Loader`] are wanted only if the node's own C library is older than `libc` says. They are never
/// linked: a loader and a library of different builds do not work together, and an update may replace the node's own at
/// any time.
///
/// # Errors
/// `Invalid`: a name does not stay below its place, or one name has two contents; the message has both. If that is so
/// among the entries themselves, nothing was done. Otherwise: links or directories cannot be made.
pub(crate) fn provide(
    dirs: &SessionDirs,
    entries: &[Entry],
    libc: Option<&LibcNeeds>,
    cache: &mut ContentCache,
) -> Result<Provided, Failure> {
    let targets = build_targets(entries)?;
    let loader = libc.map(c_library::loader_name).transpose()?;
    let enough = libc.is_some_and(|needs| c_library::is_enough(needs, cache));
    let root = tree::open_root(&dirs.root)?;
    let mut missing = EntrySet::new();
    for (target, indices) in &targets {
        let candidates: Vec<&Entry> = indices.iter().filter_map(|index| at(entries, *index)).collect();
        if enough && candidates.iter().all(|entry| entry.place == Place::Loader) {
            continue;
        }
        if !provide_one(&root, target, &candidates, cache)? {
            missing.extend(indices.iter().map(|index| EntryIndex(*index)));
        }
    }
    // Without a loader the programs start all the same, and report themselves what they do not find.
    let sent = |name: &OsString| entries.iter().any(|it| it.place == Place::Loader && it.name == *name);
    Ok(Provided { missing, loader: loader.filter(|name| !enough && sent(name)) })
}

fn at(entries: &[Entry], index: u32) -> Option<&Entry> {
    entries.get(usize::try_from(index).ok()?)
}

/// Whether the target now has its content. The candidates have one name and one content, from one or more places.
fn provide_one(
    root: &OwnedFd,
    target: &Target,
    candidates: &[&Entry],
    cache: &mut ContentCache,
) -> Result<bool, Failure> {
    let Some(first) = candidates.first() else { return Ok(true) };
    let failed = |error: io::Error| {
        // A file is in place of a directory, or the other way round, or there is a link, which is never followed.
        if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOTDIR | Errno::ELOOP)) {
            return conflict(target, first, "something other than a directory is in its place");
        }
        failure::from_io(format_args!("provide {target}"), &error)
    };
    let taken = |done: io::Result<()>, parent: &OwnedFd, cache: &mut ContentCache| match done {
        Ok(()) => Ok(true),
        // Another process in the session was faster. Its file counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match find(parent, target, candidates, cache).map_err(failed)? {
                Some(found) => found.same_or(target, first),
                None => Err(failed(error)),
            }
        }
        Err(error) => Err(failed(error)),
    };
    if let Some(parent) = open_parent(root, target).map_err(failed)?
        && let Some(found) = find(&parent, target, candidates, cache).map_err(failed)?
    {
        return found.same_or(target, first);
    }
    let Some(source) = candidates.iter().find(|entry| entry.place != Place::Loader && is_here(entry, cache))
    else {
        let known = candidates.iter().find_map(|entry| Some((*entry, entry.known.as_ref()?)));
        let Some((entry, known)) = known else { return Ok(false) };
        let Some(again) = find_again(root, entry, known, cache).map_err(failed)? else { return Ok(false) };
        let parent = make_parent(root, target).map_err(failed)?;
        return taken(again.settle(&parent, target.name()), &parent, cache);
    };
    let parent = make_parent(root, target).map_err(failed)?;
    let linked = symlinkat(source.source.as_os_str(), &parent, target.name());
    taken(linked.map_err(io::Error::from), &parent, cache)
}

/// What exists at a target.
enum Found {
    Same,
    /// A link to the right path, where this node has no file, another content, or a file that another user could have
    /// put there. On a shared file system another node may have made it. The sent file replaces it.
    Stale,
    Other(OsString),
}

impl Found {
    fn same_or(self, target: &Target, entry: &Entry) -> Result<bool, Failure> {
        match self {
            Self::Same => Ok(true),
            Self::Stale => Ok(false),
            Self::Other(what) => Err(conflict(
                target,
                entry,
                &format!("{} exists there with different content", what.display()),
            )),
        }
    }
}

fn conflict(target: &Target, entry: &Entry, what: &str) -> Failure {
    let source = entry.source.display();
    Failure::new(Kind::Invalid, format!("provide {target} from {source}: {what}"))
        .with_hint("rename one of the two")
}

fn make_parent(root: &OwnedFd, target: &Target) -> io::Result<OwnedFd> {
    let mut dir = tree::open_dir(root, ".")?;
    for part in target.parents() {
        dir = tree::ensure_dir(&dir, part.as_os_str())?;
    }
    Ok(dir)
}

fn find(
    parent: &OwnedFd,
    target: &Target,
    candidates: &[&Entry],
    cache: &mut ContentCache,
) -> io::Result<Option<Found>> {
    let Some(entry) = candidates.first() else { return Ok(None) };
    let link = match readlinkat(parent, target.name()) {
        Ok(text) => Some(text),
        // It is no link.
        Err(Errno::EINVAL) => None,
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let opened = tree::open_entry(parent, target.name(), link.as_deref());
    if opened.is_ok_and(|file| cache.is_same(&file, &entry.content)) {
        return Ok(Some(Found::Same));
    }
    Ok(Some(match link {
        Some(text) if candidates.iter().any(|it| it.source == text || it.known.is_some()) => Found::Stale,
        Some(text) => Found::Other(text),
        None => Found::Other(OsString::from(target.to_string())),
    }))
}

#[cfg(test)]
mod tests;
