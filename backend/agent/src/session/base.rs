//! Where storage goes on a node: the first writable place from which programs can be started.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gantry_shared::storage::GANTRY_STAGE_DIR;
use gantry_shared::trust::{Distrust, Trust};
use gantry_types::error::{Failure, Kind};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, faccessat};

/// The directory below which apps' directories are made. [`StageBase::find_all`] checks it once; later changes show only
/// when it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageBase {
    path: PathBuf,
}

impl StageBase {
    /// The requested place, or the usable ones of `TMPDIR`, `/tmp`, `/var/tmp`: at least one.
    ///
    /// The tool requests a place, else `GANTRY_STAGE_DIR` does. A usable place is a writable directory from which
    /// programs can be started. An empty variable counts as not set. Only use shows whether a place has room:
    /// [`StageBase::first_with_room`].
    ///
    /// # Errors
    /// When the requested place is not usable (no other is tried), or none of the usual ones: with each one's reason.
    pub(crate) fn find_all(asked: Option<&Path>) -> Result<Vec<Self>, Failure> {
        find_all_by(asked, &env, &look_at)
    }

    /// Makes something in the first of these places that has room for it. `make` leaves nothing where it fails.
    ///
    /// # Errors
    /// The failure of the first place; its message has those of the others, too. A failure that is not about room or
    /// access ends the search.
    pub(crate) fn first_with_room<T>(
        places: &[Self],
        mut make: impl FnMut(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut failures: Vec<Failure> = Vec::new();
        for place in places {
            match make(place) {
                Err(failure) if matches!(failure.kind(), Kind::System | Kind::NoAccess) => {
                    failures.push(failure)
                }
                made => return made,
            }
        }
        let all = failures.iter().map(Failure::message).collect::<Vec<_>>().join("; ");
        let Some(first) = failures.first() else {
            return Err(Failure::new(Kind::Internal, "find a place for storage: there is none to try"));
        };
        Err(Failure::new(first.kind(), all).with_hint_of(first.hint()))
    }

    /// The place where another node has its storage, because a session has the same path on every node.
    ///
    /// # Errors
    /// When it is not usable here, or another place was requested.
    pub(crate) fn follow(there: &Path, asked: Option<&Path>) -> Result<Self, Failure> {
        follow_by(there, asked, &env, &look_at)
    }

    /// The place for files that processes share as memory: a file system in memory. Programs need not start from it.
    /// `None`: this machine has none that other users cannot change.
    pub(crate) fn in_memory() -> Option<Self> {
        let path = Path::new("/dev/shm");
        let is_usable = matches!(look_at(path), Ok(()) | Err(Unfit::NoExec));
        (is_usable && Trust::of_process().check_dir(path).is_ok()).then(|| Self { path: path.to_owned() })
    }

    /// Opens the directory.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(open(&self.path, flags, Mode::empty())?)
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place that another process of this agent has chosen.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

/// Why a place is not usable.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unfit {
    NotAbsolute,
    Separator,
    Missing,
    NotADirectory,
    NotWritable,
    NoExec,
    Untrusted(Distrust),
    Unreadable(Errno),
}

impl Unfit {
    const fn kind(&self) -> Kind {
        match self {
            Self::NotAbsolute | Self::Separator | Self::NotADirectory => Kind::Invalid,
            Self::Missing => Kind::NotFound,
            Self::NotWritable | Self::Untrusted(_) | Self::Unreadable(_) => Kind::NoAccess,
            Self::NoExec => Kind::Unsupported,
        }
    }

    fn hint(&self) -> String {
        let text = match self {
            Self::NotAbsolute => "give it as an absolute path",
            Self::Separator => "name a directory without `:`, `;` and `$`, or a link to this one",
            Self::Missing => "create the directory on every node, or name another one",
            Self::NotADirectory => "name a directory",
            Self::NotWritable => "name a directory that you may write to on every node",
            Self::NoExec => {
                "tool daemons are started from it: name a directory on a file system mounted without noexec"
            }
            Self::Untrusted(distrust) => {
                return format!(
                    "{} (or chmod +t where all may use it); or name a directory of your own",
                    distrust.hint()
                );
            }
            Self::Unreadable(_) => "name another directory",
        };
        text.to_owned()
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("not an absolute path"),
            Self::Separator => {
                f.write_str("has `:`, `;` or `$` in its path, which PATH or LD_LIBRARY_PATH cannot hold")
            }
            Self::Missing => f.write_str("missing"),
            Self::NotADirectory => f.write_str("not a directory"),
            Self::NotWritable => f.write_str("not writable"),
            Self::NoExec => f.write_str("mounted noexec"),
            Self::Untrusted(distrust) => write!(f, "other users could replace its files: {distrust}"),
            Self::Unreadable(errno) => write!(f, "{}", errno.desc()),
        }
    }
}

/// Looks up variables of the environment.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

#[expect(
    clippy::disallowed_methods,
    reason = "the agent is a program of its own and reads its own environment"
)]
fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

type Probe<'a> = &'a dyn Fn(&Path) -> Result<(), Unfit>;

/// The decision, with an injected probe of each place.
fn find_all_by(asked: Option<&Path>, env: Lookup<'_>, probe: Probe<'_>) -> Result<Vec<StageBase>, Failure> {
    if let Some((path, by)) = find_asked(asked, env) {
        return Ok(vec![take(path, by, probe)?]);
    }
    let mut places: Vec<(PathBuf, &str)> =
        set(env, "TMPDIR").map(|path| (path, " (TMPDIR)")).into_iter().collect();
    for usual in ["/tmp", "/var/tmp"] {
        if places.iter().all(|(path, _)| path != Path::new(usual)) {
            places.push((usual.into(), ""));
        }
    }
    let (mut usable, mut reasons) = (Vec::new(), Vec::new());
    for (path, by) in places {
        match fit(&path, probe) {
            Ok(()) => usable.push(StageBase { path }),
            Err(unfit) => reasons.push(format!("{}{by}: {unfit}", path.display())),
        }
    }
    if !usable.is_empty() {
        return Ok(usable);
    }
    Err(Failure::new(Kind::NoAccess, format!("find a place for storage: {}", reasons.join("; ")))
        .with_hint(format!("set {GANTRY_STAGE_DIR} to a writable directory on a file system without noexec")))
}

/// As [`find_all_by`], for [`StageBase::follow`].
fn follow_by(
    there: &Path,
    asked: Option<&Path>,
    env: Lookup<'_>,
    probe: Probe<'_>,
) -> Result<StageBase, Failure> {
    match find_asked(asked, env) {
        Some((path, by)) if path != there => {
            let message = format!("use {} for storage: {by} says {} here", there.display(), path.display());
            Err(Failure::new(Kind::Invalid, message).with_hint("use the same on every node"))
        }
        _ => take(there.to_owned(), "as on other nodes", probe),
    }
}

fn set(env: Lookup<'_>, name: &str) -> Option<PathBuf> {
    env(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from)
}

/// The requested place, and what requested it.
fn find_asked(asked: Option<&Path>, env: Lookup<'_>) -> Option<(PathBuf, &'static str)> {
    match asked {
        Some(path) => Some((path.to_owned(), "the directory asked for")),
        None => Some((set(env, GANTRY_STAGE_DIR)?, GANTRY_STAGE_DIR)),
    }
}

fn take(path: PathBuf, by: &str, probe: Probe<'_>) -> Result<StageBase, Failure> {
    match fit(&path, probe) {
        Ok(()) => Ok(StageBase { path }),
        Err(unfit) => {
            Err(Failure::new(unfit.kind(), format!("use {} ({by}) for storage: {unfit}", path.display()))
                .with_hint(unfit.hint()))
        }
    }
}

fn fit(path: &Path, probe: Probe<'_>) -> Result<(), Unfit> {
    if !path.is_absolute() {
        return Err(Unfit::NotAbsolute);
    }
    // The session's directories become parts of PATH and LD_LIBRARY_PATH. The loader also splits at `;` and expands
    // `$ORIGIN`.
    if path.as_os_str().as_bytes().iter().any(|byte| b":;$".contains(byte)) {
        return Err(Unfit::Separator);
    }
    probe(path)
}

/// Checks a place on this machine.
fn look_at(path: &Path) -> Result<(), Unfit> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => {
            return Err(match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT) => Unfit::Missing,
                Some(Errno::ENOTDIR) => Unfit::NotADirectory,
                other => Unfit::Unreadable(other.unwrap_or(Errno::UnknownErrno)),
            });
        }
    };
    if !meta.is_dir() {
        return Err(Unfit::NotADirectory);
    }
    // Asks the kernel, which takes access lists and read-only mounts into account.
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    if faccessat(AT_FDCWD, path, wanted, AtFlags::AT_EACCESS).is_err() {
        return Err(Unfit::NotWritable);
    }
    if statvfs(path).map_err(Unfit::Unreadable)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(Unfit::NoExec);
    }
    // Programs and libraries are started from this place.
    Trust::of_process().check_dir(path).map_err(Unfit::Untrusted)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use gantry_shared::trust::Why;

    use super::*;

    fn bad() -> [(&'static str, Unfit); 5] {
        let path = std::path::PathBuf::from("/open");
        let open = Distrust { component: path.clone(), path, why: Why::OthersWrite(0o777) };
        [
            ("/missing", Unfit::Missing),
            ("/file", Unfit::NotADirectory),
            ("/ro", Unfit::NotWritable),
            ("/noexec", Unfit::NoExec),
            ("/open", Unfit::Untrusted(open)),
        ]
    }

    fn check(asked: Option<&str>, env: &[(&str, &str)], bad: &[(&str, Unfit)], expected: Result<&str, &str>) {
        let lookup =
            |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        let probe = |path: &Path| {
            bad.iter().find(|(p, _)| Path::new(p) == path).map_or(Ok(()), |(_, unfit)| Err(unfit.clone()))
        };
        let found = find_all_by(asked.map(Path::new), &lookup, &probe);
        match expected {
            Ok(path) => assert_eq!(found.unwrap()[0].path(), Path::new(path)),
            Err(text) => {
                let failure = found.unwrap_err();
                assert!(failure.message().contains(text), "{failure} has no {text:?}");
                assert!(failure.hint().is_some(), "{failure} has no hint");
            }
        }
    }

    #[test]
    fn the_first_place_that_will_do_is_taken() {
        let env = [(GANTRY_STAGE_DIR, "/stage"), ("TMPDIR", "/mine")];
        check(Some("/asked"), &env, &bad(), Ok("/asked"));
        check(None, &env, &bad(), Ok("/stage"));
        check(None, &[(GANTRY_STAGE_DIR, ""), ("TMPDIR", "/mine")], &bad(), Ok("/mine"));
        check(None, &[("TMPDIR", "")], &bad(), Ok("/tmp"));
        check(None, &[], &bad(), Ok("/tmp"));
        for (unfit, _) in bad() {
            check(None, &[("TMPDIR", unfit)], &bad(), Ok("/tmp"));
        }
        check(None, &[("TMPDIR", "relative")], &bad(), Ok("/tmp"));
        check(None, &[], &[("/tmp", Unfit::NoExec)], Ok("/var/tmp"));
    }

    #[test]
    fn a_place_that_was_asked_for_is_not_replaced_by_another() {
        for (path, unfit) in bad() {
            let text = format!("use {path} (the directory asked for) for storage: {unfit}");
            check(Some(path), &[(GANTRY_STAGE_DIR, "/stage")], &bad(), Err(&text));
            let text = format!("use {path} (GANTRY_STAGE_DIR) for storage: {unfit}");
            check(None, &[(GANTRY_STAGE_DIR, path), ("TMPDIR", "/mine")], &bad(), Err(&text));
        }
        check(Some("here"), &[], &bad(), Err("not an absolute path"));
        check(Some("/a:b"), &[], &bad(), Err("has `:`"));
        check(Some("/$HOME"), &[], &bad(), Err("has `:`"));
    }

    #[test]
    fn a_place_without_room_gives_way_to_the_next_unless_it_was_asked_for() {
        let lookup = |_: &str| None;
        let try_all = |asked: Option<&str>, bad: &[(&str, Kind)]| {
            let places = find_all_by(asked.map(Path::new), &lookup, &|_| Ok(())).unwrap();
            let made = StageBase::first_with_room(&places, |base| {
                match bad.iter().find(|(path, _)| Path::new(path) == base.path()) {
                    Some((path, kind)) => {
                        Err(Failure::new(*kind, format!("make {path}: bad")).with_hint("do it"))
                    }
                    None => Ok(base.path().display().to_string()),
                }
            });
            made.map_err(|failure| {
                assert_eq!(failure.hint(), Some("do it"));
                format!("{}: {}", failure.kind(), failure.message())
            })
        };
        let err = |text: &str| Err(text.to_owned());
        assert_eq!(try_all(None, &[]), Ok("/tmp".to_owned()));
        assert_eq!(try_all(None, &[("/tmp", Kind::System)]), Ok("/var/tmp".to_owned()));
        assert_eq!(try_all(None, &[("/tmp", Kind::NoAccess)]), Ok("/var/tmp".to_owned()));
        assert_eq!(try_all(None, &[("/tmp", Kind::Unsupported)]), err("unsupported: make /tmp: bad"));
        let both = [("/tmp", Kind::System), ("/var/tmp", Kind::NoAccess)];
        assert_eq!(try_all(None, &both), err("system: make /tmp: bad; make /var/tmp: bad"));
        assert_eq!(try_all(Some("/mine"), &[("/mine", Kind::System)]), err("system: make /mine: bad"));
    }

    #[test]
    fn a_place_of_another_node_is_taken_unless_another_was_asked_for() {
        let follow = |there: &str, asked: Option<&str>, stage: &str| {
            let env = |name: &str| (name == GANTRY_STAGE_DIR).then(|| OsString::from(stage));
            let probe = |path: &Path| if path.starts_with("/bad") { Err(Unfit::NoExec) } else { Ok(()) };
            let base = follow_by(Path::new(there), asked.map(Path::new), &env, &probe);
            base.map(|base| base.path).map_err(|failure| failure.message().to_owned())
        };
        assert_eq!(follow("/there", None, ""), Ok("/there".into()));
        assert_eq!(follow("/there", Some("/there"), "/stage"), Ok("/there".into()));
        assert_eq!(follow("/there", None, "/there"), Ok("/there".into()));
        assert_eq!(
            follow("/bad", None, "").unwrap_err(),
            "use /bad (as on other nodes) for storage: mounted noexec"
        );
        assert_eq!(
            follow("/there", None, "/stage").unwrap_err(),
            "use /there for storage: GANTRY_STAGE_DIR says /stage here"
        );
        assert_eq!(
            follow("/there", Some("/mine"), "/there").unwrap_err(),
            "use /there for storage: the directory asked for says /mine here"
        );
    }

    #[test]
    fn when_no_place_will_do_every_reason_is_said() {
        let bad = [("/mine", Unfit::NoExec), ("/tmp", Unfit::NotWritable), ("/var/tmp", Unfit::Missing)];
        check(
            None,
            &[("TMPDIR", "/mine")],
            &bad,
            Err("/mine (TMPDIR): mounted noexec; /tmp: not writable; /var/tmp: missing"),
        );
        check(
            None,
            &[("TMPDIR", "/tmp")],
            &bad,
            Err("storage: /tmp (TMPDIR): not writable; /var/tmp: missing"),
        );
    }

    #[test]
    fn this_machine_tells_good_places_from_bad_ones() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("open")).unwrap();
        fs::set_permissions(at("open"), PermissionsExt::from_mode(0o777)).unwrap();
        fs::create_dir(at("sticky")).unwrap();
        fs::set_permissions(at("sticky"), PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(look_at(scratch.path()), Ok(()));
        assert_eq!(look_at(&at("sticky")), Ok(()));
        assert_eq!(look_at(&at("missing")), Err(Unfit::Missing));
        assert_eq!(look_at(&at("file")), Err(Unfit::NotADirectory));
        assert_eq!(look_at(&at("file/below")), Err(Unfit::NotADirectory));
        let why = |name: &str| match look_at(&at(name)) {
            Err(Unfit::Untrusted(distrust)) => (distrust.component, distrust.why),
            other => panic!("{name}: {other:?}"),
        };
        let blame = |name: &str, why: Why| (at(name).canonicalize().unwrap(), why);
        assert_eq!(why("open"), blame("open", Why::OthersWrite(0o777)));
        fs::create_dir(at("open/below")).unwrap();
        assert_eq!(why("open/below"), blame("open", Why::OthersWrite(0o777)));
        fs::create_dir(at("team")).unwrap();
        if nix::unistd::geteuid().is_root() {
            let set = |mode: u32, uid: u32, gid: u32| {
                std::os::unix::fs::chown(at("team"), Some(uid), Some(gid)).unwrap();
                fs::set_permissions(at("team"), PermissionsExt::from_mode(mode)).unwrap();
            };
            set(0o770, 0, 65533);
            assert_eq!(why("team"), blame("team", Why::GroupWrites(65533)));
            set(0o1770, 0, 65533);
            assert_eq!(look_at(&at("team")), Ok(()));
            set(0o755, 65533, 65533);
            assert_eq!(why("team"), blame("team", Why::Owner(65533)));
        }
        // procfs allows no new files, not even for root.
        assert!(matches!(look_at(Path::new("/proc/self")), Err(Unfit::NotWritable | Unfit::NoExec)));
    }

    #[test]
    fn a_directory_without_write_permission_is_not_writable() {
        if crate::testing::rerun_without_root(
            "session::base::tests::a_directory_without_write_permission_is_not_writable",
        ) {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o555)).unwrap();
        assert_eq!(look_at(scratch.path()), Err(Unfit::NotWritable));
    }

    /// Mounts a file system in the mount namespace of a separate process. The mount ends with that process.
    #[test]
    fn a_place_mounted_noexec_is_recognised() {
        const NAME: &str = "session::base::tests::a_place_mounted_noexec_is_recognised";
        const PLACE: &str = "/mnt";
        if std::env::args().any(|arg| arg == crate::testing::IN_NAMESPACE) {
            assert_eq!(look_at(Path::new(PLACE)), Err(Unfit::NoExec));
            return;
        }
        crate::testing::rerun_with_mount(NAME, &format!("mount -t tmpfs -o noexec,mode=0700 none {PLACE}"));
    }
}
