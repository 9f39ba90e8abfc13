//! The files of a manifest: as the frontend names them, and as nodes compare them with their own files.
//!
//! Two files are the same if their content is the same, never because their paths are. Size and build id identify the
//! content of an ELF file with a build id. So neither side has to read a large library to find out that both have it.
//! Size and BLAKE3 identify all other content.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use gantry_types::id::EntryIndex;
use gantry_types::rank_set::IdSet;

/// Longest build id, in bytes. Linkers write 8 to 20; `--build-id=0x...` may be anything.
pub const MAX_BUILD_ID_BYTES: usize = 64;

/// Some of the entries of an order, by their place in it.
pub type EntrySet = IdSet<EntryIndex>;

/// A place in a session's storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// `bin/`: executable, first in PATH.
    Bin,
    /// `lib/`: first in LD_LIBRARY_PATH.
    Lib,
    /// `loader/`: the files of the C library, with its loader. For nodes whose own is too old; in no search path.
    Loader,
    /// The session's root.
    Root,
}

/// One file of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The place of the file.
    pub place: Place,
    /// Path below that place: relative, without `..`.
    pub name: OsString,
    /// The file's path on the login side. A node with the same content at that path links it.
    pub source: OsString,
    /// Its content.
    pub content: Content,
    /// Where the session has this content already. A node that finds it there copies it into a separate file.
    pub known: Option<Known>,
}

/// A file that a session has, and the properties of its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The file's place.
    pub place: Place,
    /// Path below that place.
    pub name: OsString,
    /// Whether the copy is executable.
    pub executable: bool,
    /// The copy's time of change, in seconds since 1970.
    pub modified: u64,
}

/// Identifies a content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Length in bytes.
    pub size: u64,
    /// The mark that files of that length must share to be the same.
    pub mark: Mark,
}

/// The mark that two files of one length must share to be the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mark {
    /// The build id of an ELF file: the descriptor of its NT_GNU_BUILD_ID note, of 1 to [`MAX_BUILD_ID_BYTES`] bytes.
    BuildId(Vec<u8>),
    /// BLAKE3 of all bytes.
    Blake3([u8; 32]),
}

/// The needs of a manifest's programs of the node's C library.
///
/// A node that meets them ignores all entries of [`Place::Loader`]. Any other node requests those like other entries,
/// and runs the manifest's programs through the loader among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibcNeeds {
    /// The loader that the programs name (PT_INTERP), such as `/lib64/ld-linux-x86-64.so.2`.
    pub interpreter: OsString,
    /// The path of the C library on the login side, such as `/lib/x86_64-linux-gnu/libc.so.6`. Nodes search there, and
    /// in the usual places.
    pub library: OsString,
    /// The newest version that is needed, such as `GLIBC_2.36`.
    pub version: String,
}
