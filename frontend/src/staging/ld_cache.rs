//! `/etc/ld.so.cache`: the paths of libraries, as ldconfig found them.
//!
//! There are two formats: the old one (`ld.so-1.7.0`) and the new one (`glibc-ld.so.cache1.1`). A cache may also have
//! the old one followed by the new one. Their layout is in glibc's `sysdeps/generic/dl-cache.h`. The search is the
//! loader's own, so a cache in an unusual order gives the same result.

use std::cmp::Ordering;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use scroll::{Endian, Pread};

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
const ENDIAN_LITTLE: u8 = 2;
const ENDIAN_BIG: u8 = 3;

const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const TAG_HWCAPS: u32 = 1;
/// A flag in an entry's `hwcap`: the low half is the number of a named subdirectory.
const NAMED: u64 = 1 << 62;
/// With [`NAMED`]: the level of the instruction set, which the name implies.
const ISA_LEVEL: u64 = 0x3ff << 32;

/// Why a file is not a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a library cache in a known format")]
pub struct NoCache;

/// A cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdCache {
    bytes: Vec<u8>,
    endian: Endian,
    /// The offset of the entries, their number and their length.
    entries: usize,
    count: usize,
    entry_size: usize,
    /// The base of the strings' offsets.
    strings: usize,
    /// Names of subdirectories for processors, by their number.
    hwcaps: Vec<String>,
}

impl LdCache {
    /// Takes a cache's content. Checks only the header; entries are checked when they are read.
    ///
    /// # Errors
    /// It is another kind of file, or too short.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, NoCache> {
        if bytes.starts_with(NEW_MAGIC) {
            return Self::parse_new(bytes, 0);
        }
        if !bytes.starts_with(OLD_MAGIC) {
            return Err(NoCache);
        }
        for endian in [Endian::Little, Endian::Big] {
            let Some((count, end)) = table(&bytes, endian, OLD_MAGIC.len() + 1, OLD_HEADER, OLD_ENTRY) else {
                continue;
            };
            // Aligned as the writing machine aligns 64-bit numbers.
            let behind = [8, 4].into_iter().map(|align| end.next_multiple_of(align));
            let new =
                behind.into_iter().find(|at| bytes.get(*at..).is_some_and(|it| it.starts_with(NEW_MAGIC)));
            return match new {
                Some(at) => Self::parse_new(bytes, at),
                None => Ok(Self {
                    bytes,
                    endian,
                    entries: OLD_HEADER,
                    count,
                    entry_size: OLD_ENTRY,
                    strings: end,
                    hwcaps: Vec::new(),
                }),
            };
        }
        Err(NoCache)
    }

    fn parse_new(bytes: Vec<u8>, begin: usize) -> Result<Self, NoCache> {
        let endians: &[Endian] = match bytes.get(begin + 28).map(|flags| flags & 3) {
            Some(ENDIAN_LITTLE) => &[Endian::Little],
            Some(ENDIAN_BIG) => &[Endian::Big],
            // An old cache, without the mark.
            _ => &[Endian::Little, Endian::Big],
        };
        let entries = begin + NEW_HEADER;
        for endian in endians {
            if let Some((count, _)) = table(&bytes, *endian, begin + 20, entries, NEW_ENTRY) {
                let mut cache = Self {
                    endian: *endian,
                    entries,
                    count,
                    entry_size: NEW_ENTRY,
                    strings: begin,
                    hwcaps: Vec::new(),
                    bytes,
                };
                cache.hwcaps = cache.parse_hwcaps(begin).unwrap_or_default();
                return Ok(cache);
            }
        }
        Err(NoCache)
    }

    /// The extension with the names of subdirectories, if the cache has one.
    fn parse_hwcaps(&self, begin: usize) -> Option<Vec<String>> {
        let base = begin.checked_add(self.word(begin + 32)?)?;
        if self.raw_word(base)? != EXTENSION_MAGIC {
            return None;
        }
        let count = self.word(base.checked_add(4)?)?;
        let sections = (0..count).map_while(|number| {
            let at = base.checked_add(8)?.checked_add(number.checked_mul(16)?)?;
            Some((self.raw_word(at)?, self.word(at + 8)?, self.word(at + 12)?))
        });
        let (_, offset, size) = sections.into_iter().find(|(tag, ..)| *tag == TAG_HWCAPS)?;
        let at = |number: usize| begin.checked_add(offset)?.checked_add(number * 4);
        let names = (0..size / 4).map_while(|number| {
            let name = self.string(self.word(at(number)?)?)?;
            Some(String::from_utf8_lossy(name).into_owned())
        });
        Some(names.collect())
    }

    /// The path of the library of that name for a machine whose libraries have one of `flags`. `hwcaps` are the names
    /// of the subdirectories that the processor can use, the best first. Entries for processor features without such a
    /// name are skipped: loaders stopped using them with glibc 2.37, and no library was installed for them long before
    /// that.
    pub fn lookup(&self, name: &OsStr, flags: &[i32], hwcaps: &[&str]) -> Option<&Path> {
        if name.as_bytes().contains(&0) {
            return None;
        }
        let mut best: Option<(usize, &[u8])> = None;
        let first = self.first_of(name.as_bytes())?;
        for entry in (first..self.count).map_while(|number| self.entry(number)) {
            if compare(name.as_bytes(), entry.key) != Ordering::Equal {
                break;
            }
            if !flags.contains(&entry.flags) {
                continue;
            }
            match self.rank(entry.hwcap, hwcaps) {
                None => {}
                Some(rank) if best.is_some_and(|(best, _)| best <= rank && rank < hwcaps.len()) => {}
                Some(rank) => {
                    // Files for any processor come last in the cache: no better one was found if this one is met first.
                    if best.is_none() || rank < hwcaps.len() {
                        best = Some((rank, entry.value));
                    }
                    if rank == hwcaps.len() {
                        break;
                    }
                }
            }
        }
        best.map(|(_, path)| Path::new(OsStr::from_bytes(path)))
    }

    /// The rank of an entry: 0 is the best, the number of `hwcaps` means any processor. None: this processor cannot use
    /// it.
    fn rank(&self, hwcap: u64, hwcaps: &[&str]) -> Option<usize> {
        if hwcap == 0 {
            return Some(hwcaps.len());
        }
        if hwcap & !ISA_LEVEL & !0xffff_ffff != NAMED {
            return None;
        }
        let name = self.hwcaps.get(usize::try_from(hwcap & 0xffff_ffff).ok()?)?;
        hwcaps.iter().position(|known| known == name)
    }

    /// The index of the first entry with that name. Names are in descending order.
    fn first_of(&self, name: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match compare(name, self.key(middle)?) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let is_same = |number: &usize| {
                        self.key(*number).is_some_and(|key| compare(name, key) == Ordering::Equal)
                    };
                    return (0..=middle).rev().take_while(is_same).last();
                }
            }
        }
        None
    }

    /// The name of an entry with all bytes after it. A search needs no more of most entries.
    fn key(&self, number: usize) -> Option<&[u8]> {
        self.behind(self.word(self.place(number)? + 4)?)
    }

    /// The offset of an entry.
    fn place(&self, number: usize) -> Option<usize> {
        self.entries.checked_add(number.checked_mul(self.entry_size)?)
    }

    fn entry(&self, number: usize) -> Option<Entry<'_>> {
        let at = self.place(number)?;
        let hwcap = match self.entry_size {
            NEW_ENTRY => self.bytes.pread_with(at + 16, self.endian).ok()?,
            _ => 0,
        };
        let flags = self.bytes.pread_with(at, self.endian).ok()?;
        Some(Entry {
            flags,
            key: self.string(self.word(at + 4)?)?,
            value: self.string(self.word(at + 8)?)?,
            hwcap,
        })
    }

    fn behind(&self, offset: usize) -> Option<&[u8]> {
        self.bytes.get(self.strings.checked_add(offset)?..)
    }

    fn string(&self, offset: usize) -> Option<&[u8]> {
        let rest = self.behind(offset)?;
        // The standard library's search is fast.
        CStr::from_bytes_until_nul(rest).ok().map(CStr::to_bytes)
    }

    fn raw_word(&self, at: usize) -> Option<u32> {
        self.bytes.pread_with(at, self.endian).ok()
    }

    fn word(&self, at: usize) -> Option<usize> {
        usize::try_from(self.raw_word(at)?).ok()
    }
}

#[derive(Debug)]
struct Entry<'a> {
    flags: i32,
    key: &'a [u8],
    value: &'a [u8],
    hwcap: u64,
}

/// The number of entries of a table, and its end. None: it does not fit into the file.
fn table(
    bytes: &[u8],
    endian: Endian,
    count_at: usize,
    begin: usize,
    entry: usize,
) -> Option<(usize, usize)> {
    let count = usize::try_from(bytes.pread_with::<u32>(count_at, endian).ok()?).ok()?;
    let end = begin.checked_add(count.checked_mul(entry)?)?;
    (end <= bytes.len()).then_some((count, end))
}

/// The order of a cache: digits compare as numbers, so version 10 comes after 9 (glibc: `_dl_cache_libcmp`). A name
/// ends with a NUL or with its slice, so its length need not be known before.
fn compare(mut left: &[u8], mut right: &[u8]) -> Ordering {
    let first = |text: &[u8]| text.first().copied().unwrap_or(0);
    loop {
        match (first(left), first(right)) {
            (0, 0) => return Ordering::Equal,
            (a, b) if a.is_ascii_digit() && b.is_ascii_digit() => {
                match take_number(&mut left).cmp(&take_number(&mut right)) {
                    Ordering::Equal => {}
                    other => return other,
                }
            }
            (a, _) if a.is_ascii_digit() => return Ordering::Greater,
            (_, b) if b.is_ascii_digit() => return Ordering::Less,
            (a, b) if a == b => (left, right) = (&left[1..], &right[1..]),
            (a, b) => return a.cmp(&b),
        }
    }
}

fn take_number(text: &mut &[u8]) -> u64 {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    *text = rest;
    digits.iter().fold(0_u64, |value, digit| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a str, &'a str, i32, u64);

    /// Builds a cache of the new format; rows must be in order.
    fn new(rows: &[Row<'_>], hwcaps: &[&str], endian: u8) -> Vec<u8> {
        let number = |value: u64, length: usize| match endian {
            ENDIAN_BIG => value.to_be_bytes()[8 - length..].to_vec(),
            _ => value.to_le_bytes()[..length].to_vec(),
        };
        let mut strings = Vec::new();
        let base = NEW_HEADER + rows.len() * NEW_ENTRY;
        let mut add = |text: &str| {
            let at = (base + strings.len()) as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            number(at, 4)
        };
        let mut entries = Vec::new();
        for (key, value, flags, hwcap) in rows {
            let flags = number(u64::from(flags.cast_unsigned()), 4);
            entries.extend([flags, add(key), add(value), number(0, 4), number(*hwcap, 8)].concat());
        }
        let names: Vec<u8> = hwcaps.iter().flat_map(|name| add(name)).collect();
        let extension = (base + strings.len()) as u64;
        let section = [number(1, 4), number(0, 4), number(extension + 24, 4), number(names.len() as u64, 4)];
        let extension_bytes =
            [number(u64::from(EXTENSION_MAGIC), 4), number(1, 4), section.concat(), names].concat();
        let header = [
            NEW_MAGIC.to_vec(),
            number(rows.len() as u64, 4),
            number(strings.len() as u64, 4),
            vec![endian, 0, 0, 0],
            number(extension, 4),
            vec![0; 12],
        ];
        [header.concat(), entries, strings, extension_bytes].concat()
    }

    const ROWS: &[Row<'_>] = &[
        ("libz.so.1", "/v3/libz.so.1", 0x303, NAMED | 1),
        ("libz.so.1", "/v2/libz.so.1", 0x303, NAMED | 3 << 32),
        ("libz.so.1", "/sse/libz.so.1", 0x303, 4),
        ("libz.so.1", "/64/libz.so.1", 0x303, 0),
        ("libz.so.1", "/32/libz.so.1", 3, 0),
        ("liba.so.10", "/liba.so.10", 0x303, 0),
        ("liba.so.9", "/liba.so.9", 0x303, 0),
    ];
    const HWCAPS: &[&str] = &["x86-64-v2", "x86-64-v3"];

    #[track_caller]
    fn check(cache: &[u8], name: &str, flags: i32, hwcaps: &[&str], expected: Option<&str>) {
        let cache = LdCache::parse(cache.to_vec()).unwrap();
        assert_eq!(cache.lookup(OsStr::new(name), &[flags], hwcaps), expected.map(Path::new), "{name}");
    }

    #[test]
    fn the_best_file_that_the_processor_can_use_is_found() {
        for endian in [ENDIAN_LITTLE, ENDIAN_BIG, 0] {
            let cache = new(ROWS, HWCAPS, endian);
            check(&cache, "libz.so.1", 0x303, &["x86-64-v3", "x86-64-v2"], Some("/v3/libz.so.1"));
            check(&cache, "libz.so.1", 0x303, &["x86-64-v2"], Some("/v2/libz.so.1"));
            check(&cache, "libz.so.1", 0x303, &[], Some("/64/libz.so.1"));
            check(&cache, "libz.so.1", 3, &["x86-64-v3"], Some("/32/libz.so.1"));
            check(&cache, "libz.so.1", 0x803, &[], None);
            check(&cache, "liba.so.9", 0x303, &[], Some("/liba.so.9"));
            check(&cache, "liba.so.10", 0x303, &[], Some("/liba.so.10"));
            check(&cache, "liba.so", 0x303, &[], None);
            check(&cache, "", 0x303, &[], None);
        }
    }

    fn old(rows: &[Row<'_>]) -> Vec<u8> {
        let (mut entries, mut strings) = (Vec::new(), Vec::new());
        for (key, value, flags, _) in rows {
            entries.extend_from_slice(&flags.to_le_bytes());
            for text in [key, value] {
                entries.extend_from_slice(&u32::try_from(strings.len()).unwrap().to_le_bytes());
                strings.extend_from_slice(text.as_bytes());
                strings.push(0);
            }
        }
        let count = u32::try_from(rows.len()).unwrap().to_le_bytes();
        [OLD_MAGIC, &[0], &count, &entries, &strings].concat()
    }

    #[test]
    fn the_old_format_alone_and_with_the_new_one_behind_it() {
        let rows = [("libb.so.1", "/b", 3, 0), ("liba.so.1", "/a", 3, 0)];
        check(&old(&rows), "liba.so.1", 3, &[], Some("/a"));
        check(&old(&rows), "libb.so.1", 3, &[], Some("/b"));
        check(&old(&rows), "libc.so.1", 3, &[], None);
        // Three entries end at 52, so the alignment matters.
        for align in [8, 4] {
            let mut both = old(&[("x", "/x", 3, 0)]);
            both.truncate(OLD_HEADER + OLD_ENTRY);
            both.resize(both.len().next_multiple_of(align), 0);
            both.extend(new(ROWS, HWCAPS, ENDIAN_LITTLE));
            check(&both, "liba.so.9", 0x303, &[], Some("/liba.so.9"));
        }
    }

    #[test]
    fn no_change_of_a_byte_panics() {
        let names = ["libz.so.1", "liba.so.9", "q"].map(OsStr::new);
        for good in [new(ROWS, HWCAPS, ENDIAN_LITTLE), old(ROWS)] {
            for at in 0..good.len() {
                for value in [0, 0x7f, 0xff] {
                    let mut bytes = good.clone();
                    bytes[at] = value;
                    for bytes in [bytes, good[..at].to_vec()] {
                        let Ok(cache) = LdCache::parse(bytes) else { continue };
                        for name in names {
                            cache.lookup(name, &[0x303], HWCAPS);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_names() {
        let check = |left: &str, right: &str, expected| {
            assert_eq!(compare(left.as_bytes(), right.as_bytes()), expected, "{left} {right}");
        };
        check("liba.so.10", "liba.so.9", Ordering::Greater);
        check("liba.so.1", "liba.so.01", Ordering::Equal);
        check("liba", "liba.so", Ordering::Less);
        check("liba1", "liba.so", Ordering::Greater);
        check("liba1", "liba", Ordering::Greater);
        check("a", "b", Ordering::Less);
    }
}
