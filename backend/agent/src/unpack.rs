//! Unpacks an archive from outside, whole or not at all.
//!
//! The agent trusts nothing in an archive: not its names, not its links, not its lengths. It writes the archive into a
//! hidden directory beside the existing files. When the archive is complete and valid, the agent moves everything to
//! its place. So an observer of the session never sees half an archive under its final names.
//!
//! Our own code reads the tar format, and only what gantry writes: files, hard links, and the long names of GNU tar. It
//! refuses everything else. The crate `tar`, which writes our archives, is made to read as much as it can of archives by
//! other programs: it follows sparse maps, trusts lengths of header extensions, and reads whole extensions into memory.

mod name;
mod header;
mod refusal;
mod archive;
mod incoming;
mod settle;

use std::ffi::CString;
use std::io::BufRead;
use std::os::fd::OwnedFd;

use gantry_types::error::Failure;

pub use name::{MAX_PARTS, parse_parts};
pub use refusal::INCOMING_PREFIX;
use refusal::{damaged, refused};

use crate::{failure, tree};
use archive::Archive;
use incoming::Incoming;

/// The announced limits of an archive. The agent refuses more.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the archive, unpacked, with its headers and padding.
    pub bytes: u64,
    /// Files in it.
    pub files: u32,
    /// Bytes of files that are copied from others in the archive.
    pub copied_bytes: u64,
}

/// Unpacks a tar archive below `root`. No other call that runs there may have the same `number`.
///
/// Calls `may_settle` before it moves everything to its place, and drops the result afterwards. An existing file with
/// the same content stays. A hard link becomes a copy of an earlier file of the same archive, and of nothing else.
/// Files belong to their owner alone. They keep their modification time, and of their mode only whether they are
/// executable. Blocks while `archive` does.
///
/// # Errors
/// `Invalid`: content that is never unpacked. `Protocol`: the archive is damaged or not as announced. Errors of
/// `may_settle` and of the file system, each with the name of the entry. Nothing of the archive is there then. An error
/// of `archive` itself becomes `Lost`.
pub fn unpack<G>(
    archive: impl BufRead,
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
    // What stays goes with the session. The result of the unpacking does not depend on it.
    tree::remove(root, &name).ok();
    unpacked
}

fn write_out(archive: impl BufRead, dir: &OwnedFd, limits: Limits) -> Result<(), Failure> {
    let mut archive = Archive::new(archive, limits.bytes);
    let mut incoming = Incoming::new(dir, limits.copied_bytes)?;
    let mut files = 0;
    while let Some(entry) = archive.next_entry()? {
        files += 1;
        if files > limits.files {
            return Err(damaged(format!("more than the {} files that were announced", limits.files)));
        }
        incoming.put(&entry, &mut archive)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
