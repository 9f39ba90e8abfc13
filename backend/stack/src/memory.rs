//! The memory of a process.

use std::collections::HashMap;
use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// The most bytes of a stack that are copied while its thread is stopped. Words above are read later, when a frame
/// needs them.
const MOST_OF_STACK: u64 = 1 << 20;

/// The memory of a process, as it is now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) pid: i32,
}

impl Memory {
    /// The bytes at an address, as far as they are readable, at most `length`.
    pub(crate) fn read(self, address: u64, length: usize) -> Vec<u8> {
        let Ok(base) = usize::try_from(address) else { return Vec::new() };
        let mut bytes = vec![0; length];
        let mut done = 0;
        // The kernel ends a read early at its own limit and at unmapped memory.
        while done < length {
            let remote = [RemoteIoVec { base: base.saturating_add(done), len: length - done }];
            let mut local = [IoSliceMut::new(&mut bytes[done..])];
            match process_vm_readv(Pid::from_raw(self.pid), &mut local, &remote) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        bytes.truncate(done);
        bytes
    }

    /// All of it, or nothing.
    pub(crate) fn read_exactly(self, address: u64, length: usize) -> Option<Vec<u8>> {
        let bytes = self.read(address, length);
        (bytes.len() == length).then_some(bytes)
    }

    /// The word at an address.
    pub(crate) fn word(self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.read_exactly(address, 8)?.try_into().ok()?))
    }
}

/// Memory that is read in pages, each only once. It is for many small objects close together, while a thread is
/// stopped.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Memory,
    known: HashMap<u64, Vec<u8>>,
}

impl Pages {
    const BYTES: u64 = 4096;

    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, known: HashMap::new() }
    }

    /// Fills `bytes` from an address. None: part of it is unmapped.
    pub(crate) fn read(&mut self, mut address: u64, mut bytes: &mut [u8]) -> Option<()> {
        while !bytes.is_empty() {
            let within = address % Self::BYTES;
            let begin = address - within;
            let page = self.known.entry(begin).or_insert_with(|| {
                self.memory.read_exactly(begin, usize::try_from(Self::BYTES).unwrap_or(0)).unwrap_or_default()
            });
            let rest = page.get(usize::try_from(within).ok()?..)?;
            let length = rest.len().min(bytes.len());
            let (now, later) = bytes.split_at_mut(length);
            now.copy_from_slice(rest.get(..length).filter(|it| !it.is_empty())?);
            address = begin.checked_add(Self::BYTES)?;
            bytes = later;
        }
        Some(())
    }

    /// The word at an address.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A copy of a thread's stack. Other addresses are read from the process's memory.
#[derive(Debug)]
pub(crate) struct StackCopy {
    memory: Memory,
    from: u64,
    bytes: Vec<u8>,
}

impl StackCopy {
    /// Copies the memory between the stack pointer and the end of its mapping.
    pub(crate) fn take(memory: Memory, from: u64, end: u64) -> Self {
        let length = usize::try_from(end.saturating_sub(from).min(MOST_OF_STACK)).unwrap_or_default();
        Self { memory, from, bytes: memory.read(from, length) }
    }

    /// A number of up to eight bytes.
    pub(crate) fn number(&self, address: u64, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        let place = number.get_mut(..bytes)?;
        let copied = address.checked_sub(self.from).and_then(|at| usize::try_from(at).ok());
        let copied = copied.and_then(|at| self.bytes.get(at..at.checked_add(bytes)?));
        match copied {
            Some(copied) => place.copy_from_slice(copied),
            None => place.copy_from_slice(&self.memory.read_exactly(address, bytes)?),
        }
        Some(u64::from_le_bytes(number))
    }

    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        self.number(address, 8)
    }

    /// The part between two addresses that was copied.
    pub(crate) fn copied(&self, from: u64, end: u64) -> &[u8] {
        let place = |address: u64| {
            let at = usize::try_from(address.saturating_sub(self.from)).unwrap_or(usize::MAX);
            at.min(self.bytes.len())
        };
        self.bytes.get(place(from)..place(end)).unwrap_or_default()
    }

    /// Bytes from anywhere in the process, such as its code.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        self.memory.read(address, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_a_hole_is_not() {
        let values = [1_u64, 2, 3];
        let here = values.as_ptr().addr() as u64;
        let memory = Memory { pid: i32::try_from(std::process::id()).unwrap() };
        let copy = StackCopy::take(memory, here, here + 16);
        // The third word is beyond the copy.
        assert_eq!([0, 8, 16].map(|at| copy.word(here + at)), [Some(1), Some(2), Some(3)]);
        assert_eq!(copy.number(here + 8, 1), Some(2));
        assert_eq!(copy.number(here, 9), None);
        assert_eq!(copy.copied(here + 8, here + 99), 2_u64.to_le_bytes());
        assert!(copy.copied(here + 99, here).is_empty() && copy.copied(0, here).is_empty());
        assert_eq!(copy.word(8), None);
        assert_eq!(memory.read_exactly(0, 4), None);
    }

    #[test]
    fn an_object_across_two_pages_is_read() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(3 * 4096).collect();
        let memory = Memory { pid: i32::try_from(std::process::id()).unwrap() };
        let mut pages = Pages::new(memory);
        let middle = (bytes.as_ptr().addr() + 4096).next_multiple_of(4096) - 100;
        let at = middle - bytes.as_ptr().addr();
        let mut read = [0; 200];
        assert_eq!(pages.read(middle as u64, &mut read), Some(()));
        assert_eq!(read, bytes[at..at + 200]);
        assert_eq!(pages.known.len(), 2);
        assert_eq!(pages.word(8), None);
        assert_eq!(pages.word(u64::MAX - 3), None);
    }
}
