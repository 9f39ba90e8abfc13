//! What a program or library exports, by the memory of a process: the loader needs it there. So it is known where the
//! file is gone or cannot be read.

use std::collections::HashMap;

use gantry_stack::module::PAGE;
use object::LittleEndian;
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_STRSZ, DT_STRTAB, DT_SYMTAB, DynamicTag, FileHeader64, PT_DYNAMIC, STT_FUNC,
    Sym64,
};
use object::pod::slice_from_all_bytes;
use object::read::elf::{FileHeader, ProgramHeader, Sym};

use crate::image::first_of;
use crate::memory::Memory;

/// The most bytes of a table, as tables come from untrusted files.
const MAX_TABLE: u64 = 64 << 20;

/// An exported function or variable.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    /// As in the file's symbols.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) is_function: bool,
}

/// The exports of the file that is mapped at `base`. None: it has no table of them.
pub(crate) fn exports_of(memory: Memory, base: u64) -> Option<Vec<Export>> {
    let page = memory.read(base, PAGE);
    let bias = base.wrapping_sub(first_of(&page)?);
    let header = FileHeader64::<LittleEndian>::parse(page.as_slice()).ok()?;
    let segments = header.program_headers(LittleEndian, page.as_slice()).ok()?;
    let dynamic = segments.iter().find(|segment| segment.p_type(LittleEndian) == PT_DYNAMIC)?;
    let (address, length) = (dynamic.p_vaddr(LittleEndian), dynamic.p_memsz(LittleEndian));
    let entries = read(memory, bias.wrapping_add(address), length)?;
    let words: Vec<u64> = entries.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let entries: HashMap<u64, u64> = words.as_chunks().0.iter().map(|[tag, value]| (*tag, *value)).collect();
    let value = |tag: DynamicTag| entries.get(&tag.0.cast_unsigned()).copied();
    // Some loaders replace the addresses by those of the process.
    let address = |tag| value(tag).map(|at| if at < base { bias.wrapping_add(at) } else { at });
    let count = match address(DT_HASH) {
        Some(hash) => number(memory, hash.wrapping_add(4))?,
        None => count_hashed(memory, address(DT_GNU_HASH)?)?,
    };
    let symbols =
        read(memory, address(DT_SYMTAB)?, u64::from(count) * size_of::<Sym64<LittleEndian>>() as u64)?;
    let names = read(memory, address(DT_STRTAB)?, value(DT_STRSZ)?)?;
    Some(name_all(slice_from_all_bytes(&symbols).ok()?, &names))
}

/// The defined symbols that have a name. Those of a damaged table can have one long name each, so the names together
/// are not longer than a table.
fn name_all(symbols: &[Sym64<LittleEndian>], names: &[u8]) -> Vec<Export> {
    let defined = symbols.iter().filter(|symbol| !symbol.is_undefined(LittleEndian));
    let mut room = MAX_TABLE;
    let named = defined.map_while(|symbol| {
        let begin = usize::try_from(symbol.st_name(LittleEndian)).ok();
        let names = begin.and_then(|begin| names.get(begin..)).unwrap_or_default();
        let name = names.split(|byte| *byte == 0).next().unwrap_or_default();
        room = room.checked_sub(name.len() as u64)?;
        Some((symbol, str::from_utf8(name).unwrap_or_default()))
    });
    let exports = named.filter(|(_, name)| !name.is_empty()).map(|(symbol, name)| Export {
        name: name.to_owned(),
        address: symbol.st_value(LittleEndian),
        size: symbol.st_size(LittleEndian),
        is_function: symbol.st_type() == STT_FUNC,
    });
    exports.collect()
}

/// How many symbols there are, by the end of the table that finds them. Its chains are in their order, and the last
/// number of a chain is odd. Source: binutils, bfd/elflink.c.
fn count_hashed(memory: Memory, table: u64) -> Option<u32> {
    let [buckets, first, filters] = [0, 4, 8].map(|at| number(memory, table.wrapping_add(at)));
    let (buckets, first) = (u64::from(buckets?), first?);
    let begin = table.wrapping_add(16).wrapping_add(8 * u64::from(filters?));
    let begins = read(memory, begin, 4 * buckets)?;
    let last = begins.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).max()?;
    let Some(skipped) = last.checked_sub(first) else { return Some(first) };
    let chain = begin.wrapping_add(4 * buckets).wrapping_add(4 * u64::from(skipped));
    last.checked_add(length_of(memory, chain)?)?.checked_add(1)
}

/// How many numbers stand before the first odd one. None: there is none in a table of the largest size.
fn length_of(memory: Memory, chain: u64) -> Option<u32> {
    let mut length: u32 = 0;
    while u64::from(length) * 4 < MAX_TABLE {
        let bytes = memory.read(chain.wrapping_add(4 * u64::from(length)), PAGE);
        let words = bytes.as_chunks::<4>().0;
        if let Some(odd) = words.iter().position(|word| word[0] & 1 == 1) {
            return length.checked_add(u32::try_from(odd).ok()?);
        }
        length = length.checked_add(u32::try_from(words.len()).ok().filter(|count| *count > 0)?)?;
    }
    None
}

fn number(memory: Memory, address: u64) -> Option<u32> {
    Some(u32::from_le_bytes(memory.read_exactly(address, 4)?.try_into().ok()?))
}

fn read(memory: Memory, address: u64, length: u64) -> Option<Vec<u8>> {
    memory.read_exactly(address, usize::try_from(length).ok().filter(|_| length <= MAX_TABLE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Maps;

    #[test]
    fn a_chain_ends_at_its_first_odd_number_and_is_not_followed_for_ever() {
        let memory = Memory { pid: i32::try_from(std::process::id()).unwrap() };
        let end_at = |count: usize| {
            let mut words = vec![2_u32; count + 1];
            words[count] = 7;
            length_of(memory, words.as_ptr().addr() as u64)
        };
        let most = usize::try_from(MAX_TABLE / 4).unwrap();
        for count in [0, 1, PAGE / 4 - 1, PAGE / 4, PAGE] {
            assert_eq!(end_at(count), Some(u32::try_from(count).unwrap()));
        }
        assert_eq!(end_at(most), None);
        assert_eq!(length_of(memory, 0), None);
    }

    #[test]
    fn names_without_an_end_do_not_fill_the_memory() {
        // Functions, each with the begin of its name.
        let find = |begins: &[u32], names: &[u8]| {
            let symbol = |begin: &u32| {
                [&begin.to_le_bytes()[..], &[2, 0, 0xf1, 0xff], &[7; size_of::<u64>() * 2]].concat()
            };
            let symbols: Vec<u8> = begins.iter().flat_map(symbol).collect();
            name_all(slice_from_all_bytes(&symbols).unwrap(), names)
        };
        let found = find(&[9, 2, 0, 3], b"getpid\0");
        let found: Vec<&str> = found.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(found, ["tpid", "getpid", "pid"]);
        assert_eq!(find(&[0; 100], &vec![b'a'; 4 << 20]).len(), 16);
    }

    #[test]
    fn the_c_library_of_this_process_exports_its_functions() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let maps = Maps::of_process(pid).unwrap();
        let (_, base) = maps.files().find(|(key, _)| key.path.contains("libc.")).unwrap();
        let exports = exports_of(Memory { pid }, base).unwrap();
        let of = |name: &str| exports.iter().find(|export| export.name == name).unwrap();
        let here = libc::getppid as unsafe extern "C" fn() -> i32 as usize as u64;
        assert_eq!((of("getppid").address, of("getppid").is_function), (here - base, true));
        assert!(!of("environ").is_function);
        assert!(exports_of(Memory { pid }, base + 1).is_none());
    }
}
