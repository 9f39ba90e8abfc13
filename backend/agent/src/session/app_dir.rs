//! An app's directory on a node: private, leased as long as agents use it, removed by the last of them.
//!
//! Its path is the same on every node, so the frontend chooses the name. An agent fills the directory under another
//! name and then renames it. The rename never replaces another directory with content, so under its name the directory
//! is always complete. If another agent of the app has made it before, both share it. That happens on a machine that
//! plays several nodes, and on a file system that nodes share.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_shared::storage::{
    LEASE_FILE, agent_socket_name, app_dir_prefix_now, parse_app_dir_name, session_dir_name, session_dirs,
};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{AppId, NodeId, SessionId};
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR, SessionDirs, TMP_DIR};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, renameat};
use nix::sys::stat::{fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, mkdtemp, unlinkat};

use super::StageBase;
use super::lease::{self, Joined, Lease, NEW_LEASE, Owner};
use crate::{failure, tree};

/// How often an agent retries while other agents make and remove the directory.
const MAX_TRIES: u32 = 8;

/// The name of an app's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppDirName {
    app: AppId,
    name: String,
}

impl AppDirName {
    /// Checks a name from the frontend.
    ///
    /// # Errors
    /// When it is not a name of this app's directory.
    pub(crate) fn parse(app: AppId, name: String) -> Result<Self, Failure> {
        if parse_app_dir_name(&name) == Some(app) {
            return Ok(Self { app, name });
        }
        Err(Failure::new(
            Kind::Protocol,
            format!("make the app's directory: {name:?} is not a valid name for it"),
        ))
    }
}

/// An app's directory with all its content. Dropping it in the process that made it leaves the directory as far as
/// possible; [`AppDir::leave`] reports errors.
#[derive(Debug)]
pub(crate) struct AppDir {
    base: OwnedFd,
    dir: Arc<OwnedFd>,
    name: CString,
    path: PathBuf,
    socket: String,
    lease: Option<Lease>,
    _in_use: Option<Flock<OwnedFd>>,
    maker: u32,
}

impl AppDir {
    /// Makes the directory below `base` and takes its lease, or joins the agents that have made it.
    ///
    /// Its mode is 0700, whatever the umask. A sweep in another process never removes it: its lease is locked. A sweep
    /// that comes before the lease has its name removes an empty directory, and this makes another one. Waits while
    /// another agent removes a directory of that name.
    ///
    /// # Errors
    /// When the base cannot be written to, its file system has no locks, or something else has that name.
    pub(crate) fn create(base: &StageBase, name: &AppDirName, node: NodeId) -> Result<Self, Failure> {
        let path = base.path().join(&name.name);
        let failed = |error: io::Error| {
            failure::from_io(format_args!("make the app's directory {}", path.display()), &error)
        };
        let base_fd = base.open().map_err(failed)?;
        let file_name = CString::new(name.name.as_str()).map_err(|error| failed(error.into()))?;
        let here = Owner::this_process().map_err(failed)?;
        for _ in 0..MAX_TRIES {
            let entered = match make(base, &base_fd, name, &file_name, &here).map_err(failed)? {
                Some(made) => made,
                None => join(&base_fd, &file_name, &here).map_err(failed)?,
            };
            let (dir, lease) = match entered {
                Entered::In(dir, lease) => (dir, lease),
                Entered::Gone => continue,
                Entered::Apart(host) => return Err(not_shareable(&path, &host)),
            };
            // Programs that clear old files out of /tmp leave a locked directory alone (systemd-tmpfiles(8)).
            let in_use = tree::open_dir(&dir, ".")
                .ok()
                .and_then(|again| Flock::lock(again, FlockArg::LockSharedNonblock).ok());
            let maker = std::process::id();
            let socket = agent_socket_name(node);
            let (dir, lease) = (Arc::new(dir), Some(lease));
            return Ok(Self {
                base: base_fd,
                dir,
                name: file_name,
                path,
                socket,
                lease,
                _in_use: in_use,
                maker,
            });
        }
        Err(failed(io::Error::other("another process keeps removing it")))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket on which daemons reach their agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join(&self.socket)
    }

    /// Makes a session's directories with mode 0700. Those that another agent has made are shared.
    ///
    /// # Errors
    /// When the directories cannot be made; then this leaves nothing of its own.
    pub(crate) fn open_session(&self, session: SessionId) -> Result<SessionDir, Failure> {
        let dirs = session_dirs(&self.path, session);
        let failed = |error: io::Error| {
            failure::from_io(format_args!("make the session's directory {}", dirs.root.display()), &error)
        };
        let name = session_dir_name(session);
        let lock = format!("{name}.{LEASE_FILE}");
        let lease = lease::share(&*self.dir, &lock).map_err(failed)?;
        let made = make_session(&self.dir, &name);
        let session = SessionDir { dir: Arc::clone(&self.dir), name, lock, lease, dirs: dirs.clone() };
        match made {
            Ok(()) => Ok(session),
            Err(error) => {
                session.remove().ok();
                Err(failed(error))
            }
        }
    }

    /// Leaves the directory. The last agent in it removes it with everything in it, the lease last.
    ///
    /// # Errors
    /// When something could not be removed. The next agent's sweep tries again.
    pub(crate) fn leave(mut self) -> Result<(), Failure> {
        self.leave_once()
            .map_err(|error| failure::from_io(format_args!("remove {}", self.path.display()), &error))
    }

    fn leave_once(&mut self) -> io::Result<()> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        // What stays is removed with the directory, and does no harm until then.
        unlinkat(&*self.dir, self.socket.as_str(), UnlinkatFlags::NoRemoveDir).ok();
        match lease.leave()? {
            Some(whole) => remove_leased(self.base.as_fd(), self.dir.as_fd(), &self.name, &whole),
            None => Ok(()),
        }
    }
}

impl Drop for AppDir {
    fn drop(&mut self) {
        // A process forked from the agent does not own it.
        if self.maker != std::process::id() {
            return;
        }
        // Something else has failed before, and is told. The next sweep removes what stays.
        self.leave_once().ok();
    }
}

/// A session's directories, and our share of them.
#[derive(Debug)]
pub(crate) struct SessionDir {
    dir: Arc<OwnedFd>,
    name: String,
    lock: String,
    lease: Lease,
    dirs: SessionDirs,
}

impl SessionDir {
    /// Their paths.
    pub(crate) fn dirs(&self) -> &SessionDirs {
        &self.dirs
    }

    /// Leaves the directories. The last agent removes them with all their content.
    ///
    /// Links are removed, never followed. File systems mounted inside stay. The session's daemons on this node must
    /// have ended before.
    ///
    /// # Errors
    /// When something cannot be removed. Everything else is removed, and the rest goes with the app's directory if it
    /// can.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            failure::from_io(
                format_args!("remove the session's directory {}", self.dirs.root.display()),
                &error,
            )
        };
        let remove = |name: &str| tree::remove(&*self.dir, &CString::new(name)?);
        match self.lease.leave().map_err(failed)? {
            Some(_whole) => remove(&self.name).and_then(|()| remove(&self.lock)).map_err(failed),
            None => Ok(()),
        }
    }
}

/// Makes the directory and renames it to its name. `None`: the name exists.
fn make(
    base: &StageBase,
    base_fd: &OwnedFd,
    name: &AppDirName,
    file_name: &CString,
    here: &Owner,
) -> io::Result<Option<Entered>> {
    let made = mkdtemp(&base.path().join(app_dir_prefix_now(name.app, &here.boot) + "XXXXXX"))?;
    let new = made.file_name().and_then(|name| CString::new(name.as_encoded_bytes()).ok());
    let new = new.ok_or(io::ErrorKind::InvalidFilename)?;
    let dir = tree::own_dir(base_fd, &*new);
    let furnished = dir.and_then(|dir| Ok((lease::take(&dir, here)?, dir)));
    let (lease, dir) = match furnished {
        Ok((Some(lease), dir)) => (lease, dir),
        Ok((None, _)) => return Ok(Some(Entered::Gone)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Entered::Gone)),
        Err(error) => {
            if let Ok(dir) = tree::open_dir(base_fd, &*new) {
                unlinkat(&dir, NEW_LEASE, UnlinkatFlags::NoRemoveDir).ok();
            }
            unlinkat(base_fd, &*new, UnlinkatFlags::RemoveDir).ok();
            return Err(error);
        }
    };
    // The rename replaces only an empty directory, and an app's directory always has its lease.
    match renameat(base_fd, &*new, base_fd, &**file_name) {
        Ok(()) => Ok(Some(Entered::In(dir, lease))),
        Err(error) => {
            remove_leased(base_fd.as_fd(), dir.as_fd(), &new, &lease)?;
            match error {
                Errno::EEXIST | Errno::ENOTEMPTY => Ok(None),
                error => Err(error.into()),
            }
        }
    }
}

/// Result of joining the agents in a directory.
enum Entered {
    /// We have joined.
    In(OwnedFd, Lease),
    /// The directory is gone: somebody has removed it.
    Gone,
    /// See [`Joined::Apart`].
    Apart(String),
}

/// Joins the agents in the directory of that name.
fn join(base: &OwnedFd, name: &CString, here: &Owner) -> io::Result<Entered> {
    let dir = match tree::open_dir(base, &**name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Entered::Gone),
        dir => dir?,
    };
    let stat = fstat(&dir)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a directory of another user has that name",
        ));
    }
    Ok(match lease::join(&dir, here)? {
        Joined::Share(lease) => Entered::In(dir, lease),
        Joined::Gone => Entered::Gone,
        Joined::Dead(lease) => {
            remove_leased(base.as_fd(), dir.as_fd(), name, &lease)?;
            Entered::Gone
        }
        Joined::Apart(host) => Entered::Apart(host),
    })
}

fn not_shareable(path: &Path, host: &str) -> Failure {
    let message = format!(
        "make the app's directory {}: {host:?} has made it on a file system that both share, and locks there do not cross machines",
        path.display()
    );
    Failure::new(Kind::Unsupported, message)
        .with_hint("name a directory that every node has for itself: GANTRY_STAGE_DIR, or --stage-dir")
}

fn make_session(dir: &OwnedFd, name: &str) -> io::Result<()> {
    let root = tree::ensure_dir(dir, name)?;
    for part in [BIN_DIR, LIB_DIR, TMP_DIR] {
        tree::ensure_dir(&root, part)?;
    }
    Ok(())
}

/// Removes an app's directory whose lease the caller holds.
///
/// Meanwhile the locked lease keeps sweeps away. Between the lease's removal and the directory's own, a sweep that has
/// found the directory under the name of its making may put a lease of its own there. That one is removed, too. A lease
/// that is not complete yet goes last, since its owner may live and complete another one.
pub(super) fn remove_leased(
    base: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &CString,
    _lease: &Lease,
) -> io::Result<()> {
    let lease_name = CString::new(LEASE_FILE)?;
    let new_name = CString::new(NEW_LEASE)?;
    tree::clear(dir, &[&lease_name, &new_name])?;
    tree::remove(dir, &lease_name)?;
    for _ in 0..MAX_TRIES {
        tree::remove(dir, &new_name)?;
        match unlinkat(base, &**name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            // As soon as it was empty, another agent's directory may have replaced it under its name.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) if !is_named(base, name, dir)? => return Ok(()),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::DirectoryNotEmpty.into())
}

/// Whether that directory has this name.
pub(super) fn is_named(base: BorrowedFd<'_>, name: &CString, dir: BorrowedFd<'_>) -> io::Result<bool> {
    let own = fstat(dir)?;
    match fstatat(base, &**name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
