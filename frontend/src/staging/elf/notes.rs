//! Notes: the build id, and optional libraries.

use scroll::{Endian, Pread};

use crate::staging::dlopen::{DlopenNote, parse_dlopen_note};

const NT_GNU_BUILD_ID: u32 = 3;
/// <https://uapi-group.org/specifications/specs/elf_dlopen_metadata/>
const NT_FDO_DLOPEN: u32 = 0x407c_0c0a;

/// The content of a file's notes.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) dlopen: Vec<DlopenNote>,
}

/// Adds the notes of one segment. A broken note ends the segment: nothing depends on notes.
pub(super) fn read(bytes: &[u8], endian: Endian, align: u64, notes: &mut Notes) {
    let align = if align == 8 { 8 } else { 4 };
    let mut at = 0;
    while let Some((note, next)) = parse_note(bytes, at, endian, align) {
        match (note.name, note.kind) {
            (b"GNU\0", NT_GNU_BUILD_ID) => notes.build_id = Some(note.content.to_vec()),
            (b"FDO\0", NT_FDO_DLOPEN) => notes.dlopen.extend(parse_dlopen_note(note.content)),
            _ => {}
        }
        at = next;
    }
}

struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    content: &'a [u8],
}

fn parse_note(bytes: &[u8], at: usize, endian: Endian, align: usize) -> Option<(Note<'_>, usize)> {
    let word = |at: usize| bytes.pread_with::<u32>(at, endian).ok();
    let size = |at: usize| usize::try_from(word(at)?).ok();
    let (name_len, content_len, kind) = (size(at)?, size(at + 4)?, word(at + 8)?);
    let name_at = at + 12;
    let content_at = name_at.checked_add(name_len)?.checked_next_multiple_of(align)?;
    let end = content_at.checked_add(content_len)?;
    let note = Note {
        name: bytes.get(name_at..name_at.checked_add(name_len)?)?,
        kind,
        content: bytes.get(content_at..end)?,
    };
    Some((note, end.checked_next_multiple_of(align)?))
}
