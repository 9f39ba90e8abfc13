//! Reads an ELF file's build id: what tells two builds apart without reading all of them.
//!
//! Login side and nodes compare what they read with this one reader, so what it takes for *the* build id needs to be the same, not clever:
//! the descriptor of the first NT_GNU_BUILD_ID note in the file's PT_NOTE segments. The file may be anything, so every count and length in it is bounded
//! and no more than some pages are read. Written by hand since the agent must stay small; source: elf(5), "Notes".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::wire::staging::MAX_BUILD_ID_BYTES;

/// Most program headers that are looked at. Linkers write about a dozen.
const MAX_HEADERS: u16 = 512;

/// Most bytes of a PT_NOTE segment that are looked at.
const MAX_NOTES_BYTES: u64 = 16 * 1024;

/// Most PT_NOTE segments that are looked at. Linkers write one for each alignment.
const MAX_NOTE_SEGMENTS: usize = 16;

const PT_NOTE: u64 = 4;
const NT_GNU_BUILD_ID: u64 = 3;

/// The build id of an ELF file of either width and byte order; `None` for what is no ELF file, is damaged, has no build id, or one
/// of more than [`MAX_BUILD_ID_BYTES`]. The file's position stays as it is.
///
/// # Errors
/// When the file cannot be read.
pub fn read_build_id(file: &File) -> io::Result<Option<Vec<u8>>> {
    find_build_id(&|bytes, offset| file.read_at(bytes, offset))
}

/// As [`read_build_id`], of anything that can be read at an offset as `pread(2)` does it.
///
/// # Errors
/// What `read_at` says.
pub fn find_build_id(read_at: &dyn Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    let Some(elf) = Elf::open(read_at)? else { return Ok(None) };
    for (offset, length, align) in elf.note_segments()? {
        let notes = read_up_to(read_at, offset, length.min(MAX_NOTES_BYTES))?;
        if let Some(id) = elf.numbers.find_build_id_note(&notes, align) {
            return Ok((1..=MAX_BUILD_ID_BYTES).contains(&id.len()).then(|| id.to_vec()));
        }
    }
    Ok(None)
}

/// How numbers are written in a file.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    wide: bool,
    big: bool,
}

impl Numbers {
    /// The number of `length` bytes at `at`; none where the bytes end before.
    fn get(self, bytes: &[u8], at: usize, length: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
    }

    /// The descriptor of the first build id among notes.
    fn find_build_id_note(self, notes: &[u8], align: u64) -> Option<&[u8]> {
        // Only 8 differs (.note.gnu.property); older linkers wrote 0 and 1 where they meant 4.
        let align = if align == 8 { 8 } else { 4 };
        let mut at = 0;
        loop {
            let word = |index: usize| self.get(notes, at + 4 * index, 4);
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
}

struct Elf<'a> {
    read_at: &'a dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    numbers: Numbers,
    headers: u64,
    count: u16,
}

impl<'a> Elf<'a> {
    fn open(read_at: &'a dyn Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<Option<Self>> {
        let head = read_up_to(read_at, 0, 64)?;
        let Some([0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2)]) = head.get(..6) else {
            return Ok(None);
        };
        let numbers = Numbers { wide: *class == 2, big: *order == 2 };
        let (offset, size, count) =
            if numbers.wide { ((32, 8), (54, 56), 56) } else { ((28, 4), (42, 32), 44) };
        let known = || {
            let headers = numbers.get(&head, offset.0, offset.1)?;
            let found_size = numbers.get(&head, size.0, 2)?;
            let count = u16::try_from(numbers.get(&head, count, 2)?).ok()?;
            (found_size == size.1 && count <= MAX_HEADERS).then_some(Self {
                read_at,
                numbers,
                headers,
                count,
            })
        };
        Ok(known())
    }

    /// Offset, length and alignment of the PT_NOTE segments.
    fn note_segments(&self) -> io::Result<Vec<(u64, u64, u64)>> {
        let (size, number) = if self.numbers.wide { (56, 8) } else { (32, 4) };
        let (offset, length, align) = if self.numbers.wide { (8, 32, 48) } else { (4, 16, 28) };
        let headers = read_up_to(self.read_at, self.headers, u64::from(self.count) * size as u64)?;
        let of_header = |header: &[u8]| {
            let get = |at: usize| self.numbers.get(header, at, number);
            (self.numbers.get(header, 0, 4)? == PT_NOTE).then_some((get(offset)?, get(length)?, get(align)?))
        };
        Ok(headers.chunks_exact(size).filter_map(of_header).take(MAX_NOTE_SEGMENTS).collect())
    }
}

fn to_usize(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Up to `length` bytes; fewer where the file ends, or has no such offset.
fn read_up_to(
    read_at: &dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    offset: u64,
    length: u64,
) -> io::Result<Vec<u8>> {
    // The callers' limits are small.
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut filled = 0;
    // Larger offsets are an error to the kernel, and no file has them.
    if i64::try_from(offset.saturating_add(length)).is_err() {
        return Ok(Vec::new());
    }
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_at(rest, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
