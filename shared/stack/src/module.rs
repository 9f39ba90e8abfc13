//! Programs and libraries that ranks run.

use std::fmt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};

/// What a file's content is known by: its build id in hexadecimal digits; where it has none, `h` and a hash of its first page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(String);

/// The bytes at the beginning of a file that a hash is of.
pub const PAGE: usize = 4096;

/// Why functions of a file have no names, if that stays so: its path leads to another file. Other reasons pass.
pub const HAS_CHANGED: &str = "has changed since the ranks began";

/// The longest build id that is taken.
const MAX_ID_BYTES: usize = 64;

impl ModuleId {
    /// Of a build id's bytes; none for an empty one, or one that is too long.
    #[must_use]
    pub fn of_build_id(bytes: &[u8]) -> Option<Self> {
        let fits = (1..=MAX_ID_BYTES).contains(&bytes.len());
        fits.then(|| Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Of a file without a build id, by its beginning.
    #[must_use]
    pub fn of_first_page(bytes: &[u8]) -> Self {
        // FNV-1a: the same in every build of every version.
        let hash = bytes.iter().take(PAGE).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(format!("h{hash:016x}"))
    }

    /// Reads the id that stands in a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('h').unwrap_or(text);
        let fits = (1..=2 * MAX_ID_BYTES).contains(&digits.len());
        let hexadecimal = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (fits && hexadecimal).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file that distributions install with the symbols of a program or library with this build id, from the root.
    #[must_use]
    pub fn debug_file(&self) -> Option<PathBuf> {
        let (folder, name) = self.0.split_at_checked(2)?;
        let named = !self.0.starts_with('h') && !name.is_empty();
        named.then(|| Path::new("usr/lib/debug/.build-id").join(folder).join(format!("{name}.debug")))
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A program or library, and where the ranks have it from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    /// Its content.
    pub id: ModuleId,
    /// Its path as the ranks see it.
    pub path: String,
}

impl Module {
    /// The text that stands for it in a prefix tree.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {}", self.id, self.path)
    }

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, path) = text.split_once(' ')?;
        Some(Self { id: ModuleId::parse(id)?, path: path.to_owned() })
    }

    /// The last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The id of the file whose beginning these bytes are. `read` gets what else is needed: offset in the file, address in memory, length.
/// None: it is no file for a 64-bit machine of this byte order.
pub fn identify(
    beginning: &[u8],
    mut read: impl FnMut(u64, u64, usize) -> Option<Vec<u8>>,
) -> Option<ModuleId> {
    const MAX_NOTES: u64 = 64 * 1024;
    let header = FileHeader64::<LittleEndian>::parse(beginning).ok()?;
    let segments = header.program_headers(LittleEndian, beginning).ok()?;
    for segment in segments.iter().filter(|segment| segment.p_type(LittleEndian) == PT_NOTE) {
        let length = segment.p_filesz(LittleEndian).min(MAX_NOTES);
        let (offset, address) = (segment.p_offset(LittleEndian), segment.p_vaddr(LittleEndian));
        let notes = usize::try_from(length).ok().and_then(|length| read(offset, address, length));
        if let Some(id) = notes.and_then(|notes| find_build_id(&notes, segment.p_align(LittleEndian))) {
            return Some(id);
        }
    }
    Some(ModuleId::of_first_page(beginning))
}

/// The first build id in a segment of notes.
fn find_build_id(notes: &[u8], align: u64) -> Option<ModuleId> {
    // Only 8 differs (.note.gnu.property).
    let align = if align == 8 { 8 } else { 4 };
    let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, align, notes).ok()?;
    while let Some(note) = notes.next().ok()? {
        if note.name() == ELF_NOTE_GNU && note.n_type(LittleEndian) == NT_GNU_BUILD_ID {
            return ModuleId::of_build_id(note.desc());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_read_back() {
        let module =
            Module { id: ModuleId::of_build_id(&[0xab, 1]).unwrap(), path: "/opt/a b/x.so".to_owned() };
        assert_eq!(module.to_text(), "ab01 /opt/a b/x.so");
        assert_eq!(Module::parse(&module.to_text()), Some(module.clone()));
        assert_eq!(module.name(), "x.so");
        for bad in ["", "ab01", " /x", "xy /x", "AB /x", "h /x"] {
            assert_eq!(Module::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn notes_are_read_at_their_alignment() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut bytes = Vec::new();
            for number in [name.len(), content.len()] {
                bytes.extend(u32::try_from(number).unwrap().to_le_bytes());
            }
            bytes.extend(kind.to_le_bytes());
            for part in [name, content] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let both = [note(b"Go\0", 4, b"abcde"), note(b"GNU\0", 3, &[1, 2, 3])].concat();
        assert_eq!(find_build_id(&both, 4).unwrap().as_str(), "010203");
        assert_eq!(find_build_id(&both[..both.len() - 4], 4), None);
        assert_eq!(find_build_id(&note(b"GNU\0", 1, &[1]), 4), None);
        assert_eq!(find_build_id(&[0xff; 40], 4), None);
    }

    #[test]
    fn this_program_has_an_id() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let id = identify(&bytes[..PAGE], |offset, _, length| {
            let offset = usize::try_from(offset).ok()?;
            bytes.get(offset..offset + length).map(<[u8]>::to_vec)
        });
        assert!(ModuleId::parse(id.unwrap().as_str()).is_some());
        assert_eq!(identify(b"#!/bin/sh", |_, _, _| None), None);
    }
}
