//! The C library that a program needs. Symbol versions alone show whether a node's own is new enough.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A version of glibc's symbols, such as 2.34.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlibcVersion {
    /// Always 2 so far.
    pub major: u32,
    /// The part that grows.
    pub minor: u32,
    /// Only in very old ones; otherwise 0.
    pub patch: u32,
}

impl GlibcVersion {
    /// Parses a symbol version such as GLIBC_2.34. None for others, and for glibc's private ones.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let text = name.as_bytes().strip_prefix(b"GLIBC_")?;
        // This version marks an ability of the loader; glibc has it since 2.36.
        if text == b"ABI_DT_RELR" {
            return Some(Self { major: 2, minor: 36, patch: 0 });
        }
        let mut numbers = text.split(|byte| *byte == b'.').map(parse_number);
        let version = Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            patch: numbers.next().unwrap_or(Some(0))?,
        };
        numbers.next().is_none().then_some(version)
    }
}

/// Parses without an allocation: a program and its libraries name some thousand versions.
fn parse_number(digits: &[u8]) -> Option<u32> {
    let append = |number: u32, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, append) }
}

impl fmt::Display for GlibcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// The family without `lib` and without the part after the first dot.
const FAMILY: &[&[u8]] = &[
    b"c",
    b"m",
    b"mvec",
    b"pthread",
    b"dl",
    b"rt",
    b"resolv",
    b"nsl",
    b"util",
    b"anl",
    b"BrokenLocale",
    b"thread_db",
    b"c_malloc_debug",
    b"memusage",
    b"pcprofile",
    b"SegFault",
    b"cidn",
];

/// glibc's own name service modules. Modules of other packages do not belong to the family.
const NAME_SERVICES: &[&[u8]] = &[b"compat", b"db", b"dns", b"files", b"hesiod", b"nis", b"nisplus"];

/// Whether a library belongs to glibc, by its name or path: the loader, libc, and the libraries built with them.
pub(super) fn is_glibc_family(library: impl AsRef<OsStr>) -> bool {
    let path = library.as_ref().as_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so") || name.starts_with(b"ld.so") {
        return true;
    }
    let stem = name.strip_prefix(b"lib").and_then(|rest| rest.split(|byte| *byte == b'.').next());
    let Some(stem) = stem else { return false };
    // Before glibc 2.34 file names had the version, such as libc-2.31.so.
    let end = stem.windows(2).rposition(|pair| pair == b"-2").unwrap_or(stem.len());
    let stem = &stem[..end];
    FAMILY.contains(&stem) || stem.strip_prefix(b"nss_").is_some_and(|it| NAME_SERVICES.contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let check = |name: &str, expected: Option<&str>| {
            let version = GlibcVersion::parse(OsStr::new(name)).map(|it| it.to_string());
            assert_eq!(version.as_deref(), expected, "{name}");
        };
        check("GLIBC_2.34", Some("2.34"));
        check("GLIBC_2.2.5", Some("2.2.5"));
        check("GLIBC_ABI_DT_RELR", Some("2.36"));
        check("GLIBC_PRIVATE", None);
        check("GLIBC_2", None);
        check("GLIBC_2.3.4.5", None);
        check("GLIBC_2.", None);
        check("GLIBC_2.x", None);
        check("GLIBC_2.4294967296", None);
        check("GLIBCXX_3.4", None);
        let version = |name: &str| GlibcVersion::parse(OsStr::new(name));
        assert!(version("GLIBC_2.9") < version("GLIBC_2.10"));
    }

    #[test]
    fn the_family() {
        let check = |name: &str, expected| assert_eq!(is_glibc_family(name), expected, "{name}");
        for name in [
            "/lib/libc.so.6",
            "libc-2.31.so",
            "libm.so.6",
            "libnss_files.so.2",
            "/lib64/ld-linux-x86-64.so.2",
            "ld64.so.2",
        ] {
            check(name, true);
        }
        for name in [
            "libcrypt.so.1",
            "libc++.so.1",
            "libnss_sss.so.2",
            "libmpi.so.40",
            "ld",
            "libstdc++.so.6",
            "libnsl_x.so",
        ] {
            check(name, false);
        }
    }
}
