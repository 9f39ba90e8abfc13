//! Reads another process's memory in bulk, many blocks per call: reading a table of 100,000 ranks piece by piece takes
//! minutes.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gantry_types::id::Pid;

use super::sys;

/// The size of a block. Blocks are aligned to it, so each lies in one page and is readable as a whole or not at all.
pub(super) const BLOCK_BYTES: usize = 4096;

/// The width of a process's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// 32-bit.
    Narrow,
    /// 64-bit.
    Wide,
}

impl Width {
    /// Bytes of a pointer.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }

    /// The number at the start of `bytes`, in this machine's byte order.
    pub(super) fn number(self, bytes: &[u8]) -> Option<u64> {
        match self {
            Self::Narrow => bytes.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk).into()),
            Self::Wide => bytes.first_chunk().map(|chunk| u64::from_ne_bytes(*chunk)),
        }
    }
}

/// The memory of another process.
pub(super) trait Memory {
    /// Fills `into` from `address` on.
    ///
    /// # Errors
    /// Some of it cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;

    /// Reads blocks, ascending and each once, into `into`, [`BLOCK_BYTES`] for each. Returns which of them were
    /// readable.
    ///
    /// # Errors
    /// The memory as a whole cannot be read.
    fn read_blocks(&self, blocks: &[u64], into: &mut [u8]) -> io::Result<Vec<bool>>;

    /// The `int` at `address`.
    fn int(&self, address: u64) -> io::Result<i32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// The pointer at `address`.
    fn pointer(&self, address: u64, width: Width) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let used = &mut bytes[..width.bytes()];
        self.read(address, used)?;
        width.number(used).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The bytes from `address` up to the next NUL. `None`: there is no NUL within `most_bytes` (a multiple of the
    /// block).
    fn string(&self, address: u64, most_bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < most_bytes {
            let mut block = [0; BLOCK_BYTES];
            let length = BLOCK_BYTES - offset_in_block(at);
            let piece = &mut block[..length];
            self.read(at, piece)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return Ok(Some(text));
            }
            text.extend_from_slice(piece);
            at = at.saturating_add(length as u64);
        }
        Ok(None)
    }
}

/// The offset of an address in its block.
pub(super) fn offset_in_block(address: u64) -> usize {
    usize::try_from(address % BLOCK_BYTES as u64).unwrap_or(0)
}

/// The memory of a process on this machine. It is read by `process_vm_readv`, or by `/proc/PID/mem` where that is
/// forbidden.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    pid: Pid,
    refused: Cell<bool>,
    file: OnceCell<File>,
}

impl ProcessMemory {
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, refused: Cell::new(false), file: OnceCell::new() }
    }

    /// As `new`, but uses `/proc/PID/mem` from the start.
    #[cfg(test)]
    fn by_file(pid: Pid) -> Self {
        Self { pid, refused: Cell::new(true), file: OnceCell::new() }
    }

    fn file(&self) -> io::Result<&File> {
        match self.file.get() {
            Some(file) => Ok(file),
            None => {
                let file = File::open(format!("/proc/{}/mem", self.pid))?;
                Ok(self.file.get_or_init(|| file))
            }
        }
    }

    /// Reads `pieces` in order, up to the first unreadable one. Returns the number of bytes.
    fn pieces(&self, pieces: &[(u64, usize)], into: &mut [u8]) -> io::Result<usize> {
        if !self.refused.get() {
            match sys::read_pieces(self.pid.get(), pieces, into) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    self.refused.set(true);
                }
                other => return other,
            }
        }
        let mut done = 0;
        for &(address, length) in pieces.iter().take(sys::MOST_PIECES) {
            match self.file()?.read_at(&mut into[done..done + length], address) {
                Ok(count) => done += count,
                Err(_) if done > 0 => return Ok(done),
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    return Err(io::Error::from_raw_os_error(libc::EFAULT));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            match self.pieces(&[(address.saturating_add(done as u64), rest.len())], rest)? {
                0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
                count => done += count,
            }
        }
        Ok(())
    }

    fn read_blocks(&self, blocks: &[u64], into: &mut [u8]) -> io::Result<Vec<bool>> {
        let mut readable = vec![false; blocks.len()];
        let mut next = 0;
        while next < blocks.len() {
            let (pieces, asked) = runs(&blocks[next..]);
            let room = &mut into[next * BLOCK_BYTES..(next + asked) * BLOCK_BYTES];
            let done = match self.pieces(&pieces, room) {
                Ok(bytes) => bytes / BLOCK_BYTES,
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => 0,
                Err(error) => return Err(error),
            };
            readable[next..next + done].fill(true);
            // The block after the last one read is unreadable, unless all were read.
            next += if done < asked { done + 1 } else { done };
        }
        Ok(readable)
    }
}

/// Joins neighbouring blocks into pieces, as many as one call takes. Returns the number of blocks in them.
fn runs(blocks: &[u64]) -> (Vec<(u64, usize)>, usize) {
    let mut pieces: Vec<(u64, usize)> = Vec::new();
    for (count, &block) in blocks.iter().enumerate() {
        let full = pieces.len() == sys::MOST_PIECES;
        match pieces.last_mut() {
            Some((start, length)) if *start + *length as u64 == block => *length += BLOCK_BYTES,
            _ if full => return (pieces, count),
            _ => pieces.push((block, BLOCK_BYTES)),
        }
    }
    (pieces, blocks.len())
}

/// Memory from pieces, for tests.
#[cfg(test)]
pub(super) mod fake {
    use super::*;

    /// One stretch of memory from `start` on. Everything else is unreadable.
    #[derive(Debug)]
    pub(in super::super) struct FakeMemory {
        pub(in super::super) start: u64,
        pub(in super::super) bytes: Vec<u8>,
    }

    impl Memory for FakeMemory {
        fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
            let from = address.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
            let found = from.and_then(|from| self.bytes.get(from..from + into.len()));
            into.copy_from_slice(found.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?);
            Ok(())
        }

        fn read_blocks(&self, blocks: &[u64], into: &mut [u8]) -> io::Result<Vec<bool>> {
            let pairs = blocks.iter().zip(into.chunks_mut(BLOCK_BYTES));
            Ok(pairs.map(|(block, room)| self.read(*block, room).is_ok()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Pid {
        Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()
    }

    /// Twelve whole blocks of our own and where they are.
    fn blocks_of_our_own() -> (Vec<u8>, Vec<u64>) {
        let memory: Vec<u8> =
            (0..=250_u8).flat_map(|byte| [byte; 7]).cycle().take(14 * BLOCK_BYTES).collect();
        let first = (memory.as_ptr() as u64).next_multiple_of(BLOCK_BYTES as u64);
        (memory, (0..12).map(|number| first + number * BLOCK_BYTES as u64).collect())
    }

    fn check_blocks(reader: &ProcessMemory) {
        let (memory, mut blocks) = blocks_of_our_own();
        // Gaps, a null page and an address where nothing can be.
        blocks.retain(|block| !(block - blocks_start(&memory)).is_multiple_of(3 * BLOCK_BYTES as u64));
        blocks.insert(0, 0);
        blocks.push(1 << 62);
        let mut into = vec![0; blocks.len() * BLOCK_BYTES];
        let readable = reader.read_blocks(&blocks, &mut into).unwrap();
        for ((block, readable), got) in blocks.iter().zip(readable).zip(into.chunks(BLOCK_BYTES)) {
            assert_eq!(readable, *block != 0 && *block != 1 << 62, "{block:#x}");
            if readable {
                let from = usize::try_from(block - memory.as_ptr() as u64).unwrap();
                assert_eq!(got, &memory[from..from + BLOCK_BYTES], "{block:#x}");
            }
        }
    }

    fn blocks_start(memory: &[u8]) -> u64 {
        (memory.as_ptr() as u64).next_multiple_of(BLOCK_BYTES as u64)
    }

    #[test]
    fn blocks_are_read_and_unreadable_ones_are_skipped() {
        check_blocks(&ProcessMemory::new(own()));
        check_blocks(&ProcessMemory::by_file(own()));
    }

    #[test]
    fn a_string_ends_at_its_nul_and_may_cross_blocks() {
        let memory = ProcessMemory::new(own());
        let mut text = vec![b'x'; 3 * BLOCK_BYTES];
        text.push(0);
        let address = text.as_ptr() as u64;
        let found = memory.string(address, 4 * BLOCK_BYTES).unwrap().map(|found| found.len());
        assert_eq!(found, Some(3 * BLOCK_BYTES));
        assert_eq!(memory.string(address, BLOCK_BYTES).unwrap(), None);
        assert_eq!(memory.string(8, BLOCK_BYTES).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn neighbours_become_one_piece_and_a_call_takes_no_more_than_it_can() {
        let block = BLOCK_BYTES as u64;
        assert_eq!(runs(&[0, block, 5 * block]), (vec![(0, 2 * BLOCK_BYTES), (5 * block, BLOCK_BYTES)], 3));
        let apart: Vec<u64> = (0..3000).map(|number| number * 2 * block).collect();
        assert_eq!(runs(&apart).1, sys::MOST_PIECES);
    }
}
