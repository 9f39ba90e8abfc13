//! A process's environment in the format of `/proc/PID/environ`: entries `NAME=VALUE`, each with a zero byte at its end.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// The entries of an environment. The last one may lack its zero byte: then the environment was cut off there.
pub fn entries(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = environment;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        // A search for processes reads every environment of a machine. This call compares many bytes at a time, `split` one.
        let entry = CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes);
        rest = rest.get(entry.len() + 1..).unwrap_or_default();
        Some(entry)
    })
}

/// The value of a variable. Of one that is set twice the first counts, as it does for programs.
#[must_use]
pub fn value(environment: &[u8], name: impl AsRef<OsStr>) -> Option<&[u8]> {
    let name = name.as_ref().as_bytes();
    entries(environment).find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"A=1\0AB=2\0A=3\0\0EMPTY=\0LAST=cut";
        let found = ["A", "AB", "B", "EMPTY", "LAST", ""].map(|name| value(environment, name));
        assert_eq!(found, [Some(&b"1"[..]), Some(b"2"), None, Some(b""), Some(b"cut"), None]);
    }

    #[test]
    fn entries_are_those_between_zero_bytes() {
        for (environment, expected) in
            [(&b""[..], &[][..]), (b"\0", &[&b""[..]]), (b"A=1\0\0B", &[b"A=1", b"", b"B"])]
        {
            assert_eq!(entries(environment).collect::<Vec<_>>(), expected);
        }
    }
}
