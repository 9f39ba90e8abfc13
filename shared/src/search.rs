//! The folders in which programs are searched by name: all of gantry's searches go by this one.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The absolute folders of a `PATH`, in their order. An empty or relative part means the directory that a process happens to be in, in which others may have put
/// anything: it is skipped.
pub fn folders(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(path).filter(|folder| folder.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_relative_parts_are_skipped() {
        let check = |path: &str, expected: &[&str]| {
            let found: Vec<PathBuf> = folders(OsStr::new(path)).collect();
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{path:?}");
        };
        check("/a:/b c", &["/a", "/b c"]);
        check(":/a::bin:./b:..:/c:", &["/a", "/c"]);
        check("", &[]);
    }
}
