//! Programs and libraries as files.

use std::fs::File;
use std::io;
use std::path::Path;

use object::read::{ReadCache, ReadRef};

use crate::module::{ModuleId, PAGE, identify};

/// The id of the file at `path`.
///
/// # Errors
/// It cannot be read, or is no program or library.
pub fn identify_file(path: &Path) -> io::Result<ModuleId> {
    let cache = ReadCache::new(open(path)?);
    let length = (&cache).len().map_err(|()| io::ErrorKind::InvalidData)?;
    let beginning = (&cache).read_bytes_at(0, length.min(PAGE as u64));
    let beginning = beginning.map_err(|()| io::ErrorKind::InvalidData)?.to_vec();
    identify(&beginning, |offset, _, length| {
        (&cache).read_bytes_at(offset, length as u64).ok().map(<[u8]>::to_vec)
    })
    .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Opens a regular file. Anything else, such as a pipe, could block.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    File::open(path)
}
