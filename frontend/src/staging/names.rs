//! Hash tables whose keys are names or paths of files.
//!
//! One program causes some thousand lookups in such a table, mostly of about a dozen characters. The standard
//! library's hash resists keys that an attacker chooses, and would take most of that time. Here every key belongs to
//! an existing file. An attacker would have to create as many files, and their number alone would slow the search as
//! much.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by name or path, as spelled.
pub(super) type ByName<T> = HashMap<OsString, T, BuildHasherDefault<Mixer>>;

/// Hashes eight bytes at a time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mixer(u64);

/// Odd, with bits all over the word, so that every byte affects all higher bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // Tables use the lowest bits, but the highest ones depend on all bytes.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn names_that_are_alike_come_to_different_places() {
        let names = (0..1000).flat_map(|n| [format!("lib{n}.so.6"), format!("libboost_{n}.so.1.74.0")]);
        let builder = BuildHasherDefault::<Mixer>::default();
        // The slots of a table with two thousand entries.
        let places: BTreeSet<u64> = names.map(|it| builder.hash_one(OsStr::new(&it)) % 4096).collect();
        assert!(places.len() > 1400, "{} places for 2000 names", places.len());
    }

    #[test]
    fn names_are_found_again() {
        let mut table = ByName::default();
        for name in ["", "a", "libc.so.6", "libc.so.60", "12345678", "/usr/lib/x86_64-linux-gnu/libc.so.6"] {
            assert!(table.insert(name.into(), name.len()).is_none());
            assert_eq!(table.get(OsStr::new(name)), Some(&name.len()));
        }
        assert_eq!(table.get(OsStr::new("libc.so")), None);
    }
}
