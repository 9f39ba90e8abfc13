//! The dynamic section: what the loader is told to load, and where to look for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use goblin::elf::dynamic::{
    DT_FLAGS_1, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRTAB, DT_VERDEF, DT_VERDEFNUM,
    DT_VERNEED, DT_VERNEEDNUM, Dyn,
};
use goblin::elf::program_header::ProgramHeader;
use scroll::Pread;

use super::pages::{Pages, ReadAt};
use super::versions::{self, Text, VersionNeeds};
use super::{Segments, Unfit};

const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;
const DF_1_NODEFLIB: u64 = 0x800;
const DF_1_PIE: u64 = 0x0800_0000;

/// Most bytes of a dynamic section; a thousandth is usual.
const MAX_SECTION: u64 = 1 << 20;
/// Most libraries that one file asks for; a program of hundreds is large.
const MAX_NEEDED: usize = 4096;

/// Entries of a dynamic section, and bytes of the names of versions, that most files have at most.
const USUAL_ENTRIES: usize = 64;
const USUAL_TEXTS: usize = 1024;

/// A dynamic section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dynamic {
    /// What has to be loaded too, in order.
    pub needed: Vec<Needed>,
    /// The name that others know it by.
    pub soname: Option<OsString>,
    /// Where to look for what this object, and what it loads, needs. None when there is a [`Dynamic::runpath`], which replaces it.
    pub rpath: Option<OsString>,
    /// Where to look for what this object needs.
    pub runpath: Option<OsString>,
    /// `DF_1_*`.
    pub flags_1: u64,
    /// Versions of symbols that others must have.
    pub versions_needed: Vec<VersionNeeds>,
    /// Versions of symbols that it has; none: it knows no versions.
    pub versions_defined: Option<Vec<Text>>,
    /// The names of versions, one behind the other.
    texts: Vec<u8>,
}

/// Something that has to be loaded too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Its name; a path when it has a slash.
    pub name: OsString,
    /// In which way it is needed.
    pub kind: NeedKind,
}

/// The ways of being needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedKind {
    /// `DT_NEEDED`.
    Needed,
    /// `DT_FILTER`: it has the symbols that this object only promises.
    Filter,
    /// `DT_AUXILIARY`: as a filter, and may be missing.
    Auxiliary,
}

impl Dynamic {
    /// Neither ld.so.cache's system folders nor the default ones are looked at for this object's needs.
    pub fn has_no_default_lib(&self) -> bool {
        self.flags_1 & DF_1_NODEFLIB != 0
    }

    /// It is a program, though it could be anywhere.
    pub fn is_program(&self) -> bool {
        self.flags_1 & DF_1_PIE != 0
    }

    /// The name of a version, or of the file that has it.
    pub fn text(&self, text: Text) -> &OsStr {
        OsStr::from_bytes(self.texts.get(text.range()).unwrap_or_default())
    }

    /// Whether others find that version of symbols here. A file that knows no versions has, to the loader, all of them.
    pub fn defines(&self, version: &OsStr) -> bool {
        let is_it = |text: &Text| self.text(*text) == version;
        self.versions_defined.as_ref().is_none_or(|defined| defined.iter().any(is_it))
    }
}

pub(super) fn read(
    pages: &mut Pages<'_, impl ReadAt + ?Sized>,
    segments: &Segments,
    segment: &ProgramHeader,
) -> Result<Dynamic, Unfit> {
    if segment.p_filesz > MAX_SECTION {
        return Err(Unfit::TooLarge);
    }
    let bytes = pages.bytes(segment.p_offset, segment.p_filesz)?;
    let entries = parse_entries(&bytes, segments);
    // As in the loader, the last one of a kind counts.
    let value = |tag: u64| entries.iter().rev().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val);
    let strings = match value(DT_STRTAB) {
        Some(address) => segments.offset_of(address).ok_or(Unfit::Broken("DT_STRTAB"))?,
        // No names, then.
        None => return Ok(Dynamic::default()),
    };
    let mut names = Names { pages, strings, texts: Vec::with_capacity(USUAL_TEXTS) };
    let mut dynamic = Dynamic { flags_1: value(DT_FLAGS_1).unwrap_or(0), ..Dynamic::default() };
    for entry in &entries {
        let kind = match entry.d_tag {
            DT_NEEDED => NeedKind::Needed,
            DT_FILTER => NeedKind::Filter,
            DT_AUXILIARY => NeedKind::Auxiliary,
            _ => continue,
        };
        if dynamic.needed.len() == MAX_NEEDED {
            return Err(Unfit::TooLarge);
        }
        dynamic.needed.push(Needed { name: names.get(entry.d_val)?, kind });
    }
    let mut text = |tag: u64| value(tag).map(|offset| names.get(offset)).transpose();
    dynamic.soname = text(DT_SONAME)?;
    dynamic.runpath = text(DT_RUNPATH)?;
    dynamic.rpath = if dynamic.runpath.is_some() { None } else { text(DT_RPATH)? };
    let table = |at: u64, count: u64| Some((segments.offset_of(value(at)?), value(count)?));
    if let Some((at, count)) = table(DT_VERNEED, DT_VERNEEDNUM) {
        let at = at.ok_or(Unfit::Broken("DT_VERNEED"))?;
        dynamic.versions_needed = versions::read_needs(&mut names, at, count, segments.ctx.le)?;
    }
    if let Some((at, count)) = table(DT_VERDEF, DT_VERDEFNUM) {
        let at = at.ok_or(Unfit::Broken("DT_VERDEF"))?;
        dynamic.versions_defined = Some(versions::read_definitions(&mut names, at, count, segments.ctx.le)?);
    }
    names.texts.shrink_to_fit();
    dynamic.texts = names.texts;
    Ok(dynamic)
}

fn parse_entries(bytes: &[u8], segments: &Segments) -> Vec<Dyn> {
    let mut entries =
        Vec::with_capacity(bytes.len().div_ceil(Dyn::size(segments.ctx.container)).min(USUAL_ENTRIES));
    let mut offset = 0;
    while let Ok(entry) = bytes.gread_with::<Dyn>(&mut offset, segments.ctx) {
        if entry.d_tag == DT_NULL {
            break;
        }
        entries.push(entry);
    }
    entries
}

/// Names by their place in the string table.
#[derive(Debug)]
pub(super) struct Names<'p, 'a, R: ?Sized> {
    pub(super) pages: &'p mut Pages<'a, R>,
    strings: u64,
    texts: Vec<u8>,
}

impl<R: ReadAt + ?Sized> Names<'_, '_, R> {
    pub(super) fn get(&mut self, offset: u64) -> Result<OsString, Unfit> {
        let at = self.strings.checked_add(offset).ok_or(Unfit::Broken("string"))?;
        self.pages.string(at, None)
    }

    /// One that is kept with all others.
    pub(super) fn keep(&mut self, offset: u32) -> Result<Text, Unfit> {
        let at = self.strings.checked_add(u64::from(offset)).ok_or(Unfit::Broken("string"))?;
        let begin = self.texts.len();
        self.pages.append_string(at, None, &mut self.texts)?;
        Text::new(begin..self.texts.len()).ok_or(Unfit::TooLarge)
    }
}
