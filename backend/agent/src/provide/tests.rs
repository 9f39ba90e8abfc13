use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use gantry_shared::wire::staging::{Content, Known, Mark};
use gantry_types::id::{NodeId, SessionId};

use super::*;
use crate::session::{AppDir, AppDirName, StageBase};

struct Fixture {
    scratch: tempfile::TempDir,
    dirs: SessionDirs,
    cache: ContentCache,
    _app: AppDir,
}

impl Fixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let name = "gantry-3kx9w0fz-0123456789abcdef".to_owned();
        let name = AppDirName::parse("3kx9w0fz".parse().unwrap(), name).unwrap();
        let app = AppDir::create(&StageBase::at(scratch.path()), &name, NodeId(0)).unwrap();
        let dirs = app.open_session(SessionId(1)).unwrap().dirs().clone();
        Self { scratch, dirs, cache: ContentCache::default(), _app: app }
    }

    /// A file outside the session.
    fn file(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.scratch.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn provide(&mut self, entries: &[Entry]) -> Result<Vec<u32>, Failure> {
        self.provide_with(entries, None).map(|(missing, _)| missing)
    }

    fn provide_with(
        &mut self,
        entries: &[Entry],
        libc: Option<&LibcNeeds>,
    ) -> Result<(Vec<u32>, Option<OsString>), Failure> {
        let Provided { missing, loader } = provide(&self.dirs, entries, libc, &mut self.cache)?;
        Ok((missing.iter().map(|index| index.0).collect(), loader))
    }
}

fn entry(place: Place, name: &str, source: &Path, content: &str) -> Entry {
    let hash = *blake3::hash(content.as_bytes()).as_bytes();
    let content = Content { size: content.len() as u64, mark: Mark::Blake3(hash) };
    Entry { place, name: name.into(), source: source.into(), content, known: None }
}

#[test]
fn what_the_node_has_is_linked_and_the_rest_is_reported() {
    let mut node = Fixture::new();
    let tool = node.file("tool", "#!/bin/sh", 0o700);
    let lib = node.file("libx.so", "elf", 0o600);
    let entries = [
        entry(Place::Bin, "tool", &tool, "#!/bin/sh"),
        entry(Place::Bin, "gone", &node.scratch.path().join("gone"), "x"),
        entry(Place::Lib, "v1/libx.so", &lib, "elf"),
        entry(Place::Lib, "libx.so", &lib, "ELF"),
        entry(Place::Root, "data/deep/input", &lib, "elf"),
        entry(Place::Root, "a-directory", node.scratch.path(), "elf"),
        // Tests run in the package's directory. It has such a file.
        entry(Place::Root, "relative", Path::new("Cargo.toml"), &fs::read_to_string("Cargo.toml").unwrap()),
        entry(Place::Root, "device", Path::new("/dev/null"), ""),
    ];
    assert_eq!(node.provide(&entries).unwrap(), [1, 3, 5, 6, 7]);
    assert_eq!(fs::read_link(node.dirs.bin.join("tool")).unwrap(), tool);
    assert_eq!(fs::read_link(node.dirs.lib.join("v1/libx.so")).unwrap(), lib);
    assert_eq!(fs::read_link(node.dirs.root.join("data/deep/input")).unwrap(), lib);
    assert!(!node.dirs.lib.join("libx.so").exists());
    assert_eq!(node.provide(&entries).unwrap(), [1, 3, 5, 6, 7], "asked again");
}

#[test]
fn a_binary_that_may_not_be_executed_is_missing() {
    let mut node = Fixture::new();
    let tool = node.file("tool", "x", 0o600);
    assert_eq!(node.provide(&[entry(Place::Bin, "tool", &tool, "x")]).unwrap(), [0]);
    assert_eq!(node.provide(&[entry(Place::Root, "tool", &tool, "x")]).unwrap(), [0; 0]);
}

#[test]
fn a_file_that_other_users_could_change_is_missing() {
    let mut node = Fixture::new();
    let scratch = node.scratch.path().to_owned();
    fs::create_dir(scratch.join("dir")).unwrap();
    let own = node.file("dir/tool", "x", 0o755);
    let old = (Place::Bin, "tool");
    node.provide(&[entry(old.0, old.1, &own, "x")]).unwrap();
    // A link that the session has already, the same file for another name, the session's link once more, and data.
    let wanted = [
        entry(old.0, old.1, &own, "x"),
        entry(Place::Lib, "again", &own, "x"),
        known((Place::Root, "known"), old, false, "x"),
        entry(Place::Root, "data", &own, "x"),
    ];
    let mut check = |path: &Path, mode: u32, owner: u32| {
        let allowed = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let root = nix::unistd::geteuid().is_root();
        if root {
            std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        }
        assert_eq!(node.provide(&wanted).unwrap(), [0, 1, 2, 3], "{} {mode:o} {owner}", path.display());
        if root {
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
        fs::set_permissions(path, allowed).unwrap();
    };
    let dir = scratch.join("dir");
    check(&own, 0o757, 0);
    check(&dir, 0o757, 0);
    check(&dir, 0o1777, 0);
    if nix::unistd::geteuid().is_root() {
        // Where all users or all members of a group may write, any of them could have made the directory.
        std::os::unix::fs::chown(&scratch, None, Some(65533)).unwrap();
        for mode in [0o1777, 0o1775] {
            fs::set_permissions(&scratch, PermissionsExt::from_mode(mode)).unwrap();
            check(&dir, 0o755, 65533);
        }
        fs::set_permissions(&scratch, PermissionsExt::from_mode(0o755)).unwrap();
    }
    assert_eq!(node.provide(&wanted).unwrap(), [0; 0], "nobody can have planted it");
    assert_eq!(fs::read_link(node.dirs.root.join("known")).unwrap(), own);
}

/// An entry whose content the session should have under the name `old`. Its source does not exist on the node.
fn known(new: (Place, &str), old: (Place, &str), executable: bool, content: &str) -> Entry {
    let known = Known { place: old.0, name: old.1.into(), executable, modified: 1_000_000_000 };
    Entry { known: Some(known), ..entry(new.0, new.1, Path::new("/gone"), content) }
}

#[test]
fn what_the_session_has_under_another_name_is_copied_and_each_name_has_a_file_of_its_own() {
    let mut node = Fixture::new();
    fs::create_dir(node.dirs.lib.join("a")).unwrap();
    fs::write(node.dirs.lib.join("a/data"), "content").unwrap();
    let old = (Place::Lib, "a/data");
    let entries = [
        known((Place::Bin, "tool"), old, true, "content"),
        known((Place::Root, "deep/er/data"), old, false, "content"),
        known((Place::Lib, "data"), (Place::Lib, "a/none"), false, "content"),
        known((Place::Lib, "other"), old, false, "CONTENT"),
        known((Place::Lib, "out"), (Place::Root, "../../outside"), false, "content"),
        known((Place::Lib, "dir"), (Place::Lib, "a"), false, "content"),
    ];
    fs::write(node.dirs.root.join("../../outside"), "content").unwrap();
    for _ in 0..2 {
        assert_eq!(node.provide(&entries).unwrap(), [2, 3, 4, 5]);
    }
    let (tool, data) = (node.dirs.bin.join("tool"), node.dirs.root.join("deep/er/data"));
    for (path, mode) in [(&tool, 0o700), (&data, 0o600)] {
        let about = fs::symlink_metadata(path).unwrap();
        assert_eq!((about.permissions().mode() & 0o7777, about.is_file()), (mode, true));
        assert_eq!(std::os::unix::fs::MetadataExt::mtime(&about), 1_000_000_000);
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&about), 1);
    }
    fs::write(&tool, "changed").unwrap();
    assert_eq!(
        (
            fs::read_to_string(&data).unwrap().as_str(),
            fs::read(node.dirs.lib.join("a/data")).unwrap().as_slice()
        ),
        ("content", &b"content"[..])
    );
    let names: Vec<_> = fs::read_dir(&node.dirs.root).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".incoming")), "{names:?}");
    // A file that a daemon has changed no longer has its content.
    assert_eq!(
        node.provide(&[known((Place::Root, "late"), (Place::Bin, "tool"), false, "content")]).unwrap(),
        [0]
    );
}

#[test]
fn what_the_session_has_as_the_nodes_own_file_is_linked_again_where_that_can_be_used() {
    let mut node = Fixture::new();
    let own = node.file("own", "content", 0o600);
    assert_eq!(node.provide(&[entry(Place::Root, "data", &own, "content")]).unwrap(), [0; 0]);
    let old = (Place::Root, "data");
    let entries = [
        known((Place::Root, "again"), old, false, "content"),
        known((Place::Bin, "tool"), old, true, "content"),
    ];
    assert_eq!(node.provide(&entries).unwrap(), [1], "the node's file is not executable");
    assert_eq!(fs::read_link(node.dirs.root.join("again")).unwrap(), own);
}

#[test]
fn the_same_name_from_two_places_needs_one_of_them() {
    let mut node = Fixture::new();
    let here = node.file("here", "x", 0o700);
    let there = node.scratch.path().join("there");
    let entries = [entry(Place::Bin, "t", &there, "x"), entry(Place::Bin, "t", &here, "x")];
    assert_eq!(node.provide(&entries).unwrap(), [0; 0]);
    let entries = [entry(Place::Bin, "u", &there, "y"), entry(Place::Bin, "u", &there, "y")];
    assert_eq!(node.provide(&entries).unwrap(), [0, 1]);
}

#[test]
fn another_content_for_a_name_is_refused_and_both_are_named() {
    let mut node = Fixture::new();
    let (one, two) = (node.file("one", "1", 0o700), node.file("two", "2", 0o700));
    node.provide(&[entry(Place::Bin, "t", &one, "1")]).unwrap();
    let failure = node.provide(&[entry(Place::Bin, "t", &two, "2")]).unwrap_err();
    assert_eq!(failure.kind(), Kind::Invalid);
    for path in [&one, &two] {
        assert!(failure.message().contains(path.to_str().unwrap()), "{failure}");
    }
    // The same content from elsewhere is fine, also when the file was sent there in full.
    let again = node.file("again", "1", 0o700);
    assert_eq!(node.provide(&[entry(Place::Bin, "t", &again, "1")]).unwrap(), [0; 0]);
    fs::write(node.dirs.bin.join("sent"), "2").unwrap();
    assert_eq!(node.provide(&[entry(Place::Bin, "sent", Path::new("/nowhere"), "2")]).unwrap(), [0; 0]);
    node.provide(&[entry(Place::Bin, "sent", &one, "1")]).unwrap_err();
}

#[test]
fn a_link_of_another_node_to_a_file_that_this_node_has_not_is_no_conflict() {
    let mut node = Fixture::new();
    let source = node.file("tool", "old", 0o700);
    // As on a file system that nodes share.
    symlink(&source, node.dirs.bin.join("tool")).unwrap();
    assert_eq!(node.provide(&[entry(Place::Bin, "tool", &source, "new")]).unwrap(), [0]);
    let missing = Path::new("/nowhere/other");
    symlink(missing, node.dirs.bin.join("other")).unwrap();
    assert_eq!(node.provide(&[entry(Place::Bin, "other", missing, "x")]).unwrap(), [0]);
}

#[test]
fn files_and_directories_do_not_take_each_others_place() {
    let mut node = Fixture::new();
    let file = node.file("file", "x", 0o700);
    for name in ["bin", "lib", "tmp"] {
        let failure = node.provide(&[entry(Place::Root, name, &file, "x")]).unwrap_err();
        assert_eq!(failure.kind(), Kind::Invalid, "{failure}");
    }
    node.provide(&[entry(Place::Root, "a", &file, "x")]).unwrap();
    let failure = node.provide(&[entry(Place::Root, "a/b", &file, "x")]).unwrap_err();
    assert_eq!(failure.kind(), Kind::Invalid, "{failure}");
}

#[test]
fn a_directory_that_turned_into_a_link_is_not_followed() {
    let mut node = Fixture::new();
    let file = node.file("file", "x", 0o700);
    let outside = node.scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, node.dirs.root.join("data")).unwrap();
    fs::remove_dir(&node.dirs.lib).unwrap();
    symlink(&outside, &node.dirs.lib).unwrap();
    for (place, name) in [(Place::Root, "data/x"), (Place::Root, "data/y/z"), (Place::Lib, "libx.so")] {
        let failure = node.provide(&[entry(place, name, &file, "x")]).unwrap_err();
        assert_eq!(failure.kind(), Kind::Invalid, "{failure}");
    }
    let root = node.dirs.root.clone();
    fs::rename(&root, root.with_extension("moved")).unwrap();
    symlink(&outside, &root).unwrap();
    node.provide(&[entry(Place::Root, "x", &file, "x")]).unwrap_err();
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn opening_a_source_that_is_a_pipe_does_not_wait() {
    let mut node = Fixture::new();
    let pipe = node.scratch.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(node.provide(&[entry(Place::Bin, "p", &pipe, "")]).unwrap(), [0]);
}

#[test]
fn what_lies_on_a_noexec_mount_is_missing_where_code_is_wanted() {
    if !std::env::args().any(|arg| arg == crate::testing::IN_NAMESPACE) {
        return crate::testing::rerun_with_mount(
            "provide::tests::what_lies_on_a_noexec_mount_is_missing_where_code_is_wanted",
            "mount -t tmpfs -o noexec,mode=0755 none /mnt && printf x > /mnt/file && chmod 755 /mnt/file",
        );
    }
    let mut node = Fixture::new();
    let entries =
        [Place::Bin, Place::Lib, Place::Root].map(|place| entry(place, "f", Path::new("/mnt/file"), "x"));
    assert_eq!(node.provide(&entries).unwrap(), [0, 1]);
}

/// The C library that this test's own program needs.
fn own_needs(version: &str) -> Option<LibcNeeds> {
    let interpreter =
        gantry_shared::elf::read_interpreter(&fs::File::open("/proc/self/exe").unwrap()).unwrap()?;
    let interpreter = std::os::unix::ffi::OsStringExt::from_vec(interpreter);
    Some(LibcNeeds { interpreter, library: "/elsewhere/libc.so.6".into(), version: version.to_owned() })
}

#[test]
fn the_c_library_is_wanted_where_the_nodes_own_is_too_old() {
    let (Some(fine), Some(too_new)) = (own_needs("GLIBC_2.2.5"), own_needs("GLIBC_99.1")) else {
        return crate::skip::skip("this test is linked statically");
    };
    let mut node = Fixture::new();
    let tool = node.file("tool", "tool", 0o700);
    let ld_name = Path::new(&fine.interpreter).file_name().unwrap().to_owned();
    let ld = node.file("ld", "ld", 0o700);
    let entries = [
        entry(Place::Bin, "tool", &tool, "tool"),
        entry(Place::Loader, ld_name.to_str().unwrap(), &ld, "ld"),
        entry(Place::Loader, "libc.so.6", &node.scratch.path().join("gone"), "libc"),
    ];
    assert_eq!(node.provide_with(&entries, Some(&fine)).unwrap(), (vec![], None));
    assert!(!node.dirs.root.join("loader").exists());
    let loader = Some(ld_name.clone());
    assert_eq!(
        node.provide_with(&entries, Some(&too_new)).unwrap(),
        (vec![1, 2], loader.clone()),
        "copies only"
    );
    fs::create_dir(node.dirs.root.join("loader")).unwrap();
    fs::write(node.dirs.root.join("loader").join(&ld_name), "ld").unwrap();
    assert_eq!(node.provide_with(&entries, Some(&too_new)).unwrap(), (vec![2], loader), "unpacked already");
    assert_eq!(
        node.provide_with(&entries[..1], Some(&too_new)).unwrap(),
        (vec![], None),
        "no loader is sent"
    );
    assert_eq!(node.provide_with(&entries, None).unwrap(), (vec![2], None), "not said to need it");
    let invalid = LibcNeeds { interpreter: "ld.so".into(), ..too_new };
    assert_eq!(node.provide_with(&entries, Some(&invalid)).unwrap_err().kind(), Kind::Invalid);
}
