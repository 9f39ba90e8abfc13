//! Unpacks an archive that came from outside, whole or not at all.
//!
//! What an archive says is believed of nothing: not its names, not its links, not its lengths. It is written into a hidden directory beside
//! what is there already, and only when its end has come and all of it was right, everything is moved to its place. Whoever watches the session
//! from outside never sees half of it under its name.
//!
//! The tar format is read by our own code. The crate `tar`, which writes our archives, is made to read as much as it can of what others have
//! written: it follows sparse maps, takes lengths of headers' extensions as they come, and reads whole extensions into memory. Here the
//! question at every byte is what may be refused, and the answer is small enough to be tested to its last branch.

mod name;
mod header;
mod pax;
mod refusal;
mod archive;
mod incoming;
mod settle;

use std::ffi::CString;
use std::io::Read;
use std::os::fd::OwnedFd;

use gantry_types::error::Failure;

pub use name::{MAX_PARTS, parse_parts};
pub use refusal::INCOMING_PREFIX;
use refusal::{damaged, refused};

use crate::{failure, tree};
use archive::Archive;
use incoming::Incoming;

/// What an archive was announced with. More is refused.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the archive, unpacked, with its headers and padding.
    pub bytes: u64,
    /// Files and links in it; directories count as bytes only.
    pub files: u32,
    /// Bytes of files that are copied from others of the archive.
    pub copied_bytes: u64,
}

/// Unpacks a tar archive below `root`. `number` is no other running call's there.
///
/// Before everything is moved to its place, `may_settle` is asked; what it returns is dropped afterwards. A file that is there already and has the same
/// content stays as it is. A hard link stands for a file of its own with the content of an earlier file of the same archive, and of nothing else: it is copied. Files belong to their owner alone; they keep when they were changed, and of their mode
/// whether they can be executed. Blocks while
/// `archive` does.
///
/// # Errors
/// `Invalid` for what is not unpacked, `Protocol` for an archive that is damaged or not as announced, what `may_settle` says, and what
/// the file system says, each with the name of the entry. Nothing of the archive is there then. An error of `archive` itself comes as `Lost`.
pub fn unpack<G>(
    archive: impl Read,
    root: &OwnedFd,
    number: u64,
    limits: Limits,
    may_settle: impl FnOnce() -> Result<G, Failure>,
) -> Result<(), Failure> {
    let name = CString::new(format!("{INCOMING_PREFIX}{number}")).unwrap_or_default();
    let made = tree::make_dir(root, name.as_c_str());
    let dir = made.map_err(|error| failure::from_io("make a directory for incoming files", &error))?;
    let unpacked = write_out(archive, &dir, limits).and_then(|()| {
        let _guard = may_settle()?;
        settle::settle(&dir, root)
    });
    drop(dir);
    if let Err(error) = tree::remove(root, &name) {
        // It goes with the session. Whether the files came does not hang on it.
        tracing::warn!(%error, "the rest of an archive stays until its session ends");
    }
    unpacked
}

fn write_out(archive: impl Read, dir: &OwnedFd, limits: Limits) -> Result<(), Failure> {
    let mut archive = Archive::new(archive, limits.bytes);
    let mut incoming = Incoming::new(dir, limits.copied_bytes)?;
    let mut files = 0;
    while let Some(entry) = archive.next_entry()? {
        if entry.what != archive::What::Directory {
            files += 1;
        }
        if files > limits.files {
            return Err(damaged(format!("more than the {} files that were announced", limits.files)));
        }
        incoming.put(&entry, &mut archive)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
