//! Directories by descriptor: creates, opens and removes them without ever following a link.
//!
//! Any process in a session can write to the session's storage. Code that works there by path can be misled: a
//! directory may become a link between two calls. Here every step starts from an open directory and takes one name, so
//! there is no path to redirect.
//!
//! Removal is our own code. `std::fs::remove_dir_all` does not follow links on Linux either (it uses `openat` with
//! `O_NOFOLLOW`), but it lacks three things. It fails at a directory without write permission. It descends into mounts.
//! It holds one descriptor and one stack frame for each level, without a bound.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use gantry_shared::trust::Trust;
use gantry_types::error::Failure;
use nix::NixPath;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::failure;

/// The depth limit. A directory at this depth is first moved to the top.
const MAX_DEPTH: usize = 32;

/// How often a directory is listed again because an entry appeared during the removal.
const MAX_PASSES: u32 = 3;

const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Opens the directory `name` in `parent`.
///
/// # Errors
/// It is not a directory, or is a link to one.
pub(crate) fn open_dir<N: NixPath + ?Sized>(parent: impl AsFd, name: &N) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, DIRECTORY, Mode::empty())?)
}

/// Opens a session's directory.
pub(crate) fn open_root(root: &Path) -> Result<OwnedFd, Failure> {
    open_dir(AT_FDCWD, root)
        .map_err(|error| failure::from_io(format_args!("open {}", root.display()), &error))
}

/// Creates the directory `name` in `parent` with mode 0700, whatever the umask, and opens it.
///
/// # Errors
/// An entry with that name exists, or the directory cannot be created.
pub(crate) fn make_dir<N: NixPath + ?Sized>(parent: impl AsFd, name: &N) -> io::Result<OwnedFd> {
    mkdirat(parent.as_fd(), name, Mode::S_IRWXU)?;
    own_dir(parent, name)
}

/// As [`make_dir`], but accepts an existing directory as it is.
///
/// # Errors
/// Something else has that name, or the directory cannot be created.
pub(crate) fn ensure_dir<N: NixPath + ?Sized>(parent: impl AsFd, name: &N) -> io::Result<OwnedFd> {
    match make_dir(parent.as_fd(), name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_dir(parent, name),
        made => made,
    }
}

/// Opens a directory that this process has just created, and gives it mode 0700.
///
/// A umask may have removed even the owner's permissions. So it opens the directory with `O_PATH` first, and for
/// reading afterwards.
///
/// # Errors
/// It is no longer a directory of ours.
pub(crate) fn own_dir<N: NixPath + ?Sized>(parent: impl AsFd, name: &N) -> io::Result<OwnedFd> {
    let place = openat(parent, name, DIRECTORY | OFlag::O_PATH, Mode::empty())?;
    if fstat(&place)?.st_uid != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process's directory is in its place",
        ));
    }
    open_wide(&place)?;
    open_dir(&place, ".")
}

/// The names in a directory, without `.` and `..`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn names(dir: impl AsFd) -> io::Result<Vec<CString>> {
    // Opened anew: a duplicate would share its read position with `dir`.
    let mut listing = Dir::from_fd(open_dir(dir, ".")?)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"." && name.as_c_str() != c".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Removes the entry of `parent` with this name: a file, a link (not its target), or a directory with its content.
///
/// A missing entry is no error.
///
/// # Errors
/// The first failure. Everything else is removed all the same.
pub(crate) fn remove(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let parent = parent.as_fd();
    let removal = Removal::start(parent)?;
    let first = removal.entry(parent, name, 0);
    first.and(removal.finish_moved())
}

/// Removes everything in `dir` except these names.
///
/// # Errors
/// As [`remove`].
pub(crate) fn clear(dir: impl AsFd, except: &[&CStr]) -> io::Result<()> {
    let dir = dir.as_fd();
    let removal = Removal::start(dir)?;
    let first = removal.children(dir, except, 0);
    first.and(removal.finish_moved())
}

/// One removal: the directory that deep directories move to, and how many have moved.
struct Removal<'a> {
    top: BorrowedFd<'a>,
    device: u64,
    moved: Cell<u32>,
    finished: Cell<u32>,
}

impl<'a> Removal<'a> {
    fn start(top: BorrowedFd<'a>) -> io::Result<Self> {
        Ok(Self { top, device: fstat(top)?.st_dev, moved: Cell::new(0), finished: Cell::new(0) })
    }

    /// Removes the directories that were moved to the top. This may move more there.
    fn finish_moved(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        while self.finished.get() < self.moved.get() {
            let number = self.finished.get();
            self.finished.set(number + 1);
            outcome = outcome.and(self.entry(self.top, &moved_name(number), 0));
        }
        outcome
    }

    fn entry(&self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        self.attempt(parent, name, depth).map_err(|error| {
            // Only the innermost call adds the name.
            if error.get_ref().is_some() {
                return error;
            }
            io::Error::new(error.kind(), format!("{}: {error}", OsStr::from_bytes(name.to_bytes()).display()))
        })
    }

    fn attempt(&self, parent: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
        for _ in 0..MAX_PASSES {
            match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                // Linux returns EISDIR for a directory. The standard has EPERM.
                Err(Errno::EISDIR | Errno::EPERM) => {}
                Err(error) => return Err(error.into()),
            }
            // Many directories are empty.
            if unlinkat(parent, name, UnlinkatFlags::RemoveDir).is_ok() {
                return Ok(());
            }
            let dir = match self.open(parent, name) {
                Ok(dir) => dir,
                Err(Errno::ENOENT) => return Ok(()),
                // It was a directory for unlinkat, and another process has replaced it since.
                Err(Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(Errno::EXDEV) => {
                    return Err(io::Error::new(
                        io::ErrorKind::CrossesDevices,
                        format!(
                            "{}: something is mounted there, it is left alone",
                            OsStr::from_bytes(name.to_bytes()).display()
                        ),
                    ));
                }
                Err(error) => return Err(error.into()),
            };
            if depth >= MAX_DEPTH {
                return self.move_to_top(parent, name);
            }
            self.children(dir.as_fd(), &[], depth + 1)?;
            match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::ENOTEMPTY.into())
    }

    fn children(&self, dir: BorrowedFd<'_>, except: &[&CStr], depth: usize) -> io::Result<()> {
        let mut outcome = Ok(());
        for name in names(dir)? {
            if !except.contains(&name.as_c_str()) {
                outcome = outcome.and(self.entry(dir, &name, depth));
            }
        }
        outcome
    }

    fn move_to_top(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            let number = self.moved.get();
            self.moved.set(number.checked_add(1).ok_or(Errno::EMLINK)?);
            match renameat(parent, name, self.top, &*moved_name(number)) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                // The name is taken, perhaps by an earlier attempt. finish_moved removes that as well.
                Err(Errno::ENOTDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Opens a directory to empty it: never a link, never a mount, and with the permissions to empty it.
    fn open(&self, parent: BorrowedFd<'_>, name: &CStr) -> nix::Result<OwnedFd> {
        let dir = match self.open_as(parent, name, DIRECTORY) {
            Err(Errno::EACCES) => {
                open_wide(&self.open_as(parent, name, DIRECTORY | OFlag::O_PATH)?)?;
                self.open_as(parent, name, DIRECTORY)?
            }
            opened => opened?,
        };
        if Mode::from_bits_truncate(fstat(&dir)?.st_mode).contains(Mode::S_IRWXU) {
            return Ok(dir);
        }
        fchmod(&dir, Mode::S_IRWXU)?;
        Ok(dir)
    }

    fn open_as(&self, parent: BorrowedFd<'_>, name: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        let resolve =
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
        match openat2(parent, name, OpenHow::new().flags(flags).resolve(resolve)) {
            // Before Linux 5.6, or if a container's filter forbids it. A mount of the same file system goes unnoticed.
            Err(Errno::ENOSYS | Errno::EPERM) => {
                let dir = openat(parent, name, flags, Mode::empty())?;
                if fstat(&dir)?.st_dev == self.device { Ok(dir) } else { Err(Errno::EXDEV) }
            }
            opened => opened,
        }
    }
}

fn moved_name(number: u32) -> CString {
    // A number has no NUL.
    CString::new(format!(".removing-{number}")).unwrap_or_default()
}

/// Gives mode 0700 to an open directory. It may be open with `O_PATH`, which `fchmod` does not allow.
fn open_wide(dir: &OwnedFd) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    fchmodat(AT_FDCWD, path.as_str(), Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
}

/// Creates a file that belongs to its owner alone. Fails if an entry with that name exists.
pub(crate) fn create_file(dir: impl AsFd, name: &OsStr, executable: bool) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    // Set the mode in a separate call, whatever the umask is.
    file.set_permissions(Permissions::from_mode(if executable { 0o700 } else { 0o600 }))?;
    Ok(file)
}

/// Sets a file's modification time, in seconds since 1970. Python otherwise takes its compiled files for outdated. A time
/// that cannot be represented here is no loss.
pub(crate) fn set_modified(file: &File, seconds: u64) {
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    drop(modified.map(|modified| file.set_modified(modified)));
}

/// The most bytes that a file may have. A write beyond this limit gets no error: SIGXFSZ kills the process.
pub(crate) fn most_bytes() -> nix::Result<u64> {
    getrlimit(Resource::RLIMIT_FSIZE).map(|(soft, _)| soft)
}

/// Whether nothing can be executed on the file system of `dir`.
pub(crate) fn is_noexec(dir: impl AsFd) -> nix::Result<bool> {
    fstatvfs(dir).map(|place| place.flags().contains(FsFlags::ST_NOEXEC))
}

/// Opens a regular file for reading, and nothing else. Follows a link.
///
/// Opening a pipe would wait, and opening a device may have effects.
///
/// # Errors
/// There is no such file, or it is not a regular one.
pub(crate) fn open_regular(dir: impl AsFd, path: &Path) -> io::Result<File> {
    // First with O_PATH, which has no effects. Then again, in case the file was replaced in between.
    let place = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let read = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let open_as = |flags| {
        let file = File::from(openat(dir.as_fd(), path, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    };
    open_as(place).and_then(|_| open_as(read))
}

/// Opens a file of this node that is to be used in place of a sent one: regular, and nobody can have planted it or its
/// path.
///
/// Trusted are root, this user, the owner of the agent's own file, whose code runs here already, and those to whom they
/// have given a directory on the way.
///
/// # Errors
/// There is no such file, or another user could have put it there.
pub(crate) fn open_trusted(path: &Path) -> io::Result<File> {
    let own = std::fs::metadata("/proc/self/exe").map(|about| about.uid());
    let trust = own.into_iter().fold(Trust::of_process().and_appointed(), Trust::and_owner);
    trust.check_program(path).map_err(|_| io::ErrorKind::PermissionDenied)?;
    open_regular(AT_FDCWD, path)
}

/// Opens a regular file of a session. If it is a link, `link` is its text. An absolute link is the agent's own, to a file
/// of the node: this follows it where [`open_trusted`] does.
///
/// # Errors
/// As [`open_regular`] and [`open_trusted`].
pub(crate) fn open_entry(dir: impl AsFd, name: &OsStr, link: Option<&OsStr>) -> io::Result<File> {
    match link.map(Path::new) {
        Some(text) if text.is_absolute() => open_trusted(text),
        _ => open_regular(dir, Path::new(name)),
    }
}

/// The `stat` of a directory's entry, without following a link.
///
/// # Errors
/// There is no such entry, or its state cannot be read.
pub(crate) fn lstat<N: NixPath + ?Sized>(
    parent: impl AsFd,
    name: &N,
) -> nix::Result<nix::sys::stat::FileStat> {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// Whether a `stat` has this file type.
#[must_use]
pub(crate) fn is_kind(stat: &nix::sys::stat::FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == kind
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn links_are_removed_and_what_they_point_to_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let kept = scratch.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let doomed = scratch.path().join("doomed");
        fs::create_dir_all(doomed.join("sub")).unwrap();
        symlink(&kept, doomed.join("dir-link")).unwrap();
        symlink(kept.join("file"), doomed.join("sub/file-link")).unwrap();
        symlink("/nowhere", doomed.join("dangling")).unwrap();
        symlink(&kept, scratch.path().join("top-link")).unwrap();

        remove(open(scratch.path()), c"doomed").unwrap();
        remove(open(scratch.path()), c"top-link").unwrap();
        remove(open(scratch.path()), c"never-there").unwrap();
        assert_eq!(names(open(scratch.path())).unwrap(), [c"kept".to_owned()]);
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
    }

    #[test]
    fn clear_keeps_the_names_it_is_told_to_keep() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("lease"), "").unwrap();
        fs::create_dir_all(scratch.path().join("a/b/c")).unwrap();
        fs::write(scratch.path().join("a/b/f"), "").unwrap();
        clear(open(scratch.path()), &[c"lease"]).unwrap();
        assert_eq!(names(open(scratch.path())).unwrap(), [c"lease".to_owned()]);
    }

    #[test]
    fn a_tree_deeper_than_descriptors_and_paths_allow_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut dir = make_dir(open(scratch.path()), "deep").unwrap();
        for level in 0..3000 {
            if level % 50 == 0 {
                drop(openat(&dir, "file", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU).unwrap());
            }
            dir = make_dir(&dir, "a-directory-with-a-long-name").unwrap();
        }
        drop(dir);
        remove(open(scratch.path()), c"deep").unwrap();
        assert_eq!(names(open(scratch.path())).unwrap(), Vec::<CString>::new());
    }

    #[test]
    fn directories_without_permissions_are_removed() {
        if crate::testing::rerun_without_root("tree::tests::directories_without_permissions_are_removed") {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        for (name, mode) in [("read-only", 0o555), ("nothing", 0o000), ("write-only", 0o200)] {
            let dir = scratch.path().join("doomed").join(name);
            fs::create_dir_all(dir.join("sub")).unwrap();
            fs::write(dir.join("sub/file"), "").unwrap();
            fs::set_permissions(dir.join("sub"), PermissionsExt::from_mode(mode)).unwrap();
            fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
        }
        remove(open(scratch.path()), c"doomed").unwrap();
        assert!(!scratch.path().join("doomed").exists());
    }

    #[test]
    fn what_is_mounted_inside_is_left_alone() {
        if std::env::args().any(|arg| arg == crate::testing::IN_NAMESPACE) {
            let error = remove(open(Path::new("/mnt")), c"doomed").unwrap_err();
            assert!(error.to_string().contains("sub: something is mounted there"), "{error}");
            assert!(Path::new("/mnt/kept/file").exists());
            assert!(!Path::new("/mnt/doomed/other").exists());
            return;
        }
        crate::testing::rerun_with_mount(
            "tree::tests::what_is_mounted_inside_is_left_alone",
            "mount -t tmpfs none /mnt && mkdir -p /mnt/kept /mnt/doomed/sub /mnt/doomed/other && touch /mnt/kept/file && \
             mount --bind /mnt/kept /mnt/doomed/sub",
        );
    }

    #[test]
    fn new_directories_are_private_and_never_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let parent = open(scratch.path());
        make_dir(&parent, "new").unwrap();
        assert_eq!(fs::metadata(scratch.path().join("new")).unwrap().mode() & 0o7777, 0o700);
        ensure_dir(&parent, "new").unwrap();
        assert_eq!(make_dir(&parent, "new").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        symlink("/tmp", scratch.path().join("link")).unwrap();
        ensure_dir(&parent, "link").unwrap_err();
        fs::write(scratch.path().join("file"), "").unwrap();
        ensure_dir(&parent, "file").unwrap_err();
    }
}
