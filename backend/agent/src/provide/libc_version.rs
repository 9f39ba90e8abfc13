//! Versions of the C library, and the newest version that a file names.

use std::io::{self, Read};

use super::scan::scan;

/// Prefix of a version's name.
const PREFIX: &[u8] = b"GLIBC_";

/// Longest name of a version with its end, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// A version: 2.36, or 2.2.5.
pub(super) type LibcVersion = [u32; 3];

/// The newest version whose name is in these bytes.
pub(super) fn find_newest(bytes: impl Read) -> io::Result<Option<LibcVersion>> {
    let mut newest = None;
    scan(bytes, MAX_NAME_BYTES, |piece| {
        for start in find_prefixes(piece) {
            let name = &piece[start..piece.len().min(start + MAX_NAME_BYTES)];
            // A name that is cut off here is whole in the next piece.
            let end = name.iter().position(|byte| *byte == 0);
            newest = newest.max(end.and_then(|end| parse_version(&name[..end])));
        }
        true
    })?;
    Ok(newest)
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
        let check = |bytes: &[u8], expected: Option<LibcVersion>| {
            assert_eq!(find_newest(bytes).unwrap(), expected);
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
