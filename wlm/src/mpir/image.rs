//! The files that a process has mapped, and their addresses: `/proc/PID/maps` and `/proc/PID/auxv`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::memory::Width;

/// One file that is mapped into a process, at its lowest address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) path: PathBuf,
    pub(super) start: u64,
    /// The file offset of the part that is mapped at `start`.
    pub(super) offset: u64,
}

/// The files in `/proc/PID/maps` with an executable mapping, ascending, each once. Deleted files are left out.
pub(super) fn parse_maps(maps: &[u8]) -> Vec<Mapped> {
    let mut found: Vec<(Mapped, bool)> = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        let Some((mapped, executable)) = parse_line(line) else { continue };
        match found.iter_mut().find(|(known, _)| known.path == mapped.path) {
            Some((_, known)) => *known |= executable,
            None => found.push((mapped, executable)),
        }
    }
    found.into_iter().filter(|(_, executable)| *executable).map(|(mapped, _)| mapped).collect()
}

fn parse_line(line: &[u8]) -> Option<(Mapped, bool)> {
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    if path.ends_with(b" (deleted)") {
        return None;
    }
    let mut fields =
        line.split(|byte| *byte == b' ').map(|field| std::str::from_utf8(field).unwrap_or_default());
    let (start, _) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x');
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let start = u64::from_str_radix(start, 16).ok()?;
    Some((Mapped { path: Path::new(OsStr::from_bytes(path)).to_path_buf(), start, offset }, executable))
}

/// The address at which the kernel or the loader starts the program itself, from `/proc/PID/auxv`.
pub(super) fn parse_entry(auxv: &[u8], width: Width) -> Option<u64> {
    const ENTRY: u64 = 9;
    let pairs = auxv.chunks_exact(2 * width.bytes());
    let mut pairs =
        pairs.filter_map(|pair| Some((width.number(pair)?, width.number(&pair[width.bytes()..])?)));
    pairs.find(|(kind, _)| *kind == ENTRY).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_listed_once_at_their_lowest_address() {
        let maps = b"55d0-55d1 r--p 00000000 fe:00 11 /usr/bin/launcher\n\
            55d1-55d2 r-xp 00001000 fe:00 11 /usr/bin/launcher\n\
            6000-7000 rw-p 00000000 00:00 0 [heap]\n\
            7100-7200 r--p 00000000 fe:00 12 /usr/lib/a b.so.1\n\
            7200-7300 r-xp 00100000 fe:00 12 /usr/lib/a b.so.1\n\
            7300-7400 r--p 00000000 fe:00 13 /usr/lib/locale/C.utf8/LC_CTYPE\n\
            7400-7500 r-xp 00000000 fe:00 14 /tmp/gone.so (deleted)\n\
            7f00-7f01 r-xp 00000000 00:00 0 [vdso]\nnonsense\n";
        let expected = [("/usr/bin/launcher", 0x55d0), ("/usr/lib/a b.so.1", 0x7100)];
        let expected = expected.map(|(path, start)| Mapped { path: path.into(), start, offset: 0 });
        assert_eq!(parse_maps(maps), expected);
    }

    #[test]
    fn the_entry_is_found_in_both_widths() {
        let wide: Vec<u8> = [3_u64, 64, 9, 0x1234, 0, 0].iter().flat_map(|it| it.to_ne_bytes()).collect();
        let narrow: Vec<u8> = [3_u32, 64, 9, 0x1234, 0, 0].iter().flat_map(|it| it.to_ne_bytes()).collect();
        assert_eq!(parse_entry(&wide, Width::Wide), Some(0x1234));
        assert_eq!(parse_entry(&narrow, Width::Narrow), Some(0x1234));
        assert_eq!(parse_entry(&wide[..16], Width::Wide), None);
    }
}
