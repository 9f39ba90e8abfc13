//! The folders of a `PATH`: all of gantry's searches use these.

use std::ffi::OsStr;
use std::path::{Component, PathBuf};

/// The absolute folders of a `PATH`, in their order. An empty or relative part refers to the current directory of the
/// process, where others may have placed files: it is skipped.
pub fn folders(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(path).filter(|folder| folder.is_absolute())
}

/// As [`folders`], with relative parts that have a name, such as `./src`: for a program that a tool stages under its
/// own `PATH`. Parts that lead to the current directory itself or above it are skipped.
pub fn named_folders(path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let is_named = |folder: &PathBuf| folder.components().any(|part| matches!(part, Component::Normal(_)));
    std::env::split_paths(path).filter(move |folder| folder.is_absolute() || is_named(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_parts_with_a_name_are_searched_where_a_tool_names_its_own_programs() {
        let found: Vec<PathBuf> = named_folders(OsStr::new(":/a::bin:./src/:.:..:./..:/:")).collect();
        assert_eq!(found, ["/a", "bin", "./src/", "/"].map(PathBuf::from));
    }

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
