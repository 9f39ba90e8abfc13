//! An app's directory on a node: made private, leased for as long as the agent lives, removed in the end.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use gantry_shared::error::{Failure, Kind};
use gantry_shared::id::{AppId, SessionId};
use gantry_shared::storage::{
    AGENT_SOCKET, BIN_DIR, LEASE_FILE, LIB_DIR, SessionDirs, TMP_DIR, app_dir_prefix, session_dir_name,
};
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, mkdtemp, unlinkat};

use super::StageBase;
use super::lease::{self, Lease, NEW_LEASE};
use crate::{failure, tree};

/// An app's directory and everything in it. Dropping it removes it as far as that goes, in the process that made it; [`AppDir::remove`] reports.
#[derive(Debug)]
pub(crate) struct AppDir {
    base: OwnedFd,
    dir: OwnedFd,
    name: CString,
    path: PathBuf,
    sessions: BTreeMap<SessionId, SessionDirs>,
    lease: Option<Lease>,
    _in_use: Option<Flock<OwnedFd>>,
    maker: u32,
}

impl AppDir {
    /// Makes `gantry-<app>-XXXXXX` below `base`, with mode 0700 whatever the umask, and takes its lease.
    ///
    /// A sweep in another process never removes it: until the lease stands under its name, the directory is too young to be swept, and from
    /// then on the lease is locked. Should we have stood still for more than a minute in between and a sweep have begun, then this fails.
    ///
    /// # Errors
    /// When the base cannot be written to, or its file system has no locks.
    pub(crate) fn create(base: &StageBase, app: AppId) -> Result<Self, Failure> {
        let at = base.path();
        let failed = |error: io::Error| {
            failure::from_io(format_args!("make the app's directory in {}", at.display()), &error)
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let base = open(at, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let template = at.join(app_dir_prefix(app) + "XXXXXX");
        let path = mkdtemp(&template).map_err(|error| failed(error.into()))?;
        let name = path
            .file_name()
            .and_then(|name| CString::new(name.as_encoded_bytes()).ok())
            .ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        match Self::furnish(&base, &name) {
            Ok((dir, lease)) => {
                // Programs that clear old files out of /tmp leave a locked directory alone (systemd-tmpfiles(8)).
                let in_use = tree::open_dir(&dir, ".")
                    .ok()
                    .and_then(|again| Flock::lock(again, FlockArg::LockSharedNonblock).ok());
                let maker = std::process::id();
                let sessions = BTreeMap::new();
                Ok(Self { base, dir, name, path, sessions, lease: Some(lease), _in_use: in_use, maker })
            }
            Err(error) => {
                if let Ok(dir) = tree::open_dir(&base, &*name) {
                    unlinkat(&dir, NEW_LEASE, UnlinkatFlags::NoRemoveDir).ok();
                }
                unlinkat(&base, &*name, UnlinkatFlags::RemoveDir).ok();
                Err(failed(error))
            }
        }
    }

    fn furnish(base: &OwnedFd, name: &CString) -> io::Result<(OwnedFd, Lease)> {
        let dir = tree::own_dir(base, &**name)?;
        let lease = lease::take(&dir)?;
        Ok((dir, lease))
    }

    /// The directory.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where daemons reach their agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join(AGENT_SOCKET)
    }

    /// Makes a session's directories, each with mode 0700.
    ///
    /// # Errors
    /// When the session is open already, or the directories cannot be made; nothing is left of them then.
    pub(crate) fn open_session(&mut self, session: SessionId) -> Result<SessionDirs, Failure> {
        if self.sessions.contains_key(&session) {
            return Err(Failure::new(Kind::Invalid, format!("open session {session}: it is open already")));
        }
        let name = session_dir_name(session);
        let dirs = SessionDirs::of_session(&self.path, session);
        self.make_session(&name).map_err(|error| {
            failure::from_io(format_args!("make the session's directory {}", dirs.root.display()), &error)
        })?;
        self.sessions.insert(session, dirs.clone());
        Ok(dirs)
    }

    fn make_session(&self, name: &str) -> io::Result<()> {
        let root = tree::make_dir(&self.dir, name)?;
        for part in [BIN_DIR, LIB_DIR, TMP_DIR] {
            if let Err(error) = tree::make_dir(&root, part) {
                tree::remove(&self.dir, &CString::new(name)?).ok();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes a session's directories with everything in them. Links are removed, never followed, and whatever is mounted inside is left alone.
    /// The session's daemons must have ended before.
    ///
    /// # Errors
    /// When the session is not open, or something cannot be removed; what can be removed is gone, the session counts as closed, and the rest
    /// goes with the app's directory if it can.
    pub(crate) fn close_session(&mut self, session: SessionId) -> Result<(), Failure> {
        let Some(dirs) = self.sessions.remove(&session) else {
            return Err(Failure::new(Kind::Gone, format!("close session {session}: it is not open")));
        };
        CString::new(session_dir_name(session))
            .map_err(io::Error::from)
            .and_then(|name| tree::remove(&self.dir, &name))
            .map_err(|error| {
                failure::from_io(
                    format_args!("remove the session's directory {}", dirs.root.display()),
                    &error,
                )
            })
    }

    /// Removes the directory with everything in it, the lease last.
    ///
    /// # Errors
    /// When something could not be removed. The next agent's sweep tries again.
    pub(crate) fn remove(mut self) -> Result<(), Failure> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        remove_leased(self.base.as_fd(), self.dir.as_fd(), &self.name, &lease)
            .map_err(|error| failure::from_io(format_args!("remove {}", self.path.display()), &error))
    }
}

impl AsFd for AppDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Drop for AppDir {
    fn drop(&mut self) {
        // A process that was forked from the agent does not own it.
        if self.maker != std::process::id() {
            return;
        }
        if let Some(lease) = self.lease.take()
            && let Err(error) = remove_leased(self.base.as_fd(), self.dir.as_fd(), &self.name, &lease)
        {
            tracing::warn!(path = %self.path.display(), %error, "the app's directory stays behind");
        }
    }
}

/// Removes an app's directory whose lease is held by the caller. While it works, the locked lease keeps sweeps away; between the
/// lease's end and the directory's own, that it was just changed does.
pub(super) fn remove_leased(
    base: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &CString,
    _lease: &Lease,
) -> io::Result<()> {
    let lease_name = CString::new(LEASE_FILE)?;
    let new_name = CString::new(NEW_LEASE)?;
    tree::clear(dir, &[&lease_name, &new_name])?;
    tree::remove(dir, &new_name)?;
    tree::remove(dir, &lease_name)?;
    match unlinkat(base, &**name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(nix::errno::Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn app() -> AppId {
        "3kx9w0fz".parse().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn is_empty(dir: &Path) -> bool {
        fs::read_dir(dir).unwrap().next().is_none()
    }

    #[test]
    fn an_app_directory_is_private_and_goes_without_trace() {
        let scratch = tempfile::tempdir().unwrap();
        let mut dir = AppDir::create(&StageBase::at(scratch.path()), app()).unwrap();
        let name = dir.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(gantry_shared::storage::parse_app_dir_name(name), Some(app()));
        assert_eq!(mode(dir.path()), 0o700);
        assert_eq!(mode(&dir.path().join(LEASE_FILE)), 0o600);
        let text = fs::read_to_string(dir.path().join(LEASE_FILE)).unwrap();
        assert!(text.starts_with(&format!("pid {}\n", std::process::id())), "{text}");

        let dirs = dir.open_session(SessionId(3)).unwrap();
        for path in [&dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!(dir.open_session(SessionId(3)).unwrap_err().kind(), Kind::Invalid);
        fs::write(dirs.tmp.join("left behind"), "x").unwrap();
        dir.close_session(SessionId(3)).unwrap();
        assert!(!dirs.root.exists());
        assert_eq!(dir.close_session(SessionId(3)).unwrap_err().kind(), Kind::Gone);
        dir.open_session(SessionId(4)).unwrap();
        dir.remove().unwrap();
        assert!(is_empty(scratch.path()));
    }

    /// The umask belongs to the whole process, so this runs in one of its own.
    #[test]
    fn directories_are_private_under_any_umask() {
        const NAME: &str = "session::app_dir::tests::directories_are_private_under_any_umask";
        if crate::testing::rerun_without_root(NAME) {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        for mask in [0o000, 0o777] {
            let before = nix::sys::stat::umask(Mode::from_bits_truncate(mask));
            let made = AppDir::create(&StageBase::at(scratch.path()), app())
                .and_then(|mut dir| Ok((dir.open_session(SessionId(1))?, dir)));
            nix::sys::stat::umask(before);
            let (dirs, dir) = made.unwrap();
            for path in [dir.path(), &dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp] {
                assert_eq!(mode(path), 0o700, "{} under {mask:o}", path.display());
            }
            assert_eq!(mode(&dir.path().join(LEASE_FILE)), 0o600);
        }
    }

    #[test]
    fn dropping_removes_the_directory_too() {
        let scratch = tempfile::tempdir().unwrap();
        let mut dir = AppDir::create(&StageBase::at(scratch.path()), app()).unwrap();
        dir.open_session(SessionId(1)).unwrap();
        drop(dir);
        assert!(is_empty(scratch.path()));
    }

    #[test]
    fn a_session_directory_that_was_replaced_by_a_link_takes_nothing_with_it() {
        let scratch = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("thesis"), "x").unwrap();
        let mut dir = AppDir::create(&StageBase::at(scratch.path()), app()).unwrap();
        for (number, part) in [(1, ""), (2, "bin"), (3, "tmp")] {
            let root = dir.open_session(SessionId(number)).unwrap().root;
            let victim = if part.is_empty() { root } else { root.join(part) };
            fs::remove_dir_all(&victim).unwrap();
            symlink(home.path(), &victim).unwrap();
        }
        dir.close_session(SessionId(1)).unwrap();
        dir.close_session(SessionId(2)).unwrap();
        dir.remove().unwrap();
        assert_eq!(fs::read(home.path().join("thesis")).unwrap(), b"x");
        assert!(is_empty(scratch.path()));
    }

    #[test]
    fn an_app_directory_that_was_replaced_by_a_link_takes_nothing_with_it() {
        let scratch = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("thesis"), "x").unwrap();
        let dir = AppDir::create(&StageBase::at(scratch.path()), app()).unwrap();
        let moved = scratch.path().join("moved");
        let path = dir.path().to_owned();
        fs::rename(&path, &moved).unwrap();
        symlink(home.path(), &path).unwrap();
        dir.remove().unwrap_err();
        assert_eq!(fs::read(home.path().join("thesis")).unwrap(), b"x");
        assert!(is_empty(&moved));
    }

    #[test]
    fn a_base_that_takes_no_directories_is_a_failure_with_its_path() {
        let missing = Path::new("/nowhere/at all");
        let failure = AppDir::create(&StageBase::at(missing), app()).unwrap_err();
        assert_eq!(failure.kind(), Kind::NotFound);
        assert!(failure.message().contains("/nowhere/at all"), "{failure}");
        const NAME: &str =
            "session::app_dir::tests::a_base_that_takes_no_directories_is_a_failure_with_its_path";
        if crate::testing::rerun_without_root(NAME) {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o555)).unwrap();
        let failure = AppDir::create(&StageBase::at(scratch.path()), app()).unwrap_err();
        assert_eq!(failure.kind(), Kind::NoAccess);
    }
}
