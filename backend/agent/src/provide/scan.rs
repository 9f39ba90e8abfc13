//! Searches for texts in files that are too large for memory.

use std::io::{self, Read};

/// Size of a piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Whether the bytes contain that text.
pub(crate) fn holds(bytes: impl Read, text: &[u8]) -> io::Result<bool> {
    let mut found = false;
    scan(bytes, text.len(), |piece| {
        found = piece.windows(text.len().max(1)).any(|window| window == text);
        !found
    })?;
    Ok(found)
}

/// Passes all bytes to `look` in pieces, as long as `look` wants more. Any text of at most `longest` bytes is whole in
/// at least one piece.
pub(super) fn scan(
    mut bytes: impl Read,
    longest: usize,
    mut look: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES + longest];
    let mut kept = 0;
    loop {
        let read = match bytes.read(&mut buffer[kept..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let filled = kept + read;
        if read == 0 || !look(&buffer[..filled]) {
            return Ok(());
        }
        kept = filled.min(longest.saturating_sub(1));
        buffer.copy_within(filled - kept..filled, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_it_lies() {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let length = to.len().min(3);
                self.0.read(&mut to[..length])
            }
        }
        let check = |bytes: &[u8], expected: bool| {
            assert_eq!(holds(bytes, b"needle\0").unwrap(), expected);
            assert_eq!(holds(Slow(bytes), b"needle\0").unwrap(), expected);
        };
        check(b"", false);
        check(b"needle", false);
        check(b"needle\0", true);
        check(b"neeneedle\0x", true);
        for before in 65_520..65_550 {
            assert!(holds(&[&vec![b'n'; before][..], b"needle\0"].concat()[..], b"needle\0").unwrap());
        }
    }
}
