//! A file's program headers: the parts that are loaded, and their addresses.

use goblin::container::{Container, Ctx};
use goblin::elf::header::Header;
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};

use super::pages::{Pages, ReadAt};
use super::unfit::Unfit;
use crate::staging::arch::Arch;

/// More program headers than any real file has.
const MAX_SEGMENTS: usize = 4096;

/// The program headers.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) all: Vec<ProgramHeader>,
    pub(super) ctx: Ctx,
}

impl Segments {
    pub(super) fn read(
        pages: &mut Pages<'_, impl ReadAt + ?Sized>,
        header: &Header,
        arch: Arch,
    ) -> Result<Self, Unfit> {
        let container = if arch.is_64 { Container::Big } else { Container::Little };
        let endian = header.endianness().map_err(|_| Unfit::NoElf)?;
        let ctx = Ctx::new(container, endian);
        let count = usize::from(header.e_phnum);
        if count == 0 {
            return Err(Unfit::NoSegments);
        }
        if usize::from(header.e_phentsize) != ProgramHeader::size(ctx) || count > MAX_SEGMENTS {
            return Err(Unfit::Broken("program headers"));
        }
        let bytes = pages.bytes(header.e_phoff, (count * ProgramHeader::size(ctx)) as u64)?;
        let all =
            ProgramHeader::parse(&bytes, 0, count, ctx).map_err(|_| Unfit::Broken("program headers"))?;
        if !all.iter().any(|segment| segment.p_type == PT_LOAD) {
            return Err(Unfit::NoSegments);
        }
        Ok(Self { all, ctx })
    }

    pub(super) fn first(&self, kind: u32) -> Option<&ProgramHeader> {
        self.all.iter().find(|segment| segment.p_type == kind)
    }

    /// The file offset of an address.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |segment: &&ProgramHeader| {
            segment.p_type == PT_LOAD
                && address.checked_sub(segment.p_vaddr).is_some_and(|inside| inside < segment.p_filesz)
        };
        let segment = self.all.iter().find(holds)?;
        (address - segment.p_vaddr).checked_add(segment.p_offset)
    }
}
