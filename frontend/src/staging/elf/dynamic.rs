//! The dynamic section: the libraries to load, and where to search for them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use goblin::elf::dynamic::{
    DT_FLAGS_1, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_VERDEF,
    DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM, Dyn,
};
use goblin::elf::program_header::ProgramHeader;
use scroll::Pread;

use super::names::{Names, Text};
use super::pages::{Pages, ReadAt};
use super::segments::Segments;
use super::unfit::Unfit;
use super::versions::{self, Version, VersionNeeds};

const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;
const DF_1_NODEFLIB: u64 = 0x800;
const DF_1_PIE: u64 = 0x0800_0000;

/// The most bytes of a dynamic section; a thousandth is usual.
const MAX_SECTION: u64 = 1 << 20;
/// The most libraries that one file requests; a program with hundreds is large.
const MAX_NEEDED: usize = 4096;

/// Enough bytes for the names of most files.
const USUAL_TEXTS: usize = 1024;
/// Linkers put the names of dynamic sections and versions after those of all symbols, within this many bytes.
const USED_NAMES: u64 = 1024;
/// Enough bytes for one needed file with its versions, and for one defined version, in most files.
const USUAL_NEED: u64 = 96;
const USUAL_DEFINITION: u64 = 40;

/// A dynamic section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dynamic {
    /// The needed libraries, in order.
    pub needed: Vec<Needed>,
    /// Its own name.
    pub soname: Option<Text>,
    /// Search path for the needs of this object and of the libraries that it loads. None if there is a
    /// [`Dynamic::runpath`], which replaces it.
    pub rpath: Option<Text>,
    /// Search path for the needs of this object.
    pub runpath: Option<Text>,
    /// `DF_1_*`.
    pub flags_1: u64,
    /// Symbol versions that other files must have.
    pub versions_needed: Vec<VersionNeeds>,
    /// Symbol versions that it defines. None: it has no versions.
    pub versions_defined: Option<Vec<Version>>,
    /// The needed versions, grouped by file.
    versions: Vec<Version>,
    /// All names, concatenated.
    texts: Vec<u8>,
}

/// A library to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// Its name; a path when it has a slash.
    pub name: Text,
    /// The kind of the need.
    pub kind: NeedKind,
}

/// Kinds of needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedKind {
    /// `DT_NEEDED`.
    Needed,
    /// `DT_FILTER`: it provides the symbols that this object only declares.
    Filter,
    /// `DT_AUXILIARY`: as a filter, but may be missing.
    Auxiliary,
}

impl Dynamic {
    /// The loader searches neither ld.so.cache's system folders nor the default ones for this object's needs.
    pub fn has_no_default_lib(&self) -> bool {
        self.flags_1 & DF_1_NODEFLIB != 0
    }

    /// It is a position-independent program.
    pub fn is_program(&self) -> bool {
        self.flags_1 & DF_1_PIE != 0
    }

    /// The content of a text.
    pub fn text(&self, text: Text) -> &OsStr {
        OsStr::from_bytes(self.texts.get(text.range()).unwrap_or_default())
    }

    /// The required versions.
    pub fn versions_of(&self, needs: &VersionNeeds) -> &[Version] {
        self.versions.get(needs.range()).unwrap_or_default()
    }

    /// Whether it defines a version that `by` needs. For the loader, a file without versions defines all.
    pub fn defines(&self, version: Version, by: &Self) -> bool {
        let is_it =
            |known: &Version| known.hash == version.hash && self.text(known.name) == by.text(version.name);
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
    let entries = Entries::parse(&pages.bytes(segment.p_offset, segment.p_filesz)?, segments)?;
    let place = |address: Option<u64>, what: &'static str| {
        address.map(|address| segments.offset_of(address).ok_or(Unfit::Broken(what))).transpose()
    };
    // Without a string table there are no names.
    let Some(strings) = place(entries.strings, "DT_STRTAB")? else { return Ok(Dynamic::default()) };
    let of_versions = |at, count: Option<u64>, what| count.map_or(Ok(None), |_| place(at, what));
    let needs_at = of_versions(entries.needs, entries.needs_count, "DT_VERNEED")?;
    let definitions_at = of_versions(entries.definitions, entries.definitions_count, "DT_VERDEF")?;

    entries.expect_texts(pages, strings, needs_at, definitions_at)?;
    let mut names = Names { pages, strings, texts: Vec::with_capacity(USUAL_TEXTS) };
    let mut dynamic = Dynamic { flags_1: entries.flags_1.unwrap_or(0), ..Dynamic::default() };
    dynamic.needed.reserve_exact(entries.needed.len());
    for (name, kind) in entries.needed {
        dynamic.needed.push(Needed { name: names.keep(name)?, kind });
    }
    let mut text = |offset: Option<u64>| offset.map(|offset| names.keep(offset)).transpose();
    dynamic.soname = text(entries.soname)?;
    dynamic.runpath = text(entries.runpath)?;
    dynamic.rpath = if dynamic.runpath.is_some() { None } else { text(entries.rpath)? };
    let endian = segments.ctx.le;
    if let (Some(at), Some(count)) = (needs_at, entries.needs_count) {
        (dynamic.versions_needed, dynamic.versions) = versions::read_needs(&mut names, at, count, endian)?;
    }
    if let (Some(at), Some(count)) = (definitions_at, entries.definitions_count) {
        dynamic.versions_defined = Some(versions::read_definitions(&mut names, at, count, endian)?);
    }
    names.texts.shrink_to_fit();
    dynamic.texts = names.texts;
    Ok(dynamic)
}

/// The entries of the section. As in the loader, the last one of a kind counts.
#[derive(Debug, Default)]
struct Entries {
    needed: Vec<(u64, NeedKind)>,
    strings: Option<u64>,
    strings_size: Option<u64>,
    soname: Option<u64>,
    rpath: Option<u64>,
    runpath: Option<u64>,
    flags_1: Option<u64>,
    needs: Option<u64>,
    needs_count: Option<u64>,
    definitions: Option<u64>,
    definitions_count: Option<u64>,
}

impl Entries {
    fn parse(bytes: &[u8], segments: &Segments) -> Result<Self, Unfit> {
        let mut found = Self::default();
        let mut offset = 0;
        while let Ok(Dyn { d_tag, d_val }) = bytes.gread_with::<Dyn>(&mut offset, segments.ctx) {
            let value = Some(d_val);
            match d_tag {
                DT_NULL => break,
                DT_NEEDED => found.need(d_val, NeedKind::Needed)?,
                DT_FILTER => found.need(d_val, NeedKind::Filter)?,
                DT_AUXILIARY => found.need(d_val, NeedKind::Auxiliary)?,
                DT_STRTAB => found.strings = value,
                DT_STRSZ => found.strings_size = value,
                DT_SONAME => found.soname = value,
                DT_RPATH => found.rpath = value,
                DT_RUNPATH => found.runpath = value,
                DT_FLAGS_1 => found.flags_1 = value,
                DT_VERNEED => found.needs = value,
                DT_VERNEEDNUM => found.needs_count = value,
                DT_VERDEF => found.definitions = value,
                DT_VERDEFNUM => found.definitions_count = value,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Reads most of the names that will be needed in one operation, or in two if names and versions are far apart.
    fn expect_texts(
        &self,
        pages: &mut Pages<'_, impl ReadAt + ?Sized>,
        strings: u64,
        needs_at: Option<u64>,
        definitions_at: Option<u64>,
    ) -> Result<(), Unfit> {
        let names_end = strings.saturating_add(self.strings_size.unwrap_or(0));
        let names = names_end.saturating_sub(USED_NAMES).max(strings);
        let end = |at: Option<u64>, count: Option<u64>, usual: u64| {
            at.map_or(0, |at| at.saturating_add(count.unwrap_or(0).saturating_mul(usual)))
        };
        let needs_end = end(needs_at, self.needs_count, USUAL_NEED);
        let versions_end = needs_end.max(end(definitions_at, self.definitions_count, USUAL_DEFINITION));
        if versions_end < names_end || !pages.expect(names..versions_end)? {
            pages.expect(names..names_end)?;
            let begin = needs_at.into_iter().chain(definitions_at).min().unwrap_or(0);
            pages.expect(begin..versions_end)?;
        }
        Ok(())
    }

    fn need(&mut self, name: u64, kind: NeedKind) -> Result<(), Unfit> {
        if self.needed.len() == MAX_NEEDED {
            return Err(Unfit::TooLarge);
        }
        self.needed.push((name, kind));
        Ok(())
    }
}
