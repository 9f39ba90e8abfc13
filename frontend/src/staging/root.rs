//! Paths inside another system than the running one: a container's folder, another machine's root.
//!
//! An absolute symbolic link inside refers to a place inside, and `..` does not lead out. A path of the other system
//! must never be looked up in the running one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The root of paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Root(Option<PathBuf>);

impl Root {
    /// `None`: this system.
    pub(super) fn new(sysroot: Option<PathBuf>) -> Self {
        Self(sysroot)
    }

    /// The running system, on the processor that will be used.
    pub(super) fn is_ours(&self) -> bool {
        self.0.is_none()
    }

    /// The path that opens a file of that system from here. For another system, no part of the result is a link.
    ///
    /// # Errors
    /// It does not exist, or links are circular.
    pub(super) fn locate(&self, path: &Path) -> io::Result<PathBuf> {
        match &self.0 {
            None => Ok(path.to_owned()),
            Some(root) => Ok(root.join(walk(root, path)?)),
        }
    }

    /// The path without links, as that system sees it.
    ///
    /// # Errors
    /// It does not exist, or links are circular.
    pub(super) fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        match &self.0 {
            None => std::fs::canonicalize(path),
            Some(root) => Ok(Path::new("/").join(walk(root, path)?)),
        }
    }
}

/// Follows all links and returns the path relative to `root`.
fn walk(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut done = PathBuf::new();
    let mut rest = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        let here = root.join(&next);
        let kind = std::fs::symlink_metadata(&here)?.file_type();
        if !kind.is_symlink() {
            if !rest.is_empty() && !kind.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            done = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = std::fs::read_link(&here)?;
        if target.is_absolute() {
            done = PathBuf::new();
        }
        let mut ahead = parts(&target);
        ahead.append(&mut rest);
        rest = ahead;
    }
    Ok(done)
}

/// The names and `..` of a path; the prefix before the first name does not matter inside a root.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("usr/lib")).unwrap();
        std::fs::write(root.join("usr/lib/a"), "").unwrap();
        std::fs::write(folder.path().join("outside"), "").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr/lib/a", root.join("absolute")).unwrap();
        symlink("../../../../outside", root.join("usr/lib/out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let inside = Root::new(Some(root.clone()));
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(inside.locate(Path::new(path)).ok(), expected.map(|it| root.join(it)), "{path}");
        };
        check("/lib/a", Some("usr/lib/a"));
        check("/absolute", Some("usr/lib/a"));
        check("/../../lib/./../lib/a", Some("usr/lib/a"));
        check("/usr/lib/out", None);
        check("/loop", None);
        check("/lib/a/b", None);
        check("/no", None);
        assert_eq!(inside.real_path(Path::new("lib/a")).unwrap(), Path::new("/usr/lib/a"));
    }
}
