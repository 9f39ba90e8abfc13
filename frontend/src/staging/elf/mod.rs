//! The parts of an ELF file that the kernel and the loader use.
//!
//! Files are hostile input and may be large: only the needed parts are read, through `pages`, within a budget.
//! Section headers are ignored: a loader does not need them, and a stripped file may have none.

mod dynamic;
mod names;
mod notes;
mod pages;
mod segments;
#[cfg(test)]
pub(super) mod testing;
mod unfit;
mod versions;

use std::ffi::OsString;

use goblin::elf::Elf as Goblin;
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ELFMAG};
use goblin::elf::header::{ET_DYN, ET_EXEC, Header};
use goblin::elf::program_header::{PT_DYNAMIC, PT_INTERP, PT_NOTE, ProgramHeader};

pub use self::dynamic::{Dynamic, NeedKind, Needed};
pub use self::names::Text;
use self::notes::Notes;
use self::pages::Pages;
pub use self::pages::{ReadAt, Scratch};
use self::segments::Segments;
pub use self::unfit::Unfit;
pub use self::versions::{Version, VersionNeeds};
use super::arch::Arch;
use super::dlopen::DlopenNote;

/// Program or library, from the header. Position-independent programs are [`Kind::Shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program at a fixed address.
    Executable,
    /// A library, or a position-independent program.
    Shared,
}

/// The parsed parts of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// Its architecture.
    pub arch: Arch,
    /// Program or library.
    pub kind: Kind,
    /// The requested loader (PT_INTERP).
    pub interpreter: Option<OsString>,
    /// The loader's information; none in a static program.
    pub dynamic: Option<Dynamic>,
    /// Optional libraries that it may load later.
    pub dlopen: Vec<DlopenNote>,
    /// The link editor's id of its content.
    pub build_id: Option<Vec<u8>>,
}

/// Most bytes of the path of a loader: the kernel's limit.
const MAX_INTERPRETER: u64 = 4096;
/// The most bytes of notes that are searched.
const MAX_NOTES: u64 = 1 << 20;

/// The architecture of an ELF file, which may be malformed otherwise.
///
/// # Errors
/// It is not an ELF file, or of an unknown kind.
pub fn parse_arch(source: &(impl ReadAt + ?Sized)) -> Result<Arch, Unfit> {
    let header = read_header(&mut Pages::new(source, &mut Scratch::default()))?;
    arch_of(&header)
}

/// Parses a file.
///
/// # Errors
/// It is not an ELF file, or is malformed.
pub fn parse_elf(source: &(impl ReadAt + ?Sized)) -> Result<Elf, Unfit> {
    parse_elf_in(source, &mut Scratch::default())
}

/// As [`parse_elf`], with a buffer that can be reused for the next file.
///
/// # Errors
/// As [`parse_elf`].
pub fn parse_elf_in(source: &(impl ReadAt + ?Sized), scratch: &mut Scratch) -> Result<Elf, Unfit> {
    let mut pages = Pages::new(source, scratch);
    let header = read_header(&mut pages)?;
    let arch = arch_of(&header)?;
    let kind = match header.e_type {
        ET_EXEC => Kind::Executable,
        ET_DYN => Kind::Shared,
        _ => return Err(Unfit::Type),
    };
    let segments = Segments::read(&mut pages, &header, arch)?;
    let interpreter = match segments.first(PT_INTERP) {
        Some(segment) => read_interpreter(&mut pages, segment)?,
        None => None,
    };
    let dynamic = match segments.first(PT_DYNAMIC) {
        // A file with only the debug symbols of another one keeps the header, but not the content.
        Some(segment) if segment.p_filesz > 0 => Some(dynamic::read(&mut pages, &segments, segment)?),
        _ => None,
    };
    let mut notes = Notes::default();
    for segment in segments.all.iter().filter(|it| it.p_type == PT_NOTE && it.p_filesz <= MAX_NOTES) {
        let bytes = pages.bytes(segment.p_offset, segment.p_filesz)?;
        notes::read(&bytes, segments.ctx.le, segment.p_align, &mut notes);
    }
    let Notes { build_id, dlopen } = notes;
    Ok(Elf { arch, kind, interpreter, dynamic, dlopen, build_id })
}

fn read_interpreter(
    pages: &mut Pages<'_, impl ReadAt + ?Sized>,
    segment: &ProgramHeader,
) -> Result<Option<OsString>, Unfit> {
    if segment.p_filesz == 0 {
        return Ok(None);
    }
    if segment.p_filesz > MAX_INTERPRETER {
        return Err(Unfit::Broken("PT_INTERP"));
    }
    let text = pages.string(segment.p_offset, Some(segment.p_filesz))?;
    if text.is_empty() { Err(Unfit::Broken("PT_INTERP")) } else { Ok(Some(text)) }
}

fn read_header(pages: &mut Pages<'_, impl ReadAt + ?Sized>) -> Result<Header, Unfit> {
    let ident = pages.record::<16>(0)?;
    if ident[..ELFMAG.len()] != *ELFMAG {
        return Err(Unfit::NoElf);
    }
    let size = match ident[EI_CLASS] {
        ELFCLASS64 => 64,
        ELFCLASS32 => 52,
        _ => return Err(Unfit::NoElf),
    };
    if ![ELFDATA2LSB, ELFDATA2MSB].contains(&ident[EI_DATA]) {
        return Err(Unfit::NoElf);
    }
    let bytes = pages.bytes(0, size)?;
    Goblin::parse_header(&bytes).map_err(|_| Unfit::NoElf)
}

fn arch_of(header: &Header) -> Result<Arch, Unfit> {
    Ok(Arch {
        is_64: header.e_ident[EI_CLASS] == ELFCLASS64,
        is_little: header.endianness().map_err(|_| Unfit::NoElf)?.is_little(),
        machine: header.e_machine,
    })
}

#[cfg(test)]
mod tests {
    use super::testing::Sample;
    use super::*;

    #[test]
    fn files_of_both_widths_and_byte_orders_are_read() {
        for (is_64, is_little) in [(true, true), (true, false), (false, true), (false, false)] {
            let arch = Arch { is_64, is_little, machine: 62 };
            let sample = Sample {
                interpreter: Some("/lib/ld.so"),
                needed: vec!["libm.so.6", "libc.so.6"],
                soname: Some("me.so.1"),
                runpath: Some("$ORIGIN/lib"),
                rpath: Some("/old"),
                flags_1: 0x800,
                ..Sample::new(arch)
            };
            let elf = parse_elf(sample.build().as_slice()).unwrap();
            let dynamic = elf.dynamic.unwrap();
            let text = |it| dynamic.text(it).to_str().unwrap();
            let needed: Vec<_> = dynamic.needed.iter().map(|it| text(it.name)).collect();
            assert_eq!((elf.arch, elf.interpreter.unwrap().to_str()), (arch, Some("/lib/ld.so")));
            assert_eq!(needed, ["libm.so.6", "libc.so.6"]);
            assert_eq!(dynamic.soname.map(text), Some("me.so.1"));
            assert_eq!((dynamic.runpath.map(text), dynamic.rpath), (Some("$ORIGIN/lib"), None));
            assert_eq!(dynamic.flags_1, 0x800);
        }
    }

    #[test]
    fn a_file_that_is_not_a_program_is_refused_with_a_reason() {
        let good = Sample { needed: vec!["libc.so.6"], ..Sample::new(Arch::NATIVE) }.build();
        let check = |change: fn(&mut Vec<u8>), expected: Unfit| {
            let mut bytes = good.clone();
            change(&mut bytes);
            assert_eq!(parse_elf(bytes.as_slice()).unwrap_err(), expected);
        };
        check(|it| it.truncate(0), Unfit::TooShort);
        check(|it| it.truncate(60), Unfit::TooShort);
        check(|it| it[0] = b'#', Unfit::NoElf);
        check(|it| it[4] = 3, Unfit::NoElf);
        check(|it| it[5] = 0, Unfit::NoElf);
        check(|it| it[16..18].copy_from_slice(&1u16.to_ne_bytes()), Unfit::Type);
        check(|it| it[56..58].copy_from_slice(&0u16.to_ne_bytes()), Unfit::NoSegments);
        check(|it| it[54..56].copy_from_slice(&1u16.to_ne_bytes()), Unfit::Broken("program headers"));
        check(|it| it.truncate(100), Unfit::TooShort);
    }

    #[test]
    fn no_change_of_a_byte_and_no_truncation_panics() {
        let good = Sample {
            interpreter: Some("/lib/ld.so"),
            needed: vec!["libc.so.6"],
            soname: Some("x"),
            ..Sample::new(Arch::NATIVE)
        }
        .build();
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                parse_elf(bytes.as_slice()).map(drop).unwrap_or_default();
            }
            parse_elf(&good[..at]).map(drop).unwrap_or_default();
        }
    }
}
