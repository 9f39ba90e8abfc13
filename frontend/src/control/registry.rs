//! The user's runtime directory: one socket per live app, named after it.
//!
//! The directory is opened once, and all operations go through that descriptor, by way of `/proc/self/fd`. So the
//! checked directory is the used one, even after a rename. The length of its path does not matter for `sun_path`,
//! which holds 107 bytes.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::storage;
use gantry_shared::trust::Trust;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::AppId;
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, spawn_orphan};

use crate::error::{Error, Result};
use crate::helpers;

const SUFFIX: &str = ".sock";

/// A socket without a server has this suffix. It gets its final name when it is served.
const NEW_SUFFIX: &str = ".new";

/// A socket that still has the suffix at this age belonged to a process that died before it served it.
const STALE_NEW: Duration = Duration::from_secs(60);

/// The suffix of a group's record that is kept until it is forgotten.
const KEPT_SUFFIX: &str = ".kept";

/// The state of an app with a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shelf {
    /// It is live.
    Live,
    /// It has ended, and its record is kept for clients.
    Kept,
}

impl Shelf {
    fn suffix(self) -> &'static str {
        match self {
            Self::Live => SUFFIX,
            Self::Kept => KEPT_SUFFIX,
        }
    }
}

/// The runtime directory, checked to be private.
#[derive(Debug, Clone)]
pub struct Registry {
    path: PathBuf,
    opened: Arc<File>,
    uid: u32,
}

impl Registry {
    /// Opens the runtime directory, and creates it if it does not exist: `asked`, else GANTRY_RUNTIME_DIR, else
    /// `gantry-runtime-UID` in CTI_CFG_DIR, else `gantry` in XDG_RUNTIME_DIR (if that is a directory of this user),
    /// else `/tmp/gantry-runtime-UID`.
    ///
    /// Another user may have created an entry of that last name. Then the directory is `.gantry-runtime-HOST` in the
    /// user's home. Once that exists, it is used as long as the other is not this user's. So all commands find the same
    /// one, even if another user removes or creates entries meanwhile.
    ///
    /// # Errors
    /// It cannot be created or opened; it is a symbolic link, another user's, or open to others.
    pub fn open(asked: Option<&Path>) -> Result<Self> {
        let host: &dyn Host = &Machine;
        let trust = Trust::of_process();
        let own = |path: &Path| is_dir_of(host.uid())(path) && trust.check_own_dir(path).is_ok();
        let places = find_dirs(asked, host, own);
        match places.second {
            Some(second) if !is_itself_of(host.uid(), &places.first) => {
                let there = std::fs::symlink_metadata(&places.first).is_ok();
                if there || second.is_dir() {
                    let opened = Self::open_at(second, host.uid());
                    return opened
                        .map_err(|error| if there { squatted(&places.first, &error) } else { error });
                }
                match Self::open_at(places.first.clone(), host.uid()) {
                    // Another user has created it just now.
                    Err(first) => Self::open_at(second, host.uid()).map_err(|_| first),
                    opened => opened,
                }
            }
            _ => Self::open_at(places.first, host.uid()),
        }
    }

    fn open_at(path: PathBuf, uid: u32) -> Result<Self> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(Error::io(format!("cannot make the runtime directory {}", path.display()), e));
            }
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path);
        let opened = match opened {
            Ok(opened) => opened,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => {
                return Err(unfit(&path, "is not a directory, or is a symbolic link"));
            }
            Err(e) => {
                return Err(Error::io(format!("cannot open the runtime directory {}", path.display()), e));
            }
        };
        let about =
            opened.metadata().map_err(|e| Error::io(format!("cannot inspect {}", path.display()), e))?;
        if about.uid() != uid {
            return Err(unfit(&path, &format!("belongs to user {}, not to {uid}", about.uid())));
        }
        if about.mode() & 0o077 != 0 {
            return Err(unfit(
                &path,
                &format!("is accessible to other users (mode {:o})", about.mode() & 0o7777),
            ));
        }
        Ok(Self { path, opened: Arc::new(opened), uid })
    }

    /// The directory's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of an app's socket, for messages: it may be too long to connect to.
    pub fn socket_path(&self, app: AppId) -> PathBuf {
        self.path.join(format!("{app}{SUFFIX}"))
    }

    /// The two successive paths of an app's socket: a process may be killed at either.
    pub(crate) fn socket_paths(&self, app: AppId) -> [PathBuf; 2] {
        [self.path.join(format!("{app}{NEW_SUFFIX}")), self.socket_path(app)]
    }

    /// The user whose apps are here.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// The directory with the numbers of groups. It is created if it does not exist.
    pub(super) fn groups_dir(&self) -> PathBuf {
        self.inside("groups")
    }

    /// The directory with the records of apps that have ended.
    pub(super) fn ended_dir(&self) -> PathBuf {
        self.inside("ended")
    }

    /// Starts listening on an app's socket. The socket gets its name only when it is served: before that, a client
    /// would take it for dead and remove it.
    pub(crate) fn bind(&self, app: AppId, shelf: Shelf) -> Result<UnixListener> {
        let (new, served) =
            (self.inside(&format!("{app}{NEW_SUFFIX}")), self.inside(&format!("{app}{}", shelf.suffix())));
        let bind = || {
            let listener = UnixListener::bind(&new)?;
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            std::fs::rename(&new, &served)?;
            Ok(listener)
        };
        bind().map_err(|e| Error::io(format!("cannot serve {}", self.socket_path(app).display()), e))
    }

    /// Removes an app's socket.
    pub(crate) fn remove(&self, app: AppId, shelf: Shelf) {
        match std::fs::remove_file(self.inside(&format!("{app}{}", shelf.suffix()))) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!(%app, error = %e, "cannot remove its socket")
            }
            _ => {}
        }
    }

    /// Connects to an app's frontend. A socket without a server is removed.
    ///
    /// # Errors
    /// [`Error::UnknownApp`] when no frontend serves the app.
    pub(crate) async fn connect(&self, app: AppId, shelf: Shelf) -> Result<tokio::net::UnixStream> {
        let path = self.inside(&format!("{app}{}", shelf.suffix()));
        let stream = match tokio::net::UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                self.sweep(app, shelf);
                return Err(Error::UnknownApp { app });
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(Error::UnknownApp { app }),
            Err(e) => return Err(Error::io(format!("cannot reach app {app}"), e)),
        };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == self.uid => Ok(stream),
            Ok(peer) => Err(unfit(
                &self.socket_path(app),
                &format!("is served by user {}, not by {}", peer.uid(), self.uid),
            )),
            Err(e) => Err(Error::io(format!("cannot find the process that serves app {app}"), e)),
        }
    }

    /// The apps that have a socket here, sorted by id. Only a connection shows whether a socket is served.
    pub(crate) fn apps(&self, shelf: Shelf) -> Result<Vec<AppId>> {
        let failed = |e| Error::io(format!("cannot list {}", self.path.display()), e);
        let mut apps = Vec::new();
        for entry in std::fs::read_dir(self.inside("")).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (app, served) = match parse_socket_name(&entry.file_name()) {
                Some(named) => named,
                None => continue,
            };
            match entry.metadata() {
                Ok(about) if about.uid() == self.uid && about.file_type().is_socket() => {
                    let age = about.modified().ok().and_then(|made| made.elapsed().ok());
                    match served {
                        Some(on) if on == shelf => apps.push(app),
                        Some(_) => {}
                        None if age.is_some_and(|age| age > STALE_NEW) => {
                            drop(std::fs::remove_file(entry.path()))
                        }
                        None => {}
                    }
                }
                // Another user's entry, not a socket, or removed meanwhile: leave it alone.
                _ => {}
            }
        }
        apps.sort_unstable();
        Ok(apps)
    }

    /// Removes this user's socket if it has no server.
    fn sweep(&self, app: AppId, shelf: Shelf) {
        let path = self.inside(&format!("{app}{}", shelf.suffix()));
        let ours = |about: std::fs::Metadata| about.uid() == self.uid && about.file_type().is_socket();
        if std::fs::symlink_metadata(&path).is_ok_and(ours) {
            tracing::debug!(%app, "no process serves its socket: removed");
            self.remove(app, shelf);
            if shelf == Shelf::Live {
                // The guard would have removed the socket. So the guard is gone, too, and more may be left over.
                sweep_machine();
            }
        }
    }

    /// The path of an entry through the opened directory.
    fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.opened.as_raw_fd()))
    }
}

fn unfit(path: &Path, why: &str) -> Error {
    let failure =
        Failure::new(Kind::NoAccess, format!("the runtime directory is not safe: {} {why}", path.display()))
            .with_hint("make it your own directory with mode 0700, or set GANTRY_RUNTIME_DIR to another one");
    Error::Node { hosts: Vec::new(), failure }
}

/// The error when another user has taken the directory's name and its substitute does not work either.
fn squatted(path: &Path, second: &Error) -> Error {
    let owner = std::fs::symlink_metadata(path).map(|about| about.uid()).unwrap_or_default();
    let message = format!(
        "the runtime directory is not safe: {} belongs to user {owner}; instead of it: {second}",
        path.display()
    );
    let failure = Failure::new(Kind::NoAccess, message)
        .with_hint("set GANTRY_RUNTIME_DIR to a directory of yours with mode 0700, for all commands alike");
    Error::Node { hosts: Vec::new(), failure }
}

fn is_dir_of(uid: u32) -> impl Fn(&Path) -> bool {
    move |path| std::fs::metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == uid)
}

/// As [`is_dir_of`], but a symbolic link does not count: another user may have made it.
fn is_itself_of(uid: u32, path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == uid)
}

/// Candidates for the runtime directory.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    first: PathBuf,
    /// The substitute where others can take the first.
    second: Option<PathBuf>,
}

/// The candidates for the runtime directory. `ours` tells whether a path is a directory of this user that others
/// cannot change.
fn find_dirs(asked: Option<&Path>, host: &dyn Host, ours: impl Fn(&Path) -> bool) -> Places {
    let only = |first| Places { first, second: None };
    if let Some(asked) = asked {
        return only(asked.to_owned());
    }
    if let Some(set) = host.env(storage::GANTRY_RUNTIME_DIR) {
        return only(PathBuf::from(set));
    }
    if let Some(set) = host.env(storage::CTI_CFG_DIR) {
        // The directory may be shared, as /tmp is.
        return only(PathBuf::from(set).join(format!("gantry-runtime-{}", host.uid())));
    }
    let place = |name: &str| host.env(name).map(PathBuf::from).filter(|it| it.is_absolute() && ours(it));
    // Programs that change the user often keep this variable. Then it names another user's directory.
    if let Some(base) = place("XDG_RUNTIME_DIR") {
        return only(base.join("gantry"));
    }
    // Several hosts may share a home, but not their sockets.
    let name = format!(".gantry-runtime-{}", host.hostname());
    let second = place("HOME").map(|home| home.join(name));
    Places { first: PathBuf::from(format!("/tmp/gantry-runtime-{}", host.uid())), second }
}

/// The app whose socket has that name, and its state. None: the socket is not served yet.
fn parse_socket_name(name: &OsStr) -> Option<(AppId, Option<Shelf>)> {
    let name = name.to_str()?;
    let shelves = [(SUFFIX, Some(Shelf::Live)), (KEPT_SUFFIX, Some(Shelf::Kept)), (NEW_SUFFIX, None)];
    let (app, shelf) =
        shelves.iter().find_map(|(suffix, shelf)| Some((name.strip_suffix(suffix)?, *shelf)))?;
    Some((app.parse().ok()?, shelf))
}

/// Starts a sweep of the remains of this user's dead agents on this machine: processes and storage. Does not wait for
/// it.
pub fn sweep_machine() {
    let started = helpers::find(helpers::AGENT).map_err(std::io::Error::other).and_then(|agent| {
        let nothing = std::fs::File::open("/dev/null")?;
        spawn_orphan(&agent, &["sweep"], nothing.into())
    });
    if let Err(error) = started {
        tracing::warn!(%error, "cannot search for files of dead agents");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn app(text: &str) -> AppId {
        text.parse().unwrap()
    }

    fn open(path: &Path) -> Result<Registry> {
        Registry::open(Some(path))
    }

    #[test]
    fn a_runtime_directory_is_made_private_and_kept() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("r");
        open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        open(&path).unwrap();
    }

    #[test]
    fn an_unsafe_directory_is_refused_with_the_reason() {
        let base = tempfile::tempdir().unwrap();
        let check = |path: &Path, part: &str| {
            let error = open(path).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        };
        let (good, link, file) =
            (base.path().join("good"), base.path().join("link"), base.path().join("file"));
        std::fs::create_dir(&good).unwrap();
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o755)).unwrap();
        check(&good, "accessible to other users (mode 755)");
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o700)).unwrap();
        open(&good).unwrap();
        symlink(&good, &link).unwrap();
        check(&link, "symbolic link");
        std::fs::write(&file, "").unwrap();
        check(&file, "not a directory");
        check(&base.path().join("no/such"), "cannot make");
    }

    #[test]
    fn socket_names() {
        let check = |name: &str, expected: Option<(&str, Option<Shelf>)>| {
            let expected = expected.map(|(id, shelf)| (app(id), shelf));
            assert_eq!(parse_socket_name(OsStr::new(name)), expected, "{name}");
        };
        check("3kx9w0fz.sock", Some(("3kx9w0fz", Some(Shelf::Live))));
        check("3kx9w0fz.kept", Some(("3kx9w0fz", Some(Shelf::Kept))));
        check("3kx9w0fz.new", Some(("3kx9w0fz", None)));
        check("3kx9w0fz", None);
        check("../../x.sock", None);
        check(".sock", None);
        check("other", None);
    }

    #[tokio::test]
    async fn a_socket_that_has_not_got_its_name_yet_is_at_a_path_that_is_known() {
        let base = tempfile::tempdir().unwrap();
        let registry = open(&base.path().join("r")).unwrap();
        let app = app("aaaaaaaa");
        // The socket cannot get its name. It stays as if its process were killed in between.
        std::fs::create_dir(registry.socket_path(app)).unwrap();
        registry.bind(app, Shelf::Live).unwrap_err();
        let left = registry.socket_paths(app).into_iter().filter(|path| path.exists() && !path.is_dir());
        assert_eq!(left.count(), 1);
    }

    #[tokio::test]
    async fn a_socket_without_a_server_is_swept_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        // Far longer than a socket's address.
        let mut path = base.path().to_owned();
        for _ in 0..4 {
            path.push("d".repeat(60));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
        }
        let registry = open(&path).unwrap();
        let (live, dead) = (app("aaaaaaaa"), app("bbbbbbbb"));
        let _served = registry.bind(live, Shelf::Live).unwrap();
        drop(registry.bind(dead, Shelf::Live).unwrap());
        drop(registry.bind(dead, Shelf::Kept).unwrap());
        std::fs::write(path.join("cccccccc.sock"), "a file").unwrap();
        assert_eq!(registry.apps(Shelf::Live).unwrap(), [live, dead]);
        registry.connect(live, Shelf::Live).await.unwrap();
        assert!(matches!(registry.connect(dead, Shelf::Live).await, Err(Error::UnknownApp { .. })));
        assert_eq!(registry.apps(Shelf::Live).unwrap(), [live]);
        assert_eq!(registry.apps(Shelf::Kept).unwrap(), [dead]);
        assert!(matches!(registry.connect(dead, Shelf::Kept).await, Err(Error::UnknownApp { .. })));
        assert_eq!(registry.apps(Shelf::Kept).unwrap(), []);
        assert!(matches!(
            registry.connect(app("cccccccc"), Shelf::Live).await,
            Err(Error::UnknownApp { .. })
        ));
        assert!(path.join("cccccccc.sock").exists());
        registry.remove(live, Shelf::Live);
        registry.remove(live, Shelf::Live);
        assert_eq!(registry.apps(Shelf::Live).unwrap(), []);
    }
}
