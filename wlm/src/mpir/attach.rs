//! Reads the table of a running launcher without stopping it, and shared code for both ways of reading a table.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use gantry_types::id::Pid;

use super::Table;
use super::error::MpirError;
use super::image::{Mapped, parse_entry, parse_maps};
use super::memory::{BLOCK_BYTES, Memory, ProcessMemory, Width};
use super::proctable::{TableError, read_table};
use super::symbols::{Elf, Symbol, Symbols, read_elf};
use crate::beneath::children;
use crate::host::Host;

/// The maximum length of a text variable.
const MOST_TEXT_BYTES: usize = 4 * BLOCK_BYTES;

/// Reads the table of the launcher `pid` while it runs. Does not wait for a launcher that has not started its ranks
/// yet.
///
/// # Errors
/// There is no such process, or it may not be read; it has no MPIR symbols; its table is empty, incomplete or
/// inconsistent.
pub fn read_running(pid: Pid, host: &dyn Host) -> Result<Table, MpirError> {
    RunningTable::find(pid, host)?.read()
}

/// The place of a running launcher's table: found once, and read any number of times while the launcher runs.
#[derive(Debug)]
pub struct RunningTable {
    pid: Pid,
    width: Width,
    symbols: Symbols,
}

impl RunningTable {
    /// Finds the table of the launcher `pid`. The launcher must have loaded its libraries, because they may contain its
    /// symbols.
    ///
    /// # Errors
    /// There is no such process or it may not be read; it has no MPIR symbols.
    pub fn find(pid: Pid, host: &dyn Host) -> Result<Self, MpirError> {
        let image = Image::read(pid, host)?;
        let mut inspected = vec![image.path.clone()];
        let mut symbols = image.symbols();
        // An executable may have copies of a library's variables, but never all. The presence of the function decides
        // which file holds them.
        if !symbols.can_hold() {
            image.add_libraries(host, &mut symbols, &mut inspected)?;
        }
        if !symbols.can_tell() {
            return Err(MpirError::NotALauncher { pid, inspected });
        }
        Ok(Self { pid, width: image.elf.width, symbols })
    }

    /// As [`RunningTable::find`], for a launcher that the process `pid` has started, or that it is itself.
    ///
    /// # Errors
    /// None of them has a table; the reason is that of `pid`.
    pub fn find_below(pid: Pid, host: &dyn Host) -> Result<Self, MpirError> {
        let own = Self::find(pid, host);
        if own.is_ok() {
            return own;
        }
        family(pid, host).skip(1).find_map(|pid| Self::find(pid, host).ok()).map_or(own, Ok)
    }

    /// Reads its current state. Does not wait for a launcher that has not started its ranks yet.
    ///
    /// # Errors
    /// The launcher has ended or may not be read; its table is empty, incomplete or inconsistent.
    pub fn read(&self) -> Result<Table, MpirError> {
        Ok(table_of(&ProcessMemory::new(self.pid), self.width, &self.symbols)?)
    }
}

/// The maximum number of processes searched for a launcher that another program has started.
const MOST_WRAPPED: usize = 16;

/// The WLM's job and step of the running launcher `pid`, or of one that it has started, if the launcher shows them.
pub fn read_job(pid: Pid, host: &dyn Host) -> Option<(String, String)> {
    family(pid, host).find_map(|pid| read_own_job(pid, host))
}

/// A process and its descendants, the nearest first.
fn family(pid: Pid, host: &dyn Host) -> impl Iterator<Item = Pid> {
    let mut waiting = VecDeque::from([pid]);
    let next = move || {
        let pid = waiting.pop_front()?;
        waiting.extend(children(pid, host));
        Some(pid)
    };
    std::iter::from_fn(next).take(MOST_WRAPPED)
}

fn read_own_job(pid: Pid, host: &dyn Host) -> Option<(String, String)> {
    let image = Image::read(pid, host).ok()?;
    let (symbols, memory) = (image.symbols(), ProcessMemory::new(pid));
    let text = |symbol| text_of(&memory, image.elf.width, symbols.get(symbol));
    text(Symbol::JobId).zip(text(Symbol::StepId))
}

/// The program that a process runs.
#[derive(Debug)]
pub(super) struct Image {
    pid: Pid,
    /// Its path, for people.
    pub(super) path: PathBuf,
    pub(super) elf: Elf,
    /// The address where it starts after the loader has finished.
    pub(super) entry: u64,
}

impl Image {
    pub(super) fn read(pid: Pid, host: &dyn Host) -> Result<Self, MpirError> {
        let at = |step| move |source| MpirError::Look { pid, step, source };
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let path = host.read_link(&exe).map_err(at("ask for its executable"))?;
        let elf = read_elf(&exe).map_err(at("read its executable"))?;
        let strange = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let elf = elf.ok_or_else(strange).map_err(at("read its executable"))?;
        let auxv = host.read(Path::new(&format!("/proc/{pid}/auxv"))).map_err(at("ask where it starts"))?;
        let entry = parse_entry(&auxv, elf.width).ok_or_else(strange).map_err(at("ask where it starts"))?;
        Ok(Self { pid, path, elf, entry })
    }

    /// The symbols of the executable itself, with their addresses in memory.
    pub(super) fn symbols(&self) -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add(&self.elf.symbols, self.entry.wrapping_sub(self.elf.entry));
        symbols
    }

    /// Adds the symbols of the libraries that are loaded now, and their paths to `inspected`. An unreadable library
    /// counts as one without symbols.
    pub(super) fn add_libraries(
        &self,
        host: &dyn Host,
        symbols: &mut Symbols,
        inspected: &mut Vec<PathBuf>,
    ) -> Result<(), MpirError> {
        let pid = self.pid;
        let maps = host.read(Path::new(&format!("/proc/{pid}/maps")));
        let maps = maps.map_err(|source| MpirError::Look { pid, step: "ask what is loaded", source })?;
        for Mapped { path, start, offset } in parse_maps(&maps) {
            if path == self.path {
                continue;
            }
            // The path as the process sees it: its root may differ from ours.
            let seen = PathBuf::from(format!("/proc/{pid}/root{}", path.display()));
            let Ok(Some(library)) = read_elf(&seen) else { continue };
            if let Some(bias) = library.bias(start, offset) {
                symbols.add(&library.symbols, bias);
            }
            inspected.push(path);
        }
        Ok(())
    }
}

/// Reads the table that `symbols` describe.
pub(super) fn table_of(memory: &dyn Memory, width: Width, symbols: &Symbols) -> Result<Table, TableError> {
    let (Some(table), Some(size)) = (symbols.get(Symbol::Proctable), symbols.get(Symbol::ProctableSize))
    else {
        return Err(TableError::Empty);
    };
    let unreadable =
        |address| move |e: std::io::Error| TableError::Unreadable { address, reason: e.to_string() };
    let count = memory.int(size).map_err(unreadable(size))?;
    let address = memory.pointer(table, width).map_err(unreadable(table))?;
    // Between the allocation and the filling of the table, only one of the two values is set.
    let placement = read_table(memory, width, address, if address == 0 { 0 } else { count })?;
    Ok(Table {
        placement,
        job: text_of(memory, width, symbols.get(Symbol::JobId)),
        step: text_of(memory, width, symbols.get(Symbol::StepId)),
        stops_before_main: symbols.get(Symbol::AcquiredPreMain).is_some(),
    })
}

/// The text that the pointer at `variable` points to. `None`: the pointer is null or invalid, or the text is empty.
pub(super) fn text_of(memory: &dyn Memory, width: Width, variable: Option<u64>) -> Option<String> {
    let address = memory.pointer(variable?, width).ok().filter(|address| *address != 0)?;
    let text = memory.string(address, MOST_TEXT_BYTES).ok().flatten()?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}
