use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

const NAME: &str = "gantry-3kx9w0fz-0123456789abcdef";
const NODE: NodeId = NodeId(0);

fn name() -> AppDirName {
    AppDirName::parse("3kx9w0fz".parse().unwrap(), NAME.to_owned()).unwrap()
}

fn create_as(base: &Path, node: u32) -> Result<AppDir, Failure> {
    AppDir::create(&StageBase::at(base), &name(), NodeId(node))
}

fn create(base: &Path) -> AppDir {
    create_as(base, 0).unwrap()
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
    let dir = create(scratch.path());
    assert_eq!(dir.path(), scratch.path().join(NAME));
    assert_eq!(dir.socket(), scratch.path().join(NAME).join("agent-0.sock"));
    assert_eq!(mode(dir.path()), 0o700);
    assert_eq!(mode(&dir.path().join(LEASE_FILE)), 0o600);
    let text = fs::read_to_string(dir.path().join(LEASE_FILE)).unwrap();
    assert!(text.starts_with(&format!("pid {}\n", std::process::id())), "{text}");

    let session = dir.open_session(SessionId(3)).unwrap();
    let dirs = session.dirs().clone();
    for path in [&dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    fs::write(dirs.tmp.join("left behind"), "x").unwrap();
    session.remove().unwrap();
    assert!(!dirs.root.exists());
    let _other = dir.open_session(SessionId(4)).unwrap();
    dir.leave().unwrap();
    assert!(is_empty(scratch.path()));
}

#[test]
fn only_names_of_the_apps_own_directory_are_taken() {
    let app = "3kx9w0fz".parse().unwrap();
    for name in ["", "..", "gantry-3kx9w0fz-../../../../etc/x", "gantry-3kx9w0f0-0123456789abcdef", "tmp"] {
        assert_eq!(AppDirName::parse(app, name.to_owned()).unwrap_err().kind(), Kind::Protocol, "{name}");
    }
}

/// The umask belongs to the whole process, so this test runs in its own process.
#[test]
fn directories_are_private_under_any_umask() {
    const TEST: &str = "session::app_dir::tests::directories_are_private_under_any_umask";
    if crate::testing::rerun_without_root(TEST) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for mask in [0o000, 0o777] {
        let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
        let made = create_as(scratch.path(), 0).and_then(|dir| Ok((dir.open_session(SessionId(1))?, dir)));
        nix::sys::stat::umask(before);
        let (session, dir) = made.unwrap();
        let dirs = session.dirs();
        for path in [dir.path(), &dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp] {
            assert_eq!(mode(path), 0o700, "{} under {mask:o}", path.display());
        }
        assert_eq!(mode(&dir.path().join(LEASE_FILE)), 0o600);
    }
}

#[test]
fn dropping_removes_the_directory_too() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = create(scratch.path());
    dir.open_session(SessionId(1)).unwrap();
    drop(dir);
    assert!(is_empty(scratch.path()));
}

#[test]
fn nodes_on_one_file_system_share_the_directory_and_the_last_one_removes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (first, second) = (create_as(scratch.path(), 0).unwrap(), create_as(scratch.path(), 1).unwrap());
    assert_eq!(first.path(), second.path());
    assert_ne!(first.socket(), second.socket());
    let (one, other) =
        (first.open_session(SessionId(1)).unwrap(), second.open_session(SessionId(1)).unwrap());
    assert_eq!(one.dirs(), other.dirs());
    let dirs = other.dirs().clone();
    fs::write(dirs.bin.join("tool"), "x").unwrap();
    one.remove().unwrap();
    assert!(dirs.bin.join("tool").exists(), "the other node's daemons still run");
    first.leave().unwrap();
    assert!(dirs.bin.join("tool").exists());
    other.remove().unwrap();
    assert!(!dirs.root.exists());
    second.leave().unwrap();
    assert!(is_empty(scratch.path()));
    // In any order, and repeatedly: many agents at once, each on its own thread.
    std::thread::scope(|scope| {
        for node in 0..8 {
            let base = scratch.path();
            scope.spawn(move || {
                for number in 0..20 {
                    let dir = create_as(base, node).unwrap();
                    let session = dir.open_session(SessionId(number)).unwrap();
                    assert!(session.dirs().tmp.is_dir());
                    session.remove().unwrap();
                    dir.leave().unwrap();
                }
            });
        }
    });
    assert!(is_empty(scratch.path()));
}

#[test]
fn what_has_the_name_already_is_never_used() {
    let scratch = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis"), "x").unwrap();
    let path = scratch.path().join(NAME);
    let refused = |expected: &str| {
        let failure = create_as(scratch.path(), 0).unwrap_err();
        assert!(failure.message().contains(NAME) && failure.message().contains(expected), "{failure}");
    };
    symlink(home.path(), &path).unwrap();
    refused("Not a directory");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    refused("Not a directory");
    fs::remove_file(&path).unwrap();
    // An agent never makes a directory that others may write to.
    fs::create_dir(&path).unwrap();
    fs::write(path.join(LEASE_FILE), "").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    refused("a directory of another user");
    if geteuid().is_root() {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        refused("a directory of another user");
    }
    assert_eq!(fs::read(home.path().join("thesis")).unwrap(), b"x");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing unfinished is left");
}

/// A directory of that name whose agent is dead. Its lease names that boot and that machine.
fn dead(base: &Path, boot: &str, host: &str) {
    let path = base.join(NAME);
    fs::create_dir_all(path.join("s1")).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(path.join(LEASE_FILE), format!("pid 1\nstart 1\nboot {boot}\nhost {host}\n")).unwrap();
}

#[test]
fn a_directory_whose_agents_are_dead_is_made_anew() {
    let scratch = tempfile::tempdir().unwrap();
    let here = Owner::this_process().unwrap();
    dead(scratch.path(), &here.boot, &here.host);
    let dir = create(scratch.path());
    assert!(!dir.path().join("s1").exists());
    dir.leave().unwrap();
    assert!(is_empty(scratch.path()));
}

#[test]
fn a_file_system_that_machines_share_without_locks_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    dead(scratch.path(), "another boot", "n7");
    let failure = create_as(scratch.path(), NODE.0).unwrap_err();
    assert_eq!(failure.kind(), Kind::Unsupported);
    assert!(failure.message().contains("\"n7\" has made it on a file system that both share"), "{failure}");
    assert!(failure.hint().unwrap().contains("GANTRY_STAGE_DIR"));
    assert!(scratch.path().join(NAME).join("s1").exists(), "it is that machine's");
}

#[test]
fn a_session_directory_that_was_replaced_by_a_link_takes_nothing_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis"), "x").unwrap();
    let dir = create(scratch.path());
    let mut sessions = Vec::new();
    for (number, part) in [(1, ""), (2, "bin"), (3, "tmp")] {
        let session = dir.open_session(SessionId(number)).unwrap();
        let root = session.dirs().root.clone();
        let victim = if part.is_empty() { root } else { root.join(part) };
        fs::remove_dir_all(&victim).unwrap();
        symlink(home.path(), &victim).unwrap();
        sessions.push(session);
    }
    let _third = sessions.pop();
    sessions.into_iter().for_each(|session| session.remove().unwrap());
    dir.leave().unwrap();
    assert_eq!(fs::read(home.path().join("thesis")).unwrap(), b"x");
    assert!(is_empty(scratch.path()));
}

#[test]
fn an_app_directory_that_was_replaced_by_a_link_takes_nothing_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis"), "x").unwrap();
    let dir = create(scratch.path());
    let moved = scratch.path().join("moved");
    let path = dir.path().to_owned();
    fs::rename(&path, &moved).unwrap();
    symlink(home.path(), &path).unwrap();
    dir.leave().unwrap_err();
    assert_eq!(fs::read(home.path().join("thesis")).unwrap(), b"x");
    assert!(is_empty(&moved));
}

#[test]
fn a_base_that_takes_no_directories_is_a_failure_with_its_path() {
    let missing = Path::new("/nowhere/at all");
    let failure = create_as(missing, 0).unwrap_err();
    assert_eq!(failure.kind(), Kind::NotFound);
    assert!(failure.message().contains("/nowhere/at all"), "{failure}");
    const TEST: &str = "session::app_dir::tests::a_base_that_takes_no_directories_is_a_failure_with_its_path";
    if crate::testing::rerun_without_root(TEST) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let failure = create_as(scratch.path(), 0).unwrap_err();
    assert_eq!(failure.kind(), Kind::NoAccess);
}
