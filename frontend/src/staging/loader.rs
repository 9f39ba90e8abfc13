//! The built-in settings of a loader: its default folders, `$LIB`, and the processor-specific subdirectories that it
//! knows.
//!
//! Distributions choose these when they build the loader, so its file is the only reliable source. The file is read,
//! not run. Missing settings come from the table of architectures.

use std::path::{Path, PathBuf};

use super::arch::{Arch, Facts};

/// Most bytes of a loader; real ones have some hundred kilobytes.
pub(super) const MAX_LOADER: u64 = 16 << 20;

/// Built-in settings of a loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loader {
    /// Default folders, in order.
    pub(super) folders: Vec<PathBuf>,
    /// `$LIB`.
    pub(super) lib: String,
    /// It looks into `glibc-hwcaps` (glibc 2.33 and later).
    pub(super) has_hwcaps: bool,
    /// It looks into the older subdirectories (glibc before 2.37).
    pub(super) has_legacy: bool,
}

/// Finds the settings in a loader's file. Missing ones, or all for no file, come from the table.
pub(super) fn parse_loader(bytes: Option<&[u8]>, arch: Arch) -> Loader {
    let facts = arch.facts();
    let bytes = bytes.unwrap_or_default();
    let folders = match parse_folders(bytes) {
        found if found.is_empty() => guess_folders(facts),
        found => found,
    };
    let has_hwcaps = bytes.is_empty() || contains(bytes, b"glibc-hwcaps");
    let has_legacy = !bytes.is_empty() && (!has_hwcaps || contains(bytes, b"Legacy HWCAP subdirectories"));
    let lib = folders.first().and_then(|folder| lib_of(folder));
    let lib = lib.unwrap_or_else(|| facts.map_or("lib", |row| row.lib).to_owned());
    Loader { folders, lib, has_hwcaps, has_legacy }
}

/// The first run of consecutive texts in the file that are library folders, with a slash at both ends.
fn parse_folders(bytes: &[u8]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for text in bytes.split(|byte| *byte == 0) {
        match std::str::from_utf8(text).ok().filter(|text| is_folder(text)) {
            Some(folder) => folders.push(PathBuf::from(folder.trim_end_matches('/'))),
            None if folders.is_empty() => {}
            None => break,
        }
    }
    folders
}

fn is_folder(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.+".contains(&byte);
    (6..256).contains(&text.len())
        && text.starts_with('/')
        && text.ends_with('/')
        && text.contains("/lib")
        && text.bytes().all(is_plain)
        || text == "/lib/"
}

fn guess_folders(facts: Option<&Facts>) -> Vec<PathBuf> {
    let (lib, multiarch) = facts.map_or(("lib", ""), |row| (row.lib, row.multiarch));
    let mut folders = Vec::new();
    for name in [&format!("lib/{multiarch}"), lib, "lib"] {
        for base in ["/", "/usr"] {
            let folder = Path::new(base).join(name.trim_end_matches('/'));
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// Derives `$LIB` from the first default folder: `lib64`, or in Debian's layout with the architecture.
fn lib_of(folder: &Path) -> Option<String> {
    let inner = folder.strip_prefix("/usr").or_else(|_| folder.strip_prefix("/")).ok()?;
    let lib = if inner.starts_with("lib") { inner } else { Path::new(inner.file_name()?) };
    Some(lib.to_str()?.to_owned())
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    // Search for the first byte alone: this is much faster than comparing at every offset.
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == text[0]) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_settings_are_found() {
        let check = |bytes: &[u8], folders: &[&str], lib: &str, has: (bool, bool)| {
            let found = parse_loader(Some(bytes), Arch::NATIVE);
            assert_eq!(found.folders, folders.iter().map(PathBuf::from).collect::<Vec<_>>());
            assert_eq!((found.lib.as_str(), (found.has_hwcaps, found.has_legacy)), (lib, has));
        };
        check(
            b"x\0/proc/\0/lib/x86_64-linux-gnu/\0/usr/lib/x86_64-linux-gnu/\0/lib/\0/usr/lib/\0\0/lib/z/\0glibc-hwcaps",
            &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"],
            "lib/x86_64-linux-gnu",
            (true, false),
        );
        check(
            b"\0/lib64/\0/usr/lib64/\0Legacy HWCAP subdirectories under\0 glibc-hwcaps",
            &["/lib64", "/usr/lib64"],
            "lib64",
            (true, true),
        );
        check(b"\0/usr/lib/\0", &["/usr/lib"], "lib", (false, true));
        check(b"\0/opt/glibc/lib64/\0", &["/opt/glibc/lib64"], "lib64", (false, true));
    }

    #[test]
    fn without_a_file_both_layouts_are_tried() {
        let arch = Arch { is_64: true, is_little: true, machine: 62 };
        let found = parse_loader(None, arch);
        let expected = [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/lib",
            "/usr/lib",
        ];
        assert_eq!(found.folders, expected.map(PathBuf::from));
        assert!(found.has_hwcaps && !found.has_legacy);
    }
}
