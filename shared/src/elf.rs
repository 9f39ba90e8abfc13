//! The part of the ELF format that a node needs: a file's machine, and its segments.
//!
//! The file is untrusted. So every count and length is bounded, and only some pages are read. This is written by hand
//! since the agent must stay small; source: elf(5).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The most program headers that are read. Linkers write about a dozen.
const MAX_HEADERS: u16 = 512;

/// The most segments of a kind that are read. Linkers write one PT_NOTE for each alignment.
const MAX_SEGMENTS: usize = 16;

/// Longest path of an interpreter, in bytes (`PATH_MAX`).
const MAX_INTERPRETER_BYTES: u64 = 4096;

/// The most sections that are read, and the most bytes of their names.
const MAX_SECTIONS: u64 = 4096;
const MAX_NAMES_BYTES: u64 = 256 * 1024;

const PT_INTERP: u64 = 3;

/// Reads at an offset, as `pread(2)` does it.
pub(crate) type ReadAt<'a> = &'a dyn Fn(&mut [u8], u64) -> io::Result<usize>;

/// The target of a file's code: width, byte order, processor. Files that work together have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    class: u8,
    order: u8,
    processor: u64,
}

impl Machine {
    /// The number of its processor (`e_machine` in elf(5)).
    #[must_use]
    pub fn processor(self) -> u64 {
        self.processor
    }
}

/// The machine of an ELF file. `None`: it is not an ELF file.
///
/// # Errors
/// When the file cannot be read.
pub fn read_machine(file: &File) -> io::Result<Option<Machine>> {
    let elf = Elf::open(&|bytes, offset| file.read_at(bytes, offset))?.map(|elf| elf.machine);
    Ok(elf)
}

/// The loader that an ELF file names (PT_INTERP), without its NUL. `None`: it needs none, as a static, damaged or
/// foreign file.
///
/// # Errors
/// When the file cannot be read.
pub fn read_interpreter(file: &File) -> io::Result<Option<Vec<u8>>> {
    let read_at: ReadAt<'_> = &|bytes, offset| file.read_at(bytes, offset);
    let Some(elf) = Elf::open(read_at)? else { return Ok(None) };
    let Some(found) = elf.segments(PT_INTERP)?.first().copied() else { return Ok(None) };
    let mut path = read_up_to(read_at, found.offset, found.length.min(MAX_INTERPRETER_BYTES))?;
    let end = path.iter().position(|byte| *byte == 0);
    path.truncate(end.unwrap_or(0));
    Ok((!path.is_empty()).then_some(path))
}

/// Whether an ELF file has a section of that name. Any other file has none.
///
/// # Errors
/// When the file cannot be read.
pub fn has_section(file: &File, name: &[u8]) -> io::Result<bool> {
    let read_at: ReadAt<'_> = &|bytes, offset| file.read_at(bytes, offset);
    match Elf::open(read_at)? {
        Some(elf) => elf.has_section(name),
        None => Ok(false),
    }
}

/// The encoding of numbers in a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) wide: bool,
    pub(crate) big: bool,
}

impl Numbers {
    /// The number of `length` bytes at `at`. None: it exceeds the bytes.
    pub(crate) fn get(self, bytes: &[u8], at: usize, length: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
    }
}

/// A part of a file, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) align: u64,
}

/// An ELF file of either width and byte order.
pub(crate) struct Elf<'a> {
    read_at: ReadAt<'a>,
    pub(crate) numbers: Numbers,
    machine: Machine,
    headers: u64,
    count: u16,
}

impl<'a> Elf<'a> {
    /// Reads a file's header. None: it is not an ELF file.
    pub(crate) fn open(read_at: ReadAt<'a>) -> io::Result<Option<Self>> {
        let head = read_up_to(read_at, 0, 64)?;
        let Some([0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2)]) = head.get(..6) else {
            return Ok(None);
        };
        let numbers = Numbers { wide: *class == 2, big: *order == 2 };
        let (offset, size, count) =
            if numbers.wide { ((32, 8), (54, 56), 56) } else { ((28, 4), (42, 32), 44) };
        let known = || {
            let machine = Machine { class: *class, order: *order, processor: numbers.get(&head, 18, 2)? };
            let headers = numbers.get(&head, offset.0, offset.1)?;
            let found_size = numbers.get(&head, size.0, 2)?;
            let count = u16::try_from(numbers.get(&head, count, 2)?).ok()?;
            let elf = Self { read_at, numbers, machine, headers, count };
            ((count == 0 || found_size == size.1) && count <= MAX_HEADERS).then_some(elf)
        };
        Ok(known())
    }

    /// The first segments of a kind.
    pub(crate) fn segments(&self, kind: u64) -> io::Result<Vec<Segment>> {
        let (size, number) = if self.numbers.wide { (56, 8) } else { (32, 4) };
        let (offset, length, align) = if self.numbers.wide { (8, 32, 48) } else { (4, 16, 28) };
        let headers = read_up_to(self.read_at, self.headers, u64::from(self.count) * size as u64)?;
        let of_header = |header: &[u8]| {
            let get = |at: usize| self.numbers.get(header, at, number);
            let segment = Segment { offset: get(offset)?, length: get(length)?, align: get(align)? };
            (self.numbers.get(header, 0, 4)? == kind).then_some(segment)
        };
        Ok(headers.chunks_exact(size).filter_map(of_header).take(MAX_SEGMENTS).collect())
    }

    fn has_section(&self, name: &[u8]) -> io::Result<bool> {
        let (size, number) = if self.numbers.wide { (64, 8) } else { (40, 4) };
        let (table, counts) = if self.numbers.wide { (40, 60) } else { (32, 48) };
        let (offset, length) = if self.numbers.wide { (24, 32) } else { (16, 20) };
        let head = read_up_to(self.read_at, 0, 64)?;
        let get = |bytes: &[u8], at: usize, length: usize| self.numbers.get(bytes, at, length).unwrap_or(0);
        let (count, names) = (get(&head, counts, 2), get(&head, counts + 2, 2));
        let bytes = count.min(MAX_SECTIONS) * size as u64;
        let headers = read_up_to(self.read_at, get(&head, table, number), bytes)?;
        let header = usize::try_from(names).ok().and_then(|at| headers.chunks_exact(size).nth(at));
        let Some(header) = header else { return Ok(false) };
        let length = get(header, length, number).min(MAX_NAMES_BYTES);
        let names = read_up_to(self.read_at, get(header, offset, number), length)?;
        let is_it = |header: &[u8]| {
            let at = usize::try_from(get(header, 0, 4)).unwrap_or(usize::MAX);
            names
                .get(at..)
                .and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        Ok(headers.chunks_exact(size).any(is_it))
    }
}

/// Up to `length` bytes; fewer at the end of the file or beyond it.
pub(crate) fn read_up_to(read_at: ReadAt<'_>, offset: u64, length: u64) -> io::Result<Vec<u8>> {
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
mod tests {
    use super::*;

    #[test]
    fn programs_name_their_loader_and_other_files_none() {
        let read = |path: &str| read_interpreter(&File::open(path).unwrap()).unwrap();
        // The shell exists on every machine with these tests. It is dynamic and names a loader, or is static.
        let shell = read("/bin/sh");
        assert!(shell.is_none_or(|loader| loader.starts_with(b"/")));
        assert_eq!(read("/etc/passwd"), None);
        let own = File::open("/proc/self/exe").unwrap();
        assert!(read_machine(&own).unwrap().is_some());
        assert_eq!(
            read_machine(&own).unwrap(),
            read_machine(&File::open("/proc/self/exe").unwrap()).unwrap()
        );
        assert_eq!(read_machine(&File::open("/etc/passwd").unwrap()).unwrap(), None);
    }
}
