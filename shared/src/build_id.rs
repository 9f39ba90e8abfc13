//! Reads an ELF file's build id, which distinguishes two builds without reading all of them.
//!
//! Login side and nodes compare results of this one reader. So its choice of *the* build id must be constant, not
//! clever: the descriptor of the first NT_GNU_BUILD_ID note in the file's PT_NOTE segments. Source: elf(5), "Notes".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::elf::{Elf, Numbers, read_up_to};
use crate::wire::staging::MAX_BUILD_ID_BYTES;

/// The most bytes of a PT_NOTE segment that are searched.
const MAX_NOTES_BYTES: u64 = 16 * 1024;

const PT_NOTE: u64 = 4;
const NT_GNU_BUILD_ID: u64 = 3;

/// The build id of an ELF file of either width and byte order. `None`: the file is not ELF, is damaged, has no build
/// id, or one of more than [`MAX_BUILD_ID_BYTES`]. Leaves the file's position unchanged.
///
/// # Errors
/// When the file cannot be read.
pub fn read_build_id(file: &File) -> io::Result<Option<Vec<u8>>> {
    find_build_id(&|bytes, offset| file.read_at(bytes, offset))
}

/// As [`read_build_id`], for any source with `pread(2)` semantics.
///
/// # Errors
/// The error of `read_at`.
pub fn find_build_id(read_at: &dyn Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    let Some(elf) = Elf::open(read_at)? else { return Ok(None) };
    for segment in elf.segments(PT_NOTE)? {
        let notes = read_up_to(read_at, segment.offset, segment.length.min(MAX_NOTES_BYTES))?;
        if let Some(id) = find_build_id_note(elf.numbers, &notes, segment.align) {
            return Ok((1..=MAX_BUILD_ID_BYTES).contains(&id.len()).then(|| id.to_vec()));
        }
    }
    Ok(None)
}

/// The descriptor of the first build id among notes.
fn find_build_id_note(numbers: Numbers, notes: &[u8], align: u64) -> Option<&[u8]> {
    // Only 8 differs (.note.gnu.property); older linkers wrote 0 and 1 where they meant 4.
    let align = if align == 8 { 8 } else { 4 };
    let mut at = 0;
    loop {
        let word = |index: usize| numbers.get(notes, at + 4 * index, 4);
        let (name_bytes, bytes, kind) = (to_usize(word(0)?)?, to_usize(word(1)?)?, word(2)?);
        let name = at + 12;
        let start = name.checked_add(name_bytes)?.checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes)?;
        if kind == NT_GNU_BUILD_ID && notes.get(name..name.checked_add(name_bytes)?)? == b"GNU\0" {
            return notes.get(start..end);
        }
        at = end.checked_next_multiple_of(align)?;
    }
}

fn to_usize(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests;
