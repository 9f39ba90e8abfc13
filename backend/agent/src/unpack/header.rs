//! One header of a tar archive. Pure. Source: tar(5) of FreeBSD, "Pre-POSIX" and "GNU tar".

/// Bytes of a header; contents are padded to a multiple of it.
pub(super) const BLOCK: usize = 512;

/// The kind of data that a header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    File,
    /// The content of an earlier file.
    Again,
    /// The next entry's name, if it is too long for its header.
    LongName,
    /// The next link's text, if it is too long for its header.
    LongLink,
    /// Something that is not unpacked, with the reason.
    Unwanted(&'static str),
}

/// The fields of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) announced: Announced,
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    pub(super) executable: bool,
    /// Time of the last change, in seconds since 1970.
    pub(super) modified: u64,
}

/// Reads a header that is not all zeros.
pub(super) fn parse_header(block: &[u8; BLOCK]) -> Result<Header, &'static str> {
    if &block[257..265] != b"ustar  \0" {
        return Err("a header is malformed");
    }
    if parse_number(&block[148..156])? != checksum(block) {
        return Err("the checksum of a header is wrong");
    }
    let announced = match block[156] {
        b'0' => Announced::File,
        b'1' => Announced::Again,
        b'L' => Announced::LongName,
        b'K' => Announced::LongLink,
        b'2' => Announced::Unwanted("is a symbolic link"),
        b'3' | b'4' => Announced::Unwanted("is a device"),
        b'5' => Announced::Unwanted("is a directory"),
        b'6' => Announced::Unwanted("is a named pipe"),
        b'S' => Announced::Unwanted("is a sparse file"),
        b'x' | b'g' => Announced::Unwanted("is an extension that is not unpacked"),
        _ => Announced::Unwanted("is of a kind that is not unpacked"),
    };
    let mode = parse_number(&block[100..108])?;
    let (name, link) = (text(&block[..100]).to_vec(), text(&block[157..257]).to_vec());
    let (size, modified) = (parse_number(&block[124..136])?, parse_number(&block[136..148])?);
    Ok(Header { announced, name, link, size, executable: mode & 0o111 != 0, modified })
}

/// The text up to the first NUL, if there is one.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits; or, with the first bit set, a binary number. Sizes above 8 GiB are written that way.
fn parse_number(field: &[u8]) -> Result<u64, &'static str> {
    const WRONG: &str = "a number in a header is malformed";
    if let Some((first @ 0x80.., rest)) = field.split_first() {
        let number = rest.iter().try_fold(u64::from(first & 0x7f), |number, byte| {
            number.checked_mul(256).map(|number| number | u64::from(*byte))
        });
        return number.ok_or(WRONG);
    }
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    let (digits, padding) = digits.split_at(end);
    if padding.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err(WRONG);
    }
    digits.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'7' => number.checked_mul(8).map(|number| number | u64::from(byte - b'0')).ok_or(WRONG),
        _ => Err(WRONG),
    })
}

/// The sum of all bytes, with spaces in place of the checksum itself.
fn checksum(block: &[u8; BLOCK]) -> u64 {
    let sum: u64 = block.iter().copied().map(u64::from).sum();
    let own: u64 = block[148..156].iter().copied().map(u64::from).sum();
    sum - own + 8 * u64::from(b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        let check = |field: &[u8], expected: Option<u64>| {
            assert_eq!(parse_number(field).ok(), expected, "{}", field.escape_ascii());
        };
        check(b"0000644\0", Some(0o644));
        check(b"  644 \0\0", Some(0o644));
        check(b"77777777777\0", Some(0o77_777_777_777));
        check(b"777777777777", Some(0o777_777_777_777));
        check(b"\0\0\0\0", Some(0));
        check(b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Some(0x2_0000_0000));
        check(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", Some(u64::MAX));
        check(b"\x80\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff", None);
        check(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None);
        check(b"-0000001", None);
        check(b"00008\0", None);
        check(b"12\x0034\0", None);
    }

    #[test]
    fn a_header_with_any_byte_changed_is_noticed() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_path("lib/x").unwrap();
        header.set_size(77);
        header.set_mode(0o4755);
        header.set_mtime(1_234_567);
        header.set_cksum();
        let good = *header.as_bytes();
        let expected = Header {
            announced: Announced::File,
            name: b"lib/x".to_vec(),
            link: Vec::new(),
            size: 77,
            executable: true,
            modified: 1_234_567,
        };
        assert_eq!(parse_header(&good), Ok(expected));
        for at in 0..BLOCK {
            let mut bad = good;
            bad[at] ^= 1;
            // The last byte of the checksum is padding.
            assert!(parse_header(&bad).is_err() || at == 155, "byte {at}");
        }
    }
}
