//! Converts the launcher's proctable into a [`Placement`].
//!
//! In memory it is an array of `struct { char *host_name; char *executable_name; int pid; }`, with the launcher's
//! pointer width. Launchers tend to allocate every string separately. So it is read in chunks: the entries in one
//! piece, then all blocks in which strings begin, ascending and each once. The strings are cut out of those.
//! Temporary memory is limited to a chunk, whatever the table claims.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;

use gantry_types::host_name::HostNameError;
use gantry_types::id::{NodeId, Pid};
use gantry_types::placement::{Placement, PlacementBuilder, PlacementError};

use super::memory::{BLOCK_BYTES, Memory, Width, offset_in_block};

/// More ranks than any machine has. A size above this limit is invalid.
pub(super) const MOST_RANKS: u32 = 1 << 24;

/// Entries read at a time: at most two blocks of memory for each.
const CHUNK: usize = 2048;

/// The longest host name or path: four times the limit of a path.
const MOST_STRING_BYTES: usize = 4 * BLOCK_BYTES;

/// Why a table is inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There are no ranks in it.
    #[error("the launcher's table of ranks is empty")]
    Empty,
    /// The size is invalid.
    #[error("the launcher's table has {size} ranks, which cannot be")]
    Size {
        /// The value of `MPIR_proctable_size`.
        size: i32,
    },
    /// The table, or a part of it, is not in the launcher's memory.
    #[error("the launcher's table cannot be read at {address:#x}: {reason}")]
    Unreadable {
        /// Where.
        address: u64,
        /// The system's error.
        reason: String,
    },
    /// An entry is not filled in.
    #[error("rank {rank} has no {what} yet in the launcher's table")]
    Missing {
        /// Which.
        rank: u32,
        /// A host name or a pid.
        what: &'static str,
    },
    /// A string cannot be read.
    #[error("the {what} of rank {rank} in the launcher's table cannot be read at {address:#x}")]
    BadString {
        /// Which.
        rank: u32,
        /// Host name or executable.
        what: &'static str,
        /// The address of the table.
        address: u64,
    },
    /// An invalid host name.
    #[error("rank {rank} in the launcher's table: {error}")]
    BadHost {
        /// Which.
        rank: u32,
        /// The problem of the name.
        error: HostNameError,
    },
    /// A pid below 0.
    #[error("rank {rank} has the pid {pid} in the launcher's table")]
    BadPid {
        /// Which.
        rank: u32,
        /// The pid in the table.
        pid: i32,
    },
    /// Two ranks cannot be one process.
    #[error("ranks {first} and {second} are both process {pid} on {host} in the launcher's table")]
    Twice {
        /// The lower rank.
        first: u32,
        /// The higher rank.
        second: u32,
        /// Their pid.
        pid: i32,
        /// Their host.
        host: String,
    },
}

/// Reads the table of `size` ranks at `address`.
pub(super) fn read_table(
    memory: &dyn Memory,
    width: Width,
    address: u64,
    size: i32,
) -> Result<Placement, TableError> {
    if size == 0 {
        return Err(TableError::Empty);
    }
    let ranks = u32::try_from(size).ok().filter(|ranks| *ranks <= MOST_RANKS);
    let ranks = ranks.ok_or(TableError::Size { size })?;
    let layout = Layout::of(width);
    let mut placement = PlacementBuilder::new();
    let mut first = 0;
    while first < ranks {
        let count = CHUNK.min((ranks - first) as usize);
        let at = address.saturating_add(u64::from(first) * layout.entry_bytes as u64);
        let mut bytes = vec![0; count * layout.entry_bytes];
        memory.read(at, &mut bytes).map_err(unreadable(at))?;
        let entries: Vec<Entry> = bytes.chunks_exact(layout.entry_bytes).map(|it| layout.parse(it)).collect();
        push_chunk(memory, first, &entries, &mut placement)?;
        first += u32::try_from(count).unwrap_or(ranks);
    }
    let placement = placement.build();
    refuse_twins(&placement)?;
    Ok(placement)
}

fn unreadable(address: u64) -> impl Fn(io::Error) -> TableError {
    move |error| TableError::Unreadable { address, reason: error.to_string() }
}

/// The memory layout of an entry.
#[derive(Debug, Clone, Copy)]
struct Layout {
    width: Width,
    entry_bytes: usize,
}

/// One entry, with the layout that it has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    host: u64,
    exe: u64,
    pid: i32,
}

impl Layout {
    /// Two pointers and an int, padded to a pointer's alignment.
    const fn of(width: Width) -> Self {
        Self { width, entry_bytes: (2 * width.bytes() + 4).next_multiple_of(width.bytes()) }
    }

    fn parse(self, bytes: &[u8]) -> Entry {
        let pointer = self.width.bytes();
        let number = |from: usize| self.width.number(bytes.get(from..).unwrap_or_default()).unwrap_or(0);
        let pid = bytes.get(2 * pointer..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        Entry { host: number(0), exe: number(pointer), pid: i32::from_ne_bytes(pid) }
    }
}

/// Adds the ranks of `entries`, of which the first is rank `first`.
fn push_chunk(
    memory: &dyn Memory,
    first: u32,
    entries: &[Entry],
    placement: &mut PlacementBuilder,
) -> Result<(), TableError> {
    let pointers: Vec<u64> = entries.iter().flat_map(|entry| [entry.host, entry.exe]).collect();
    let strings = Strings::read(memory, pointers).map_err(unreadable(entries[0].host))?;
    for ((slot, entry), rank) in entries.iter().enumerate().zip(first..) {
        if entry.host == 0 {
            return Err(TableError::Missing { rank, what: "host name" });
        }
        if entry.pid <= 0 {
            return Err(match entry.pid {
                0 => TableError::Missing { rank, what: "pid" },
                pid => TableError::BadPid { rank, pid },
            });
        }
        let bad = |what, address| move || TableError::BadString { rank, what, address };
        let host = strings.get(2 * slot).filter(|host| !host.is_empty());
        let host = host.ok_or_else(bad("host name", entry.host))?;
        // A launcher that does not know the executable has a null pointer here.
        let exe = match entry.exe {
            0 => Cow::Borrowed(""),
            address => strings.get(2 * slot + 1).ok_or_else(bad("executable", address))?,
        };
        // There are fewer ranks than a placement can take.
        let pushed = placement.push(&host, Pid::new(entry.pid), &exe);
        pushed.map_err(|error| match error {
            PlacementError::BadHost(error) => TableError::BadHost { rank, error },
            _ => TableError::Size { size: i32::MAX },
        })?;
    }
    Ok(())
}

/// The strings of a chunk, by the place that their pointer had in it.
#[derive(Debug)]
struct Strings {
    /// Content of the blocks in which strings begin, then the strings that go beyond those.
    bytes: Vec<u8>,
    /// The range of each string in `bytes`. `None`: it cannot be read.
    places: Vec<Option<(usize, usize)>>,
}

impl Strings {
    fn read(memory: &dyn Memory, pointers: Vec<u64>) -> io::Result<Self> {
        let mut places = vec![None; pointers.len()];
        let mut sorted: Vec<(u64, usize)> = pointers
            .into_iter()
            .enumerate()
            .filter(|(_, pointer)| *pointer != 0)
            .map(|(slot, pointer)| (pointer, slot))
            .collect();
        sorted.sort_unstable();
        let mut blocks: Vec<u64> = sorted.iter().map(|(pointer, _)| block_of(*pointer)).collect();
        blocks.dedup();
        let mut bytes = vec![0; blocks.len() * BLOCK_BYTES];
        let readable = memory.read_blocks(&blocks, &mut bytes)?;
        let read_bytes = bytes.len();
        let mut block = 0;
        let mut before: Option<(u64, Option<(usize, usize)>)> = None;
        for (pointer, slot) in sorted {
            let known = before.filter(|(same, _)| *same == pointer).map(|(_, place)| place);
            let place = known.unwrap_or_else(|| {
                while blocks[block] != block_of(pointer) {
                    block += 1;
                }
                let joined = joined_blocks(&blocks[block..], &readable[block..]);
                let from = block * BLOCK_BYTES + offset_in_block(pointer);
                let until = (block + joined) * BLOCK_BYTES;
                cut(&bytes[..read_bytes], from, until).or_else(|| beyond(memory, pointer, &mut bytes))
            });
            before = Some((pointer, place));
            places[slot] = place;
        }
        Ok(Self { bytes, places })
    }

    fn get(&self, slot: usize) -> Option<Cow<'_, str>> {
        let (from, until) = (*self.places.get(slot)?)?;
        Some(String::from_utf8_lossy(&self.bytes[from..until]))
    }
}

fn block_of(address: u64) -> u64 {
    address - offset_in_block(address) as u64
}

/// The number of consecutive blocks, from the first one on, that were read. A string is at most that long.
fn joined_blocks(blocks: &[u64], readable: &[bool]) -> usize {
    let most = 1 + MOST_STRING_BYTES / BLOCK_BYTES;
    let follows = |at: usize| at == 0 || blocks[at] == blocks[at - 1] + BLOCK_BYTES as u64;
    (0..blocks.len().min(most)).take_while(|at| readable[*at] && follows(*at)).count()
}

/// The string in `bytes` that begins at `from` and ends before `until`.
fn cut(bytes: &[u8], from: usize, until: usize) -> Option<(usize, usize)> {
    let length = CStr::from_bytes_until_nul(bytes.get(from..until)?).ok()?.count_bytes();
    (length <= MOST_STRING_BYTES).then_some((from, from + length))
}

/// A string that continues in a block where no string begins. It is read separately and appended to `bytes`.
fn beyond(memory: &dyn Memory, pointer: u64, bytes: &mut Vec<u8>) -> Option<(usize, usize)> {
    let text = memory.string(pointer, MOST_STRING_BYTES).ok().flatten()?;
    let from = bytes.len();
    bytes.extend_from_slice(&text);
    Some((from, bytes.len()))
}

/// Refuses two ranks with the same host and pid. It works node by node, so the fullest node limits its memory.
fn refuse_twins(placement: &Placement) -> Result<(), TableError> {
    let mut here = Vec::new();
    for (node, host) in (0..).map(NodeId).zip(placement.hosts()) {
        here.clear();
        here.extend(
            placement
                .ranks_on(node)
                .iter()
                .filter_map(|rank| Some((placement.get(rank)?.pid?.get(), rank.0))),
        );
        here.sort_unstable();
        if let Some(twins) = here.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (pid, first, second) = (twins[0].0, twins[0].1, twins[1].1);
            return Err(TableError::Twice { first, second, pid, host: host.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::memory::fake::FakeMemory;
    use super::*;

    const START: u64 = 0x10_0000;
    const TABLE: u64 = START + 8;

    /// Memory of whole blocks with a table at [`TABLE`] and, from the second block on, `text`.
    fn memory(width: Width, entries: &[(u64, u64, i32)], text: &[u8]) -> FakeMemory {
        let mut bytes = vec![0; 8];
        for &(host, exe, pid) in entries {
            for pointer in [host, exe] {
                bytes.extend_from_slice(&pointer.to_ne_bytes()[..width.bytes()]);
            }
            bytes.extend_from_slice(&pid.to_ne_bytes());
            bytes.resize(bytes.len().next_multiple_of(width.bytes()), 0);
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), b'?');
        bytes.extend_from_slice(text);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), b'?');
        FakeMemory { start: START, bytes }
    }

    #[track_caller]
    fn check(memory: &FakeMemory, width: Width, size: i32, expected: Result<&[&str], &str>) {
        let read = read_table(memory, width, TABLE, size);
        let read = read.map(|placement| {
            let lines = placement.iter().map(|it| format!("{} {} {}", it.host, it.pid.unwrap(), it.exe));
            lines.collect::<Vec<_>>()
        });
        let read = read.map_err(|error| error.to_string());
        assert_eq!(
            read,
            expected.map(|lines| lines.iter().map(|it| (*it).to_owned()).collect()).map_err(str::to_owned)
        );
    }

    /// The address of `text` if the table fits in the first block.
    const TEXT: u64 = START + BLOCK_BYTES as u64;

    #[test]
    fn a_table_is_read_as_wide_as_its_launcher() {
        for width in [Width::Wide, Width::Narrow] {
            let entries = [(TEXT, TEXT + 3, 7), (TEXT + 10, TEXT + 3, 7), (TEXT, 0, 8)];
            let memory = memory(width, &entries, b"n1\0./app\0\0n2\0");
            check(&memory, width, 3, Ok(&["n1 7 ./app", "n2 7 ./app", "n1 8 "]));
        }
    }

    #[test]
    fn a_host_that_another_program_would_obey_is_refused_with_its_rank() {
        for (name, problem) in [
            ("-oProxyCommand=x", "a host name starts with '-'"),
            ("$(id)", "a host name has no '$'"),
            ("me@other", "a host name has no '@'"),
            ("n 1", "a host name has no ' '"),
        ] {
            let text = format!("n1\0{name}\0");
            let memory = memory(Width::Wide, &[(TEXT, 0, 7), (TEXT + 3, 0, 8)], text.as_bytes());
            let expected =
                format!("rank 1 in the launcher's table: '{name}' is not the name of a host: {problem}");
            check(&memory, Width::Wide, 2, Err(&expected));
        }
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_with_the_reason() {
        let wide = |entries: &[(u64, u64, i32)]| memory(Width::Wide, entries, b"n1\0app\0");
        let good = (TEXT, TEXT + 3, 7);
        let check = |memory: &FakeMemory, size, text| check(memory, Width::Wide, size, Err(text));
        check(&wide(&[good]), 0, "the launcher's table of ranks is empty");
        check(&wide(&[good]), -1, "the launcher's table has -1 ranks, which cannot be");
        check(&wide(&[good]), i32::MAX, "the launcher's table has 2147483647 ranks, which cannot be");
        check(&wide(&[good, (0, 0, 0)]), 2, "rank 1 has no host name yet in the launcher's table");
        check(&wide(&[good, (TEXT, 0, 0)]), 2, "rank 1 has no pid yet in the launcher's table");
        check(&wide(&[(TEXT, 0, -4)]), 1, "rank 0 has the pid -4 in the launcher's table");
        check(
            &wide(&[good, (TEXT, 0, 8), good]),
            3,
            "ranks 0 and 2 are both process 7 on n1 in the launcher's table",
        );
        let text = "the host name of rank 0 in the launcher's table cannot be read at 0x10";
        check(&wide(&[(0x10, TEXT, 7)]), 1, text);
        let text = "the executable of rank 0 in the launcher's table cannot be read at 0x10";
        check(&wide(&[(TEXT, 0x10, 7)]), 1, text);
        // An empty host name, and one that never ends.
        let text = "the host name of rank 0 in the launcher's table cannot be read at 0x101002";
        check(&wide(&[(TEXT + 2, 0, 7)]), 1, text);
        let text = "the host name of rank 0 in the launcher's table cannot be read at 0x101fff";
        check(&wide(&[(TEXT + 0xfff, 0, 7)]), 1, text);
        let error = read_table(&wide(&[good]), Width::Wide, TABLE, 1_000_000).unwrap_err();
        assert!(matches!(error, TableError::Unreadable { address: TABLE, .. }), "{error}");
    }

    #[test]
    fn strings_that_cross_blocks_are_whole() {
        // One string that continues in a block where another begins, and one that continues where none does.
        let mut text = vec![0; 3 * BLOCK_BYTES];
        let (first, second) = (BLOCK_BYTES - 2, 2 * BLOCK_BYTES - 3);
        text[first..first + 4].copy_from_slice(b"n001");
        text[second..second + 5].copy_from_slice(b"n0002");
        let entries = [(TEXT + first as u64, 0, 1), (TEXT + second as u64, 0, 2)];
        check(&memory(Width::Wide, &entries, &text), Width::Wide, 2, Ok(&["n001 1 ", "n0002 2 "]));
    }

    #[test]
    fn more_ranks_than_a_chunk_are_all_there() {
        let ranks = 3 * CHUNK + 1;
        let table_bytes = (8 + ranks * 24).next_multiple_of(BLOCK_BYTES) as u64;
        let entries: Vec<_> = (0..ranks as u64)
            .map(|rank| (START + table_bytes + rank % 7 * 3, 0, 100 + i32::try_from(rank).unwrap()))
            .collect();
        let memory = memory(Width::Wide, &entries, b"n0\0n1\0n2\0n3\0n4\0n5\0n6\0");
        let placement = read_table(&memory, Width::Wide, TABLE, i32::try_from(ranks).unwrap()).unwrap();
        assert_eq!((placement.rank_count() as usize, placement.node_count()), (ranks, 7));
        for (place, rank) in placement.iter().zip(0..) {
            assert_eq!((place.host, place.pid.unwrap().get()), (&*format!("n{}", rank % 7), 100 + rank));
        }
    }
}
