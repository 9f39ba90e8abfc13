//! `/etc/ld.so.conf`: the folders that ldconfig would put into the cache.
//!
//! A loader does not read it. It is used for another system without a cache, such as an unpacked image.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::glob::is_match_with_sets;

use super::root::Root;

/// Where it is.
pub(super) const LD_CONF: &str = "/etc/ld.so.conf";

/// The most files that include each other, and the most bytes of one.
const MAX_FILES: usize = 256;
const MAX_BYTES: u64 = 1 << 20;

/// One meaningful line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Folder(PathBuf),
    /// A pattern, relative to the folder of the including file.
    Include(PathBuf),
}

/// All folders, in order.
pub(super) fn read_ld_conf(root: &Root) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut left = MAX_FILES;
    read_file(root, Path::new(LD_CONF), &mut left, &mut folders);
    folders
}

fn read_file(root: &Root, path: &Path, left: &mut usize, folders: &mut Vec<PathBuf>) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    let text = root.locate(path).ok().filter(|file| {
        std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.len() <= MAX_BYTES)
    });
    let Some(Ok(text)) = text.map(std::fs::read) else { return };
    for line in parse_ld_conf(&text) {
        match line {
            Line::Folder(folder) => folders.push(folder),
            Line::Include(pattern) => {
                let base = path.parent().unwrap_or(Path::new("/"));
                for included in find_matches(root, &base.join(pattern)) {
                    read_file(root, &included, left, folders);
                }
            }
        }
    }
}

fn parse_ld_conf(text: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        match word {
            b"" | b"hwcap" => {}
            b"include" => {
                let patterns = line.split(u8::is_ascii_whitespace).skip(1).filter(|it| !it.is_empty());
                lines.extend(patterns.map(|pattern| Line::Include(path(pattern))));
            }
            _ => {
                // "FOLDER=libc6" was once a way to name the kind of library.
                let folder = line.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii_end();
                lines.push(Line::Folder(path(folder)));
            }
        }
    }
    lines
}

/// The files that match a pattern, sorted. The match goes part by part.
fn find_matches(root: &Root, pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        let is_pattern = part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
        found = match is_pattern {
            false => found.into_iter().map(|path| path.join(part)).collect(),
            true => found.iter().flat_map(|folder| list_matches(root, folder, part)).collect(),
        };
    }
    found
}

fn list_matches(root: &Root, folder: &Path, pattern: &OsStr) -> Vec<PathBuf> {
    let Some(Ok(entries)) = root.locate(folder).ok().map(std::fs::read_dir) else { return Vec::new() };
    let is_meant = |name: &OsStr| {
        let is_hidden = name.as_bytes().starts_with(b".") && !pattern.as_bytes().starts_with(b".");
        !is_hidden && is_match_with_sets(pattern.as_bytes(), name.as_bytes())
    };
    let names = entries.flatten().map(|entry| entry.file_name()).filter(|name| is_meant(name));
    let mut names: Vec<_> = names.map(|name| folder.join(name)).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check =
            |text: &str, expected: &[Line]| assert_eq!(parse_ld_conf(text.as_bytes()), expected, "{text}");
        check("# nothing\n\n  /a/b # there\n", &[Line::Folder("/a/b".into())]);
        check(
            "include x/*.conf\t/y.conf",
            &[Line::Include("x/*.conf".into()), Line::Include("/y.conf".into())],
        );
        check("hwcap 0 nosegneg\n/c=libc6", &[Line::Folder("/c".into())]);
        check("/a b", &[Line::Folder("/a b".into())]);
    }

    #[test]
    fn files_include_files_and_circles_end() {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        std::fs::create_dir_all(etc.join("ld.so.conf.d")).unwrap();
        std::fs::write(etc.join("ld.so.conf"), "include ld.so.conf.d/*.conf\n/last\n").unwrap();
        std::fs::write(etc.join("ld.so.conf.d/b.conf"), "/b\n").unwrap();
        std::fs::write(etc.join("ld.so.conf.d/a.conf"), "/a\n").unwrap();
        std::fs::write(etc.join("ld.so.conf.d/.c.conf"), "/c\n").unwrap();
        let root = Root::new(Some(folder.path().to_owned()));
        assert_eq!(read_ld_conf(&root), ["/a", "/b", "/last"].map(PathBuf::from));
        std::fs::write(etc.join("ld.so.conf.d/b.conf"), "include /etc/ld.so.conf\n").unwrap();
        assert!(read_ld_conf(&root).contains(&"/last".into()));
    }
}
