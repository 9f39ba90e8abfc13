//! The `MPIR_` symbols of a launcher: their addresses.
//!
//! Launchers have them in different places: in `.symtab`, in `.dynsym` of the executable, or only in `.dynsym` of a
//! library. So both tables of a file are searched, and the executable before the libraries.

use std::path::Path;

use object::read::{Object, ObjectSegment, ObjectSymbol};

use super::memory::Width;

/// The symbols that matter. `MPIR_Breakpoint` is a function, all others are variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// Called when the table is filled.
    Breakpoint,
    /// `int`; the debugger sets it to 1.
    BeingDebugged,
    /// Pointer to the table.
    Proctable,
    /// `int`; how many entries it has.
    ProctableSize,
    /// `int`; why the breakpoint was reached.
    DebugState,
    /// `char *`; why the launcher aborted.
    AbortString,
    /// Its presence means that ranks are stopped before their `main`.
    AcquiredPreMain,
    /// `char *`; the WLM's job.
    JobId,
    /// `char *`; the step of that job.
    StepId,
}

const NAMES: [(Symbol, &str); 9] = [
    (Symbol::Breakpoint, "MPIR_Breakpoint"),
    (Symbol::BeingDebugged, "MPIR_being_debugged"),
    (Symbol::Proctable, "MPIR_proctable"),
    (Symbol::ProctableSize, "MPIR_proctable_size"),
    (Symbol::DebugState, "MPIR_debug_state"),
    (Symbol::AbortString, "MPIR_debug_abort_string"),
    (Symbol::AcquiredPreMain, "MPIR_acquired_pre_main"),
    (Symbol::JobId, "totalview_jobid"),
    (Symbol::StepId, "totalview_stepid"),
];

/// Addresses of the symbols that were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    places: [Option<u64>; NAMES.len()],
    breakpoint_bytes: u64,
}

impl Symbols {
    pub(super) fn get(&self, symbol: Symbol) -> Option<u64> {
        self.places[symbol as usize]
    }

    /// The size of the breakpoint's function.
    pub(super) fn breakpoint_bytes(&self) -> u64 {
        self.breakpoint_bytes
    }

    /// Whether the launcher can be run to its breakpoint and its table be read.
    pub(super) fn can_hold(&self) -> bool {
        self.can_tell() && self.get(Symbol::Breakpoint).is_some() && self.get(Symbol::BeingDebugged).is_some()
    }

    /// Whether the table can be read.
    pub(super) fn can_tell(&self) -> bool {
        self.get(Symbol::Proctable).is_some() && self.get(Symbol::ProctableSize).is_some()
    }

    /// Adds the symbols of `other` that are missing here, moved by `bias`.
    pub(super) fn add(&mut self, other: &Self, bias: u64) {
        if self.get(Symbol::Breakpoint).is_none() {
            self.breakpoint_bytes = other.breakpoint_bytes;
        }
        for (here, there) in self.places.iter_mut().zip(other.places) {
            *here = here.or(there.map(|address| address.wrapping_add(bias)));
        }
    }

    /// The symbols of one of the tables, by name, address and size.
    fn from_table<'a>(table: impl Iterator<Item = (&'a [u8], u64, u64)>) -> Self {
        let mut found = Self::default();
        for (name, address, size) in table {
            if !name.starts_with(b"MPIR_") && !name.starts_with(b"totalview_") {
                continue;
            }
            if let Some((symbol, _)) = NAMES.iter().find(|(_, known)| known.as_bytes() == name) {
                if *symbol == Symbol::Breakpoint && found.get(Symbol::Breakpoint).is_none() {
                    found.breakpoint_bytes = size;
                }
                found.places[*symbol as usize].get_or_insert(address);
            }
        }
        found
    }
}

/// The relevant data of an executable or library. Addresses are those of the file, before it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    pub(super) width: Width,
    pub(super) entry: u64,
    pub(super) symbols: Symbols,
    /// The loaded parts: offset in the file, and address.
    loaded: Vec<(u64, u64)>,
}

impl Elf {
    /// The difference between memory and file addresses, if the part at `offset` is mapped at `start`.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = |address: u64| address & !0xfff;
        let (_, address) = self.loaded.iter().find(|(from, _)| page(*from) == offset)?;
        Some(start.wrapping_sub(page(*address)))
    }
}

/// Reads the file. `None`: it is not an ELF file of this machine's byte order.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_elf(path: &Path) -> std::io::Result<Option<Elf>> {
    Ok(parse_elf(&std::fs::read(path)?))
}

/// As [`read_elf`], from the file's content.
pub(super) fn parse_elf(bytes: &[u8]) -> Option<Elf> {
    let file = object::File::parse(bytes).ok()?;
    if file.is_little_endian() != cfg!(target_endian = "little") {
        return None;
    }
    let mut symbols = Symbols::from_table(file.symbols().filter_map(|it| defined(&it)));
    symbols.add(&Symbols::from_table(file.dynamic_symbols().filter_map(|it| defined(&it))), 0);
    Some(Elf {
        width: if file.is_64() { Width::Wide } else { Width::Narrow },
        entry: file.entry(),
        symbols,
        loaded: file.segments().map(|part| (part.file_range().0, part.address())).collect(),
    })
}

/// Name, address and size of a symbol that is defined here.
fn defined<'data>(symbol: &object::Symbol<'data, '_>) -> Option<(&'data [u8], u64, u64)> {
    let name = symbol.name_bytes().ok()?;
    (!symbol.is_undefined() && symbol.address() != 0).then_some((name, symbol.address(), symbol.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        for (number, (symbol, _)) in NAMES.iter().enumerate() {
            assert_eq!(*symbol as usize, number);
        }
    }

    #[test]
    fn the_first_place_of_a_symbol_counts() {
        let names = [("MPIR_proctable", 8), ("MPIR_proctable_size", 16), ("MPIR_other", 4), ("main", 3)];
        let table = |names: &[(&'static str, u64)]| {
            Symbols::from_table(names.iter().map(|(name, address)| (name.as_bytes(), *address, *address / 8)))
        };
        let mut found = table(&names);
        assert!(found.can_tell() && !found.can_hold());
        let names = [("MPIR_proctable", 80), ("MPIR_Breakpoint", 88), ("MPIR_being_debugged", 96)];
        found.add(&table(&names), 0x1000);
        assert!(found.can_hold());
        assert_eq!(found.get(Symbol::Proctable), Some(8));
        assert_eq!((found.get(Symbol::Breakpoint), found.breakpoint_bytes()), (Some(0x1058), 11));
        found.add(&table(&[("MPIR_Breakpoint", 800)]), 0);
        assert_eq!(found.breakpoint_bytes(), 11);
        assert_eq!(found.get(Symbol::JobId), None);
    }

    #[test]
    fn a_file_is_moved_by_where_a_part_of_it_is_found() {
        let loaded = vec![(0, 0x40_0000), (0x2e10, 0x40_3e10)];
        let elf = Elf { width: Width::Wide, entry: 0, symbols: Symbols::default(), loaded };
        assert_eq!(elf.bias(0x40_0000, 0), Some(0));
        assert_eq!(elf.bias(0x7f00_0040_3000, 0x2000), Some(0x7f00_0000_0000));
        assert_eq!(elf.bias(0x40_0000, 0x9000), None);
    }

    #[test]
    fn other_files_have_no_symbols_and_neither_has_our_own_program() {
        assert_eq!(parse_elf(b"#!/bin/sh\n"), None);
        assert_eq!(parse_elf(b"\x7fELF\x02\x01\x01"), None);
        let own = read_elf(Path::new("/proc/self/exe")).unwrap().unwrap();
        assert_eq!(own.symbols, Symbols::default());
        assert!(own.entry > 0 && !own.loaded.is_empty());
    }
}
