//! Symbol versions that a file needs and defines (GNU's extension, "Symbol Versioning" of the LSB).

use std::ops::Range;

use scroll::{Endian, Pread};

use super::names::{Names, Text};
use super::pages::ReadAt;
use super::unfit::Unfit;

/// The versions that a file needs of one other file; [`Dynamic::versions_of`](super::Dynamic::versions_of) has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionNeeds {
    /// That file, by the name in `DT_NEEDED`.
    pub file: Text,
    begin: usize,
    end: usize,
}

impl VersionNeeds {
    /// Their indexes among all needed versions of the file.
    pub(super) fn range(&self) -> Range<usize> {
        self.begin..self.end
    }
}

/// A symbol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its name, such as GLIBC_2.34.
    pub name: Text,
    /// The hash of its name, as in the file. The loader compares it before the name.
    pub hash: u32,
    /// A weak need: the version may be missing.
    pub is_weak: bool,
}

/// The size of each kind of record, the same for both widths.
const NEED: usize = 16;
const NEED_AUX: usize = 16;
const DEFINITION: usize = 20;
/// More versions than any file has.
const MAX_VERSIONS: usize = 65_536;
/// Enough for the versions of most files, and for the number of files that they need.
const USUAL_VERSIONS: usize = 48;
const USUAL_FILES: usize = 12;
const WEAK: u16 = 2;

/// The needs for each other file, and all their versions.
pub(super) fn read_needs(
    names: &mut Names<'_, '_, impl ReadAt + ?Sized>,
    mut at: u64,
    count: u64,
    endian: Endian,
) -> Result<(Vec<VersionNeeds>, Vec<Version>), Unfit> {
    let mut found = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(USUAL_FILES));
    let mut versions = Vec::with_capacity(USUAL_VERSIONS);
    let mut left = MAX_VERSIONS;
    for _ in 0..count {
        let record = names.pages.record::<NEED>(at)?;
        let [aux_count, file, aux, next] = [
            u32::from(half(&record, 2, endian)?),
            word(&record, 4, endian)?,
            word(&record, 8, endian)?,
            word(&record, 12, endian)?,
        ];
        let begin = versions.len();
        let mut aux_at = step(at, aux)?;
        for _ in 0..aux_count {
            left = left.checked_sub(1).ok_or(Unfit::TooLarge)?;
            let record = names.pages.record::<NEED_AUX>(aux_at)?;
            let is_weak = half(&record, 4, endian)? & WEAK != 0;
            let name = names.keep(u64::from(word(&record, 8, endian)?))?;
            versions.push(Version { name, hash: word(&record, 0, endian)?, is_weak });
            match word(&record, 12, endian)? {
                0 => break,
                next => aux_at = step(aux_at, next)?,
            }
        }
        let file = names.keep(u64::from(file))?;
        found.push(VersionNeeds { file, begin, end: versions.len() });
        left = left.checked_sub(1).ok_or(Unfit::TooLarge)?;
        match next {
            0 => break,
            next => at = step(at, next)?,
        }
    }
    versions.shrink_to_fit();
    Ok((found, versions))
}

pub(super) fn read_definitions(
    names: &mut Names<'_, '_, impl ReadAt + ?Sized>,
    mut at: u64,
    count: u64,
    endian: Endian,
) -> Result<Vec<Version>, Unfit> {
    let mut found = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(USUAL_VERSIONS));
    for number in 0..count {
        if number == MAX_VERSIONS as u64 {
            return Err(Unfit::TooLarge);
        }
        let record = names.pages.record::<DEFINITION>(at)?;
        // The first name is its own; the others are its predecessors.
        if half(&record, 6, endian)? > 0 {
            let aux = names.pages.record::<4>(step(at, word(&record, 12, endian)?)?)?;
            let name = names.keep(u64::from(word(&aux, 0, endian)?))?;
            found.push(Version { name, hash: word(&record, 8, endian)?, is_weak: false });
        }
        match word(&record, 16, endian)? {
            0 => break,
            next => at = step(at, next)?,
        }
    }
    Ok(found)
}

fn half(record: &[u8], at: usize, endian: Endian) -> Result<u16, Unfit> {
    record.pread_with(at, endian).map_err(|_| Unfit::Broken("versions"))
}

fn word(record: &[u8], at: usize, endian: Endian) -> Result<u32, Unfit> {
    record.pread_with(at, endian).map_err(|_| Unfit::Broken("versions"))
}

fn step(at: u64, by: u32) -> Result<u64, Unfit> {
    at.checked_add(u64::from(by)).ok_or(Unfit::Broken("versions"))
}
