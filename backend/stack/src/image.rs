//! A program or library in the memory of a process: its id, and how to find the callers of its functions.
//!
//! Both come from the process's memory. So deleted files and files in containers do no harm. Where a file system hangs,
//! pages that no process has used yet hang too, so a thread of its own reads them.
//! Two tables are read from the file: that of a static program without an index (`.eh_frame_hdr`), and the debugger's
//! (`.debug_frame`) for functions that have no entry in memory.

use std::path::Path;
use std::sync::Arc;

use gantry_stack::module::{Module, ModuleId, PAGE, identify};
use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice, Evaluation, Expression,
    FrameDescriptionEntry, LittleEndian, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
};
use object::elf::{FileHeader64, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::aside::{Aside, Patience};
use crate::files::Mapped;
use crate::maps::{FileKey, Maps};
use crate::memory::Memory;

/// The most bytes of a table; the largest library's is smaller.
const MAX_TABLE: usize = 256 << 20;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = FrameDescriptionEntry<Slice<'a>>;

/// A program or library.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) id: ModuleId,
    /// The address of the file's beginning in its own symbols.
    first: u64,
    table: Option<Table>,
    file: Option<Arc<Mapped>>,
    /// The file's table for debuggers, read on first use. It has functions that the table in memory has not.
    debug_table: Aside<Option<Table>>,
    /// The beginnings of its functions, read on first use.
    functions: Aside<Option<Vec<u64>>>,
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

/// What the memory of a process shows of a file: none if it is not a 64-bit ELF file. None: nothing, because the process
/// has ended or executes another program meanwhile.
pub(crate) type Loaded = Option<Option<Arc<Image>>>;

impl Image {
    /// Reads the file that is mapped at `base`.
    pub(crate) fn load(memory: Memory, base: u64, key: &FileKey, patience: &Patience) -> Loaded {
        let image = Self::read(memory, base, key, patience).map(Arc::new);
        let is_shown = image.is_some() || Maps::of_process(memory.pid).is_ok_and(|maps| maps.have(key, base));
        is_shown.then_some(image)
    }

    fn read(memory: Memory, base: u64, key: &FileKey, patience: &Patience) -> Option<Self> {
        let page = memory.read(base, PAGE);
        let header = FileHeader64::<object::LittleEndian>::parse(page.as_slice()).ok()?;
        let segments = header.program_headers(object::LittleEndian, page.as_slice()).ok()?;
        let endian = object::LittleEndian;
        let loaded = || segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let first = first_of(&page)?;
        let bias = base.wrapping_sub(first);
        let id = identify_at(memory, base)?;
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
        let module = Module { id: id.clone(), path: key.path.clone() };
        let file = (!key.is_vdso()).then(|| Arc::new(Mapped { pid: memory.pid, module }));
        let table = own.or_else(|| Table::of_file(&file.as_ref()?.find()?, ".eh_frame", Kind::EhFrame));
        Some(Self {
            id,
            first,
            table,
            file,
            debug_table: Aside::new(patience),
            functions: Aside::new(patience),
        })
    }

    /// The beginning of the function at an address, from the file's symbols.
    pub(crate) fn function_of(&self, address: u64) -> Option<u64> {
        let file = self.file.clone();
        let functions = self.functions.get(move || functions_of(&file?.find()?))?.as_deref()?;
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
        let in_memory = self.table.as_ref().and_then(|table| Some((table, table.entry(address)?)));
        let (table, entry) = in_memory.or_else(|| {
            let table = self.debug_table()?;
            Some((table, table.entry(address)?))
        })?;
        table.rules(&entry, address, context)
    }

    fn debug_table(&self) -> Option<&Table> {
        let file = self.file.clone();
        let read = move || Table::of_file(&file?.find()?, ".debug_frame", Kind::DebugFrame);
        self.debug_table.get(read)?.as_ref()
    }
}

impl Table {
    /// Reads the table in a section of a file.
    fn of_file(path: &Path, section: &str, kind: Kind) -> Option<Self> {
        let cache = open(path)?;
        let file = object::File::parse(&cache).ok()?;
        let section = file.section_by_name(section)?;
        bounded(section.size())?;
        let (bytes, address) = (section.uncompressed_data().ok()?.into_owned(), section.address());
        let slice = Slice::new(&bytes, LittleEndian);
        let index = match kind {
            Kind::EhFrame => make_index(&EhFrame::from(slice), address),
            Kind::DebugFrame => make_index(&DebugFrame::from(slice), address),
        };
        (!index.is_empty()).then_some(Self { bytes, address, kind, index: Index::Made(index) })
    }

    /// The entry of the function at an address of the file.
    fn entry(&self, address: u64) -> Option<Entry<'_>> {
        let place = self.place(address)?;
        let entry = match self.kind {
            Kind::EhFrame => {
                let offset = gimli::EhFrameOffset(place);
                self.eh_frame().fde_from_offset(&self.bases(), offset, EhFrame::cie_from_offset)
            }
            Kind::DebugFrame => {
                let offset = gimli::DebugFrameOffset(place);
                self.debug_frame().fde_from_offset(&self.bases(), offset, DebugFrame::cie_from_offset)
            }
        };
        entry.ok().filter(|entry| entry.contains(address))
    }

    /// The place of the entry that may have an address.
    fn place(&self, address: u64) -> Option<usize> {
        match &self.index {
            Index::Made(functions) => {
                let after = functions.partition_point(|(begin, _, _)| *begin <= address);
                let (_, end, place) = functions.get(after.checked_sub(1)?)?;
                (address < *end).then_some(*place)
            }
            Index::Own { bytes, .. } => {
                let bases = self.bases();
                let index = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
                let index = index.table()?;
                let pointer = index.lookup(address, &bases).ok()?;
                Some(index.pointer_to_offset(pointer).ok()?.0)
            }
        }
    }

    fn rules<'a, 'c>(
        &'a self,
        entry: &Entry<'a>,
        address: u64,
        context: &'c mut UnwindContext<usize>,
    ) -> Option<Rules<'a, 'c>> {
        let bases = self.bases();
        let row = match self.kind {
            Kind::EhFrame => entry.unwind_info_for_address(&self.eh_frame(), &bases, context, address),
            Kind::DebugFrame => entry.unwind_info_for_address(&self.debug_frame(), &bases, context, address),
        };
        let (is_signal, encoding) = (entry.is_signal_trampoline(), entry.cie().encoding());
        Some(Rules { row: row.ok()?, is_signal, table: self.slice(), encoding })
    }

    fn slice(&self) -> Slice<'_> {
        Slice::new(&self.bytes, LittleEndian)
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::from(self.slice());
        section.set_address_size(8);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::from(self.slice());
        section.set_address_size(8);
        section
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

/// The id of the file that is mapped at `base`.
pub(crate) fn identify_at(memory: Memory, base: u64) -> Option<ModuleId> {
    let page = memory.read(base, PAGE);
    let bias = base.wrapping_sub(first_of(&page)?);
    identify(&page, |_, address, length| memory.read_exactly(bias.wrapping_add(address), length))
}

/// The address of a file's beginning in its own symbols, by its first page.
pub(crate) fn first_of(page: &[u8]) -> Option<u64> {
    let endian = object::LittleEndian;
    let header = FileHeader64::<object::LittleEndian>::parse(page).ok()?;
    let segments = header.program_headers(endian, page).ok()?;
    let beginning = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_LOAD && segment.p_offset(endian) < PAGE as u64)?;
    Some(beginning.p_vaddr(endian).wrapping_sub(beginning.p_offset(endian)))
}

/// Opens a regular file. Anything else, such as a pipe, could block.
fn open(path: &Path) -> Option<ReadCache<std::fs::File>> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    is_file.then(|| std::fs::File::open(path).ok().map(ReadCache::new)).flatten()
}

/// The beginnings of a file's functions, sorted.
fn functions_of(path: &Path) -> Option<Vec<u64>> {
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
