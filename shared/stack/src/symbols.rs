//! Functions and lines of one program or library.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::apart::Hints;
use crate::demangle::demangle;
use crate::files::open;
use crate::frame::Call;
use crate::module::ModuleId;

pub use crate::files::identify_file;

/// The most bytes of debug information of one file that are taken into memory.
const MAX_DEBUG_BYTES: u64 = 2 << 30;

type Reader = EndianArcSlice<LittleEndian>;

/// What a file tells of its functions.
pub struct Symbols {
    /// By address.
    functions: Vec<Function>,
    lines: Option<Context<Reader>>,
}

/// A symbol. Its names are taken apart when they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    address: u64,
    /// Of one that does not say it, what is left of its section; the next function ends it.
    size: u64,
    name: String,
}

/// What a place in a file is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// A function that stands here because the compiler has put it into its caller.
    pub inlined: bool,
    /// The function and its line.
    pub call: Call,
}

impl Found {
    /// The text that stands for it in a prefix tree.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{}{}", if self.inlined { "i" } else { "c" }, self.call.to_text())
    }

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (inlined, call) = match text.strip_prefix('i') {
            Some(call) => (true, call),
            None => (false, text.strip_prefix('c')?),
        };
        Some(Self { inlined, call: Call::parse(call)? })
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols")
            .field("functions", &self.functions.len())
            .field("lines", &self.lines.is_some())
            .finish()
    }
}

impl Symbols {
    /// Of the file at `path`, and of the file with its debug information, where that is installed.
    ///
    /// # Errors
    /// It cannot be read, or is no program or library.
    pub fn open(path: &Path, id: &ModuleId) -> io::Result<Self> {
        let cache = ReadCache::new(open(path)?);
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let file = object::File::parse(&cache).map_err(invalid)?;
        let hints = Hints::of(&file);
        let mut symbols = Self::read(&file, Common::of(&hints, path).as_ref());
        let apart = if symbols.lines.is_none() { hints.find(path, id) } else { None };
        let more = match apart.and_then(|apart| Self::of_file(&apart)) {
            Some(more) => Some(more),
            None => hints.unpack_names(&file).and_then(|names| Self::parse(&names).ok()),
        };
        if let Some(more) = more {
            symbols.lines = symbols.lines.or(more.lines);
            symbols.functions.extend(more.functions);
            symbols.functions = sorted(symbols.functions);
        }
        Ok(symbols)
    }

    /// Of a file with the debug information of another one.
    fn of_file(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let common = Common::of(&Hints::of(&file), path);
        Some(Self::read(&file, common.as_ref()))
    }

    /// Of a file's bytes.
    ///
    /// # Errors
    /// It is no program or library.
    pub fn parse(bytes: &[u8]) -> Result<Self, object::Error> {
        Ok(Self::read(&object::File::parse(bytes)?, None))
    }

    /// Of functions without lines: name, address and size of each.
    #[must_use]
    pub fn of_functions(functions: impl IntoIterator<Item = (String, u64, u64)>) -> Self {
        let functions = functions.into_iter();
        let functions = functions.map(|(name, address, size)| Function { address, size, name }).collect();
        Self { functions: sorted(functions), lines: None }
    }

    fn read<'data, R: ReadRef<'data>>(file: &object::File<'data, R>, common: Option<&Common>) -> Self {
        let all = file.symbols().chain(file.dynamic_symbols());
        // What assembly says nothing of has no kind, and is in the text all the same.
        let code = all.filter(|symbol| match symbol.kind() {
            SymbolKind::Text => symbol.is_definition(),
            SymbolKind::Unknown => {
                let section = symbol.section_index().and_then(|at| file.section_by_index(at).ok());
                section.is_some_and(|section| section.kind() == object::SectionKind::Text)
            }
            _ => false,
        });
        let named = code.filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?.to_owned();
            let address = symbol.address();
            let rest_of_section = || {
                let section = file.section_by_index(symbol.section_index()?).ok()?;
                section.address().checked_add(section.size())?.checked_sub(address)
            };
            let size = Some(symbol.size()).filter(|size| *size > 0).or_else(rest_of_section);
            Some(Function { address, size: size.unwrap_or(1), name })
        });
        Self { functions: sorted(named.collect()), lines: read_lines(file, common) }
    }

    /// What is at an address: the function, and before it those that the compiler has put into it; outermost first. Empty when nothing is known.
    pub fn find(&self, address: u64) -> Vec<Found> {
        let symbol = self.function_at(address);
        let mut found = self.find_lines(address);
        match found.first_mut() {
            None => found.extend(symbol.map(|symbol| Found {
                inlined: false,
                call: Call { function: Some(demangle(&symbol.name)), ..Call::default() },
            })),
            Some(outermost) if outermost.call.function.is_none() => {
                outermost.call.function = symbol.map(|symbol| demangle(&symbol.name));
            }
            Some(_) => {}
        }
        found
    }

    fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let end = function.address.saturating_add(function.size);
        (address < end).then_some(function)
    }

    fn find_lines(&self, address: u64) -> Vec<Found> {
        // Its last address is the end of a search, and has no end of its own.
        let Some(lines) = self.lines.as_ref().filter(|_| address < u64::MAX) else { return Vec::new() };
        let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut found = Vec::new();
        // Damaged debug information ends the list.
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|it| it.raw_name().ok());
            let location = frame.location.as_ref();
            let file = location.and_then(|it| it.file).map(ToOwned::to_owned);
            let function = name.map(|name| in_its_language(&name, file.as_deref()));
            let line = location.and_then(|it| it.line).filter(|line| *line > 0);
            found.push(Found { inlined: true, call: Call { function, file, line } });
        }
        found.reverse();
        if let Some(outermost) = found.first_mut() {
            outermost.inlined = false;
        }
        found
    }
}

/// Compilers of Fortran put a `_` behind a procedure's name.
fn in_its_language(name: &str, file: Option<&str>) -> String {
    let kind = file.and_then(|file| file.rsplit('.').next()).unwrap_or_default();
    let is_fortran =
        matches!(kind, "f" | "F" | "for" | "f90" | "F90" | "f95" | "f03" | "f08" | "F03" | "F08");
    match name.strip_suffix('_').filter(|_| is_fortran) {
        Some("MAIN_") => "program".to_owned(),
        Some(stem) if !stem.is_empty() => stem.to_owned(),
        _ => demangle(name),
    }
}

/// By address, one name for each: the one that people use.
fn sorted(mut functions: Vec<Function>) -> Vec<Function> {
    let rank = |function: &Function| {
        let underscores = function.name.len() - function.name.trim_start_matches('_').len();
        // The second name of each call of MPI is for tools.
        (underscores, function.name.starts_with("PMPI_"), function.name.len())
    };
    functions.sort_by(|one, other| {
        (one.address, rank(one), &one.name).cmp(&(other.address, rank(other), &other.name))
    });
    functions.dedup_by(|next, kept| next.address == kept.address);
    functions
}

/// The file with debug information that several files have in common.
struct Common(ReadCache<File>);

impl Common {
    /// Of the file at `path`, where it names one that is here.
    fn of(hints: &Hints, path: &Path) -> Option<Self> {
        Some(Self(ReadCache::new(open(&hints.find_common(path)?).ok()?)))
    }
}

/// The lines of a file that has them.
fn read_lines<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    common: Option<&Common>,
) -> Option<Context<Reader>> {
    if !has_lines(file) {
        return None;
    }
    let mut dwarf = gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(section(file, id))).ok()?;
    let common = common.and_then(|common| object::File::parse(&common.0).ok()).filter(has_lines);
    if let Some(common) = common {
        dwarf.load_sup(|id| Ok::<_, gimli::Error>(section(&common, id))).ok()?;
    }
    Context::from_dwarf(dwarf).ok()
}

/// Whether it has debug information, of a size that can be taken.
fn has_lines<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> bool {
    let size: u64 =
        file.sections().filter(|section| is_debug(section.name())).map(|section| section.size()).sum();
    (1..=MAX_DEBUG_BYTES).contains(&size) && file.is_little_endian()
}

/// A section of debug information. One that cannot be unpacked is as one that is not there.
fn section<'data, R: ReadRef<'data>>(file: &object::File<'data, R>, id: SectionId) -> Reader {
    let section = file.section_by_name(id.name());
    let bytes = section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
    Reader::new(Arc::from(&*bytes), LittleEndian)
}

fn is_debug(name: Result<&str, object::Error>) -> bool {
    name.is_ok_and(|name| matches!(name, ".debug_info" | ".zdebug_info" | ".debug_line" | ".zdebug_line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_of_this_file() -> u64 {
        a_function_of_this_file as fn() -> u64 as usize as u64
    }

    /// Where this program's first page is in memory.
    fn base() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn a_function_of_this_program_is_found_with_its_line() {
        let exe = Path::new("/proc/self/exe");
        let id = identify_file(exe).unwrap();
        let symbols = Symbols::open(exe, &id).unwrap();
        let found = symbols.find(a_function_of_this_file() - base());
        let call = &found.first().unwrap().call;
        assert!(call.function.as_deref().unwrap().ends_with("a_function_of_this_file"), "{found:?}");
        assert!(call.file.as_deref().unwrap().ends_with("symbols.rs"), "{found:?}");
        assert!(call.line.is_some_and(|line| line > 200), "{found:?}");
        assert_eq!(symbols.find(u64::MAX), []);
    }

    #[test]
    fn of_several_names_the_one_that_people_use_is_taken() {
        let function = |address, size, name: &str| Function { address, size, name: name.to_owned() };
        let all = sorted(vec![
            function(16, 4, "PMPI_Barrier"),
            function(32, 4, "__poll"),
            function(16, 4, "MPI_Barrier"),
            function(32, 4, "poll"),
        ]);
        assert_eq!(all, [function(16, 4, "MPI_Barrier"), function(32, 4, "poll")]);
        let symbols = Symbols { functions: all, lines: None };
        let name = |address| symbols.find(address).pop().and_then(|found| found.call.function);
        assert_eq!(name(15), None);
        assert_eq!(name(19).as_deref(), Some("MPI_Barrier"));
        assert_eq!(name(20), None);
        assert_eq!(in_its_language("solve_", Some("a/heat.f90")), "solve");
        assert_eq!(in_its_language("MAIN__", Some("heat.F90")), "program");
        assert_eq!(in_its_language("solve_", Some("heat.c")), "solve_");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "#!/bin/sh").unwrap();
        assert!(identify_file(&text).is_err());
        assert!(identify_file(folder.path()).is_err());
        assert!(Symbols::open(&text, &ModuleId::parse("ab").unwrap()).is_err());
        assert!(Symbols::parse(b"\x7fELF").is_err());
    }
}
