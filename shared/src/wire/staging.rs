//! What is staged: the files of a manifest as the frontend names them and as nodes compare them with what they have.
//!
//! Content decides whether two files are the same, never that there is a file of that path. For an ELF file with a build id, size and build id
//! tell its content: neither side has to read a large library to find out that both have it. For everything else size and BLAKE3 do.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use gantry_types::id::EntryIndex;
use gantry_types::rank_set::IdSet;

/// Longest build id, in bytes. Linkers write 8 to 20; `--build-id=0x...` may be anything.
pub const MAX_BUILD_ID_BYTES: usize = 64;

/// Some of the entries of an order, by their place in it.
pub type EntrySet = IdSet<EntryIndex>;

/// Where in a session's storage something is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// `bin/`: executable, first in PATH.
    Bin,
    /// `lib/`: first in LD_LIBRARY_PATH.
    Lib,
    /// `loader/`: the C library's own family, with its loader. For nodes whose own is too old; in no search path.
    Loader,
    /// The session's root.
    Root,
}

/// One file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it goes.
    pub place: Place,
    /// Path below that place: relative, without `..`.
    pub name: OsString,
    /// The file's path on the login side. A node that has the same content there links it.
    pub source: OsString,
    /// What is in it.
    pub content: Content,
    /// Where the session has that already. A node that finds it there makes a file of its own with it.
    pub known: Option<Known>,
}

/// A file that a session has, and what another one with its content is to be like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Where it is.
    pub place: Place,
    /// Path below that place.
    pub name: OsString,
    /// Whether the other one is executable.
    pub executable: bool,
    /// When that was modified, in seconds since 1970.
    pub modified: u64,
}

/// What tells one content from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Length in bytes.
    pub size: u64,
    /// What else two files of that length must have in common to be the same.
    pub mark: Mark,
}

/// What two files of one length must have in common to be the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// The build id of an ELF file: the descriptor of its NT_GNU_BUILD_ID note, of 1 to [`MAX_BUILD_ID_BYTES`] bytes.
    BuildId(Vec<u8>),
    /// BLAKE3 of all bytes.
    Blake3([u8; 32]),
}

/// What the programs of a manifest need of the node's C library. A node that has it ignores all entries of [`Place::Loader`]; one
/// that has not wants them as it wants others, and runs the manifest's programs through the loader among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibcNeeds {
    /// The loader that the programs name (PT_INTERP), such as `/lib64/ld-linux-x86-64.so.2`.
    pub interpreter: OsString,
    /// Where the C library is on the login side, such as `/lib/x86_64-linux-gnu/libc.so.6`; nodes look there, and where else it usually is.
    pub library: OsString,
    /// The newest version of it that is needed, such as `GLIBC_2.36`.
    pub version: String,
}
