//! POSIX extended headers of an entry: records `LENGTH KEY=VALUE\n`. Pure.
//!
//! Source: pax(1), "pax Extended Header".

/// Values that override the next entry's own header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) name: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
}

/// Keys for times, owners and character sets: gantry keeps none of these.
const IGNORED: [&[u8]; 9] =
    [b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"comment", b"hdrcharset"];

/// Reads all records. Refuses records that would change the kind of an entry, and every key that occurs twice.
pub(super) fn parse_pax(mut bytes: &[u8]) -> Result<Pax, &'static str> {
    let mut pax = Pax::default();
    while !bytes.is_empty() {
        let (record, rest) = split_record(bytes).ok_or("has a damaged extension")?;
        bytes = rest;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or("has a damaged extension")?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let place = match key {
            b"path" => &mut pax.name,
            b"linkpath" => &mut pax.link,
            key if IGNORED.contains(&key) => continue,
            key if key.starts_with(b"GNU.sparse.") => return Err("is a sparse file"),
            _ => return Err("has an extension that is not unpacked"),
        };
        if place.replace(value.to_vec()).is_some() {
            return Err("has an extension twice");
        }
    }
    Ok(pax)
}

/// The next record without its length and its newline, and the bytes after it.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().take(10).position(|byte| *byte == b' ')?;
    let digits = &bytes[..space];
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    Some((record, &bytes[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_names_or_nothing_of_interest() {
        type Names<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);
        let check = |bytes: &[u8], expected: Result<Names<'_>, &str>| {
            let pax = parse_pax(bytes);
            let found = pax.as_ref().map(|pax| (pax.name.as_deref(), pax.link.as_deref()));
            assert_eq!(found.map_err(|why| *why), expected, "{}", bytes.escape_ascii());
        };
        check(b"", Ok((None, None)));
        check(b"10 path=a\n18 linkpath=../b=\n", Ok((Some(b"a"), Some(b"../b="))));
        check(b"20 mtime=1350244992\n8 path=\n", Ok((Some(b""), None)));
        check(b"12 path=a\nb\n", Ok((Some(b"a\nb"), None)));
        check(b"10 path=a\n10 path=b\n", Err("has an extension twice"));
        check(b"21 GNU.sparse.major=1\n", Err("has a damaged extension"));
        check(b"22 GNU.sparse.major=1\n", Err("is a sparse file"));
        check(b"13 size=1000\n", Err("has an extension that is not unpacked"));
        for damaged in [
            &b"x"[..],
            b"10 path=a",
            b"99 path=a\n",
            b"0 \n",
            b"2 \n",
            b"-1 path=a\n",
            b"8 path\n",
            b"99999999999999999999 path=a\n",
            b"10 path=a\nx",
            b"+10 path=a\n",
            b"11 path=a\n",
            b" path=a\n",
        ] {
            check(damaged, Err("has a damaged extension"));
        }
    }
}
