//! Finds the program of a daemon or a rank on this node.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::search::folders;
use gantry_types::error::{Failure, Kind};
use gantry_types::session_dirs::SessionDirs;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::failure;

/// The search path for an environment without PATH, as in a shell.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a file cannot be started as a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    Missing,
    Directory,
    NotExecutable,
    Unreadable(String),
}

/// Finds a daemon's program: a path relative to the session's root, or a name in the session's `bin` and then in PATH.
///
/// # Errors
/// It does not exist, or cannot be executed.
pub(super) fn find_program(program: &OsStr, dirs: &SessionDirs, search: &OsStr) -> Result<PathBuf, Failure> {
    if program.as_bytes().contains(&b'/') {
        // An absolute path replaces the root it is joined to.
        let path = dirs.root.join(program);
        return match look_at(&path) {
            Ok(()) => Ok(path),
            Err(unfit) => Err(unfit.into_failure(&path)),
        };
    }
    look_up(program, std::iter::once(dirs.bin.clone()).chain(folders(search))).unwrap_or_else(|| {
        let (program, bin, search) = (program.display(), dirs.bin.display(), search.display());
        let message = format!("find the program {program}: it is neither in {bin} nor in PATH ({search})");
        Err(Failure::new(Kind::NotFound, message)
            .with_hint("add it to the session's manifest, or give the path that it has on the nodes"))
    })
}

/// Finds a rank's program in PATH. Relative and empty parts are skipped.
///
/// # Errors
/// It does not exist, or exists only where it may not be executed.
pub(crate) fn find_in_path(program: &OsStr, search: &OsStr) -> Result<PathBuf, Failure> {
    let search = if search.is_empty() { OsStr::new(DEFAULT_PATH) } else { search };
    look_up(program, folders(search)).unwrap_or_else(|| {
        let message =
            format!("find the program {}: it is not in PATH ({})", program.display(), search.display());
        Err(Failure::new(Kind::NotFound, message).with_hint("give its path, or add its folder to PATH"))
    })
}

/// The first file of that name that can be started, or why the first existing one cannot. `None` if there is no such
/// file.
pub(super) fn look_up(
    program: &OsStr,
    dirs: impl Iterator<Item = PathBuf>,
) -> Option<Result<PathBuf, Failure>> {
    let mut first_unfit = None;
    for dir in dirs {
        let path = dir.join(program);
        match look_at(&path) {
            Ok(()) => return Some(Ok(path)),
            Err(Unfit::Missing) => {}
            // As in a shell: go on, but report this if there is no better file.
            Err(unfit) => first_unfit = first_unfit.or(Some((path, unfit))),
        }
    }
    first_unfit.map(|(path, unfit)| Err(unfit.into_failure(&path)))
}

/// Whether the file can be started as a program.
pub(super) fn look_at(path: &Path) -> Result<(), Unfit> {
    use std::io::ErrorKind as E;
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(Unfit::Directory),
        Ok(meta) if !meta.is_file() => Err(Unfit::NotExecutable),
        // The kernel takes access lists and noexec mounts into account.
        Ok(_) => faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS)
            .map_err(|_| Unfit::NotExecutable),
        Err(error) if matches!(error.kind(), E::NotFound | E::NotADirectory) => Err(Unfit::Missing),
        Err(error) => Err(Unfit::Unreadable(
            failure::from_io(format_args!("start {}", path.display()), &error).message().to_owned(),
        )),
    }
}

impl Unfit {
    fn into_failure(self, path: &Path) -> Failure {
        let path = path.display();
        match self {
            Self::Missing => Failure::new(Kind::NotFound, format!("start {path}: no such file on this node"))
                .with_hint("add it to the session's manifest and start it by its name alone"),
            Self::Directory => Failure::new(Kind::Invalid, format!("start {path}: it is a directory"))
                .with_hint("name a program"),
            Self::NotExecutable => {
                Failure::new(Kind::NoAccess, format!("start {path}: it may not be executed")).with_hint(
                    "set its execute permission, and see that its file system is not mounted noexec",
                )
            }
            Self::Unreadable(message) => Failure::new(Kind::NoAccess, message)
                .with_hint("make every directory on the path searchable (chmod +x)"),
        }
    }
}
