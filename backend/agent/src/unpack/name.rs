//! Names of files from outside: parses and checks them before anything is changed. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Longest name of one file or directory, in bytes (`NAME_MAX`).
const MAX_PART_BYTES: usize = 255;

/// Most parts of a name. Every part costs a call for every file.
pub const MAX_PARTS: usize = 64;

/// Longest name, in bytes. With a session's directory in front it is still a path that programs can use (`PATH_MAX`).
const MAX_BYTES: usize = 3072;

/// The parts of a relative name: none is empty, `.` or `..`, or has a `/` or NUL.
///
/// # Errors
/// What is wrong with it, to be put after "the name ...".
pub fn parse_parts(name: &[u8]) -> Result<Vec<&OsStr>, &'static str> {
    if name.is_empty() {
        return Err("is empty");
    }
    if name.contains(&0) {
        return Err("has a NUL");
    }
    if name.starts_with(b"/") {
        return Err("is an absolute path");
    }
    if name.len() > MAX_BYTES {
        return Err("is too long");
    }
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" => return Err("has an empty part"),
            b"." | b".." => return Err("has a part `.` or `..`"),
            long if long.len() > MAX_PART_BYTES => return Err("has a part that is too long"),
            part => parts.push(OsStr::from_bytes(part)),
        }
    }
    if parts.len() > MAX_PARTS { Err("has too many parts") } else { Ok(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_names_are_taken() {
        let check = |name: &[u8], expected: Result<usize, &str>| {
            assert_eq!(parse_parts(name).map(|parts| parts.len()), expected, "{}", name.escape_ascii());
        };
        check(b"a", Ok(1));
        check(b"lib/a b/...", Ok(3));
        check(&[b'x'; 255], Ok(1));
        check(&[&b"a"[..]; 64].join(&b'/'), Ok(64));
        check(b"", Err("is empty"));
        check(b"/a", Err("is an absolute path"));
        check(b"a\0b", Err("has a NUL"));
        check(b"a//b", Err("has an empty part"));
        check(b"a/", Err("has an empty part"));
        check(b"./a", Err("has a part `.` or `..`"));
        check(b"a/../b", Err("has a part `.` or `..`"));
        check(&[b'x'; 256], Err("has a part that is too long"));
        check(&[&b"a"[..]; 65].join(&b'/'), Err("has too many parts"));
        check(&[&[b'x'; 200][..]; 16].join(&b'/'), Err("is too long"));
    }
}
