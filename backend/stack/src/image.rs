//! A program or library in the memory of a process: its id, and how to find the callers of its functions.
//!
//! Both come from the process's memory. So deleted files, files in containers and hanging file systems do no harm.
//! Only a static program without an index of its table (`.eh_frame_hdr`) is read from its file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gantry_stack::module::{ModuleId, PAGE, identify};
use gantry_stack::symbols::identify_file;
use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice, Evaluation, Expression,
    FrameDescriptionEntry, LittleEndian, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
};
use object::elf::{FileHeader64, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::memory::Memory;

/// The most bytes of a table; the largest library's is smaller.
const MAX_TABLE: usize = 256 << 20;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A program or library.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) id: ModuleId,
    /// The address of the file's beginning in its own symbols.
    first: u64,
    table: Option<Table>,
    file: Option<PathBuf>,
    /// The beginnings of its functions, read on first use.
    functions: OnceLock<Vec<u64>>,
}

/// The unwind table of a file: where each function saved the registers of its caller.
#[derive(Debug)]
struct Table {
    bytes: Vec<u8>,
    address: u64,
    kind: Kind,
    index: Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    EhFrame,
    DebugFrame,
}

/// The index of a table.
#[derive(Debug)]
enum Index {
    /// The file's own, `.eh_frame_hdr`.
    Own { bytes: Vec<u8>, address: u64 },
    /// Begin, end and table offset of each function; built here.
    Made(Vec<(u64, u64, usize)>),
}

/// The unwind rules for one instruction, with their table.
pub(crate) struct Rules<'a, 'c> {
    pub(crate) row: &'c UnwindTableRow<usize>,
    /// The kernel called this as a signal handler. Its caller may have been interrupted anywhere in a function, even at
    /// its first instruction.
    pub(crate) is_signal: bool,
    table: Slice<'a>,
    encoding: Encoding,
}

impl Image {
    /// Reads the file that is mapped at `base`. None: it is not a 64-bit ELF file.
    pub(crate) fn load(memory: Memory, base: u64, file: Option<PathBuf>) -> Option<Self> {
        let page = memory.read(base, PAGE);
        let header = FileHeader64::<object::LittleEndian>::parse(page.as_slice()).ok()?;
        let segments = header.program_headers(object::LittleEndian, page.as_slice()).ok()?;
        let endian = object::LittleEndian;
        let loaded = || segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let beginning = loaded().find(|segment| segment.p_offset(endian) < PAGE as u64)?;
        let first = beginning.p_vaddr(endian).wrapping_sub(beginning.p_offset(endian));
        let bias = base.wrapping_sub(first);
        let id =
            identify(&page, |_, address, length| memory.read_exactly(bias.wrapping_add(address), length))?;
        let own =
            segments.iter().find(|segment| segment.p_type(endian) == PT_GNU_EH_FRAME).and_then(|segment| {
                let (address, length) = (segment.p_vaddr(endian), segment.p_memsz(endian));
                let index = memory.read_exactly(bias.wrapping_add(address), bounded(length)?)?;
                let start = find_table(&index, address)?;
                let holder = loaded().find(|it| {
                    (it.p_vaddr(endian)..it.p_vaddr(endian).saturating_add(it.p_filesz(endian)))
                        .contains(&start)
                })?;
                let end = holder.p_vaddr(endian).saturating_add(holder.p_filesz(endian));
                let bytes = memory.read(bias.wrapping_add(start), bounded(end - start)?);
                let index = Index::Own { bytes: index, address };
                Some(Table { bytes, address: start, kind: Kind::EhFrame, index })
            });
        let table = own.or_else(|| Table::of_file(file.as_ref()?));
        Some(Self { id, first, table, file, functions: OnceLock::new() })
    }

    /// The beginning of the function at an address, from the file's symbols.
    pub(crate) fn function_of(&self, address: u64) -> Option<u64> {
        let functions = self.functions.get_or_init(|| {
            self.file.as_deref().and_then(|file| functions_of(file, &self.id)).unwrap_or_default()
        });
        let after = functions.partition_point(|begin| *begin <= address);
        functions.get(after.checked_sub(1)?).copied()
    }

    /// Converts the address `address` of a process to one of the file that is mapped at `base`.
    pub(crate) fn to_file(&self, address: u64, base: u64) -> u64 {
        address.wrapping_sub(base).wrapping_add(self.first)
    }

    /// The rules for an address of the file.
    pub(crate) fn rules<'a, 'c>(
        &'a self,
        address: u64,
        context: &'c mut UnwindContext<usize>,
    ) -> Option<Rules<'a, 'c>> {
        let table = self.table.as_ref()?;
        let slice = Slice::new(&table.bytes, LittleEndian);
        match table.kind {
            Kind::EhFrame => {
                let mut section = EhFrame::from(slice);
                section.set_address_size(8);
                table.rules(&section, slice, address, context)
            }
            Kind::DebugFrame => {
                let mut section = DebugFrame::from(slice);
                section.set_address_size(8);
                table.rules(&section, slice, address, context)
            }
        }
    }
}

impl Table {
    /// Reads the table from a file, either the loader's or the debugger's.
    fn of_file(path: &Path) -> Option<Self> {
        let cache = open(path)?;
        let file = object::File::parse(&cache).ok()?;
        let read = |name: &str| {
            let section = file.section_by_name(name)?;
            bounded(section.size())?;
            Some((section.uncompressed_data().ok()?.into_owned(), section.address()))
        };
        let made = |kind, (bytes, address): (Vec<u8>, u64)| {
            let slice = Slice::new(&bytes, LittleEndian);
            let index = match kind {
                Kind::EhFrame => make_index(&EhFrame::from(slice), address),
                Kind::DebugFrame => make_index(&DebugFrame::from(slice), address),
            };
            (!index.is_empty()).then_some(Self { bytes, address, kind, index: Index::Made(index) })
        };
        let of = |name, kind| read(name).and_then(|read| made(kind, read));
        of(".eh_frame", Kind::EhFrame).or_else(|| of(".debug_frame", Kind::DebugFrame))
    }

    fn rules<'a, 'c, S>(
        &'a self,
        section: &S,
        slice: Slice<'a>,
        address: u64,
        context: &'c mut UnwindContext<usize>,
    ) -> Option<Rules<'a, 'c>>
    where
        S: UnwindSection<Slice<'a>>,
    {
        let bases = self.bases();
        let place = match &self.index {
            Index::Made(functions) => {
                let after = functions.partition_point(|(begin, _, _)| *begin <= address);
                functions.get(after.checked_sub(1)?).filter(|(_, end, _)| address < *end)?.2
            }
            Index::Own { bytes, .. } => {
                let index = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
                let index = index.table()?;
                let pointer = index.lookup(address, &bases).ok()?;
                index.pointer_to_offset(pointer).ok()?.0
            }
        };
        let entry: FrameDescriptionEntry<Slice<'a>> =
            section.fde_from_offset(&bases, S::Offset::from(place), S::cie_from_offset).ok()?;
        if !entry.contains(address) {
            return None;
        }
        let encoding = entry.cie().encoding();
        let is_signal = entry.is_signal_trampoline();
        let row = entry.unwind_info_for_address(section, &bases, context, address).ok()?;
        Some(Rules { row, is_signal, table: slice, encoding })
    }

    fn bases(&self) -> BaseAddresses {
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        match &self.index {
            Index::Own { address, .. } => bases.set_eh_frame_hdr(*address),
            Index::Made(_) => bases,
        }
    }
}

impl<'a> Rules<'a, '_> {
    /// Prepares an expression of the rules for evaluation.
    pub(crate) fn evaluation(&self, expression: UnwindExpression<usize>) -> Option<Evaluation<Slice<'a>>> {
        let section = EhFrame::from(self.table);
        let expression: Expression<Slice<'a>> = expression.get(&section).ok()?;
        Some(expression.evaluation(self.encoding))
    }
}

/// Opens a regular file. Anything else, such as a pipe, could block.
fn open(path: &Path) -> Option<ReadCache<std::fs::File>> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    is_file.then(|| std::fs::File::open(path).ok().map(ReadCache::new)).flatten()
}

/// The beginnings of a file's functions, sorted.
fn functions_of(path: &Path, id: &ModuleId) -> Option<Vec<u64>> {
    if identify_file(path).ok()? != *id {
        return None;
    }
    let cache = open(path)?;
    let file = object::File::parse(&cache).ok()?;
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let code = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let mut functions: Vec<u64> = code.map(|symbol| symbol.address()).collect();
    functions.sort_unstable();
    Some(functions)
}

fn bounded(length: u64) -> Option<usize> {
    usize::try_from(length).ok().filter(|length| *length <= MAX_TABLE)
}

/// The address of the table that an index belongs to.
fn find_table(index: &[u8], address: u64) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = EhFrameHdr::new(index, LittleEndian).parse(&bases, 8).ok()?;
    parsed.table()?;
    parsed.eh_frame_ptr().direct().ok()
}

/// All functions of a table, by address.
fn make_index<'a, S: UnwindSection<Slice<'a>>>(section: &S, address: u64) -> Vec<(u64, u64, usize)>
where
    S::Offset: gimli::UnwindOffset<usize>,
{
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut entries = section.entries(&bases);
    let mut functions = Vec::new();
    // A damaged table ends early.
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(function) = partial.parse(S::cie_from_offset)
            && function.initial_address() < function.end_address()
        {
            functions.push((function.initial_address(), function.end_address(), function.offset()));
        }
    }
    functions.sort_unstable();
    functions
}
