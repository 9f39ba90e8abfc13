//! Versions of the C library, and whether a file names one that is new enough.

use std::io::{self, Read};

use super::scan::scan;

/// Prefix of a version's name.
const PREFIX: &[u8] = b"GLIBC_";

/// Longest name of a version with its end, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// A version: 2.36, or 2.2.5.
pub(super) type LibcVersion = [u32; 3];

/// Whether a version that is at least `needed` has its name in these bytes. Reads no further than to the first such
/// name: libraries have their names at the beginning.
pub(super) fn has_version(bytes: impl Read, needed: LibcVersion) -> io::Result<bool> {
    let mut found = false;
    scan(bytes, MAX_NAME_BYTES, |piece| {
        found = find_prefixes(piece).any(|start| {
            let name = &piece[start..piece.len().min(start + MAX_NAME_BYTES)];
            // A name that is cut off here is whole in the next piece.
            let end = name.iter().position(|byte| *byte == 0);
            end.and_then(|end| parse_version(&name[..end])).is_some_and(|version| version >= needed)
        });
        !found
    })?;
    Ok(found)
}

/// Where [`PREFIX`] begins in these bytes, in order.
///
/// C libraries have 2 MiB, and every node reads its own while the tool waits. So this skips bytes that cannot be part
/// of the prefix (Horspool's search).
fn find_prefixes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(window) = bytes.get(at..at + PREFIX.len()) {
            let begin = at;
            // Move to the next place where the window's last byte could match.
            at += match window[PREFIX.len() - 1] {
                b'C' => 1,
                b'B' => 2,
                b'I' => 3,
                b'L' => 4,
                b'G' => 5,
                _ => 6,
            };
            if window == PREFIX {
                return Some(begin);
            }
        }
        None
    })
}

pub(super) fn parse_version(name: &[u8]) -> Option<LibcVersion> {
    let text = std::str::from_utf8(name.strip_prefix(PREFIX)?).ok()?;
    let mut numbers = text.split('.').map(|number| {
        // Allow no sign: `parse` would accept one.
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<u32>().ok())?
    });
    let version = [numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?];
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_wherever_its_name_lies() {
        let check = |bytes: &[u8], newest: Option<LibcVersion>| {
            assert_eq!(has_version(bytes, [0, 0, 0]).unwrap(), newest.is_some());
            if let Some([first, second, third]) = newest {
                assert!(has_version(bytes, [first, second, third]).unwrap());
                assert!(!has_version(bytes, [first, second, third + 1]).unwrap());
            }
        };
        check(b"", None);
        check(b"GLIBC_2.36", None);
        check(b"xGLIBC_2.36\0GLIBC_2.4\0", Some([2, 36, 0]));
        check(b"GLIBC_GLIBC_2.2.5\0GLIBC_PRIVATE\0", Some([2, 2, 5]));
        check(b"GLIBC_2.36 is no name\0", None);
        check(b"GLIBCGLIBC_2.3\0GLGLIBC_2.4\0_GLIBC_2.5\0", Some([2, 5, 0]));
        for before in 65_520..65_580 {
            check(&[&vec![b'G'; before][..], b"GLIBC_2.36\0"].concat(), Some([2, 36, 0]));
        }
    }

    #[test]
    fn the_rest_of_a_library_is_not_read() {
        let names = [&[0; 1000][..], b"GLIBC_2.2.5\0GLIBC_2.36\0"].concat();
        let mut rest = io::repeat(0).take(2 << 20);
        assert!(has_version(names.chain(&mut rest), [2, 36, 0]).unwrap());
        assert!(rest.limit() > 1 << 20, "{} bytes are left", rest.limit());
    }

    #[test]
    fn every_prefix_is_found_as_by_looking_at_every_place() {
        let letters = [PREFIX, b"x"].concat();
        let (mut seed, mut letter) = (1u64, 0);
        let bytes: Vec<u8> = (0..200_000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Mostly the byte that continues the prefix, so that near matches and matches are frequent.
                let next = usize::try_from(seed >> 33).unwrap();
                letter = if next % 8 < 7 { (letter + 1) % PREFIX.len() } else { next / 8 % letters.len() };
                letters[letter]
            })
            .chain(PREFIX.repeat(3))
            .collect();
        let plain = bytes.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
        let expected: Vec<usize> = plain.map(|(at, _)| at).collect();
        assert!(expected.len() > 1000, "{}", expected.len());
        assert_eq!(find_prefixes(&bytes).collect::<Vec<_>>(), expected);
    }
}
