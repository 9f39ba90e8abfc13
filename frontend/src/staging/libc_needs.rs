//! The C library that a program needs. Symbol versions alone show whether a node's own is new enough.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The prefix of glibc's symbol versions.
pub(super) const GLIBC: &str = "GLIBC_";

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
        let text = name.as_bytes().strip_prefix(GLIBC.as_bytes())?;
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

/// The sonames of the family, without the loaders. None ever changes: the versions of symbols do.
const FAMILY: &[&[u8]] = &[
    b"libc.so.6",
    b"libm.so.6",
    b"libmvec.so.1",
    b"libpthread.so.0",
    b"libdl.so.2",
    b"librt.so.1",
    b"libresolv.so.2",
    b"libnsl.so.1",
    b"libutil.so.1",
    b"libanl.so.1",
    b"libBrokenLocale.so.1",
    b"libthread_db.so.1",
    b"libc_malloc_debug.so.0",
    b"libcidn.so.1",
    b"libnss_compat.so.2",
    b"libnss_db.so.2",
    b"libnss_dns.so.2",
    b"libnss_files.so.2",
    b"libnss_hesiod.so.2",
    b"libnss_nis.so.2",
    b"libnss_nisplus.so.2",
];

/// Whether a soname is one of glibc's: the loader's, libc's, or that of a library built with them. Other packages use
/// some of these names, too. Only glibc's libraries also define versions of [`GLIBC`].
pub(super) fn is_glibc_soname(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let loaders: [&[u8]; 3] = [b"ld-linux", b"ld64.so", b"ld.so"];
    FAMILY.contains(&name) || loaders.iter().any(|loader| name.starts_with(loader))
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
        let check = |name: &str, expected| assert_eq!(is_glibc_soname(name.as_ref()), expected, "{name}");
        for name in ["libc.so.6", "libm.so.6", "libnss_files.so.2", "ld-linux-x86-64.so.2", "ld64.so.2"] {
            check(name, true);
        }
        for name in [
            "libcrypt.so.1",
            "libc++.so.1",
            "libnss_sss.so.2",
            "libmpi.so.40",
            "ld",
            "libstdc++.so.6",
            "libnsl.so.2",
            "librt.so.20",
            "libutil.so",
        ] {
            check(name, false);
        }
    }
}
