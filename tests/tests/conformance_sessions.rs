//! Sessions: private storage on every node, what manifests put there, and that it goes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_backend::SessionDirs;
use gantry_frontend::{App, DaemonRequest, Session};
use gantry_tests::{SOON, Site, on_every_wlm, proc, programs};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;

const LIMIT: Duration = Duration::from_secs(90);
const FIRST: NodeId = NodeId(0);

async fn open(app: &App) -> (Session, SessionDirs) {
    let session = app.session(SOON).await.expect("a session");
    let dirs = session.dirs(FIRST).expect("directories").clone();
    (session, dirs)
}

fn write(site: &Site, name: &str, text: &str) -> PathBuf {
    let path = site.world.work_dir().join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, text).expect("a file");
    path
}

fn assert_private(path: &Path) {
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(metadata.is_dir(), "{}", path.display());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o700, "{}", path.display());
    assert_eq!(metadata.uid(), nix::unistd::geteuid().as_raw());
}

#[test]
fn a_session_has_private_directories_and_they_go_with_it() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        assert!(
            fs::read_dir(site.world.stage_dir()).expect("a folder").next().is_none(),
            "nothing before it is needed"
        );
        let (session, dirs) = open(&app).await;
        for dir in [&dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp] {
            assert_private(dir);
        }
        assert!(dirs.root.starts_with(site.world.stage_dir()), "{dirs:?}");
        assert_private(dirs.root.parent().expect("the app's folder"));
        fs::write(dirs.tmp.join("left"), "by a daemon").expect("a file");
        session.destroy(SOON).await.expect("destroy");
        assert!(!dirs.root.exists());
        // The app and a second session go on.
        let (second, other) = open(&app).await;
        assert_ne!(other.root, dirs.root);
        assert!(other.tmp.is_dir());
        drop(second);
        proc::eventually(SOON, "a dropped session is removed", || !other.root.exists());
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_session_has_one_path_on_every_node() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-N", "3", "-n", "3", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let roots: BTreeSet<PathBuf> =
            (0..3).map(|node| session.dirs(NodeId(node)).expect("a node").root.clone()).collect();
        let root = roots.first().expect("a root").clone();
        assert_eq!(roots.len(), 1, "{roots:?}");
        assert_private(&root);
        assert!(session.dirs(NodeId(3)).is_none());
        let mut manifest = session.manifest();
        manifest.add_file(write(site, "data", "for everybody")).expect("a file");
        let request = DaemonRequest::new("test").args(["-s", root.join("data").to_str().expect("text")]);
        let daemon = manifest.exec_daemon(request, SOON).await.expect("daemons");
        let ends = daemon.wait().await;
        assert_eq!(ends.len(), 3, "{ends:?}");
        assert!(ends.iter().all(|(_, status)| status.code() == Some(0)), "{ends:?}");
        // One machine plays the nodes: what one daemon of three still uses, no other node removes.
        let stays = session.manifest().exec_daemon(DaemonRequest::new("sleep").args(["1000"]), SOON);
        drop(stays.await.expect("daemons"));
        session.destroy(SOON).await.expect("destroy");
        assert!(!root.exists());
        assert!(
            fs::read_dir(site.world.stage_dir()).expect("a folder").next().is_none(),
            "the app's folder goes too"
        );
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_manifest_puts_everything_in_its_place() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let tool = site.world.executable("tool", b"#!/bin/sh\necho I am a tool\n");
        write(site, "plugins/one.so", "one");
        write(site, "plugins/deep/two.so", "two");
        let mut manifest = session.manifest();
        manifest.add_binary(&tool).expect("a binary");
        manifest.add_binary("true").expect("a binary from PATH");
        manifest.add_library(write(site, "libmine.so.1", "a library")).expect("a library");
        manifest.add_file(write(site, "settings", "a = b")).expect("a file");
        manifest.add_lib_dir(site.world.work_dir().join("plugins")).expect("a directory");
        manifest.send(SOON).await.expect("send");
        let read = |path: PathBuf| {
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        assert_eq!(read(dirs.bin.join("tool")), "#!/bin/sh\necho I am a tool\n");
        assert_eq!(
            fs::metadata(dirs.bin.join("tool")).expect("the tool").permissions().mode() & 0o100,
            0o100
        );
        assert!(dirs.bin.join("true").exists());
        assert_eq!(read(dirs.lib.join("libmine.so.1")), "a library");
        assert_eq!(read(dirs.root.join("settings")), "a = b");
        assert_eq!(read(dirs.lib.join("plugins/one.so")), "one");
        assert_eq!(read(dirs.lib.join("plugins/deep/two.so")), "two");
        // What was put there is removed with the session, and the originals are not.
        session.destroy(SOON).await.expect("destroy");
        assert_eq!(read(tool), "#!/bin/sh\necho I am a tool\n");
        assert_eq!(read(site.world.work_dir().join("plugins/deep/two.so")), "two");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_different_things_of_one_name_are_refused() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let (one, two) = (write(site, "a/same", "one"), write(site, "b/same", "two"));
        let mut manifest = session.manifest();
        manifest.add_file(&one).expect("the first");
        manifest.add_file(&one).expect("the same again is no clash");
        let clash = manifest.add_file(&two).expect_err("a clash");
        assert_eq!(clash.kind(), Kind::Invalid);
        assert_eq!(
            clash.to_string(),
            format!("{} and {} have the same name in the session", one.display(), two.display())
        );
        assert!(clash.hint().is_some());
        manifest.add_library(&two).expect("another place is another name");
        manifest.send(SOON).await.expect("send");
        // And against what an earlier manifest has sent.
        let mut later = session.manifest();
        assert_eq!(later.add_file(&two).expect_err("a clash").kind(), Kind::Invalid);
        later.add_file(&one).expect("the same again");
        later.send(SOON).await.expect("send");
        assert_eq!(fs::read_to_string(dirs.root.join("same")).expect("a file"), "one");
        // Another session knows nothing of it.
        let (other, there) = open(&app).await;
        let mut manifest = other.manifest();
        manifest.add_file(&two).expect("no clash");
        manifest.send(SOON).await.expect("send");
        assert_eq!(fs::read_to_string(there.root.join("same")).expect("a file"), "two");
        drop((session, other));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn one_content_of_one_name_is_no_clash_and_is_asked_for_once() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let (one, two) = (write(site, "a/same", "one"), write(site, "b/same", "one"));
        let mut manifest = session.manifest();
        manifest.add_file(&one).expect("the first");
        manifest.add_file(&two).expect("the same content");
        let staged = manifest.send(SOON).await.expect("send");
        assert_eq!((staged.files, staged.files_sent, staged.bytes_sent), (1, 0, 0), "this machine has it");
        assert!(staged.nodes_sent.is_empty());
        // A later one may name it too, and not with another content.
        let mut later = session.manifest();
        later.add_file(&two).expect("the same content");
        assert_eq!(later.send(SOON).await.expect("send").files, 1);
        fs::write(&one, "other").expect("a file");
        let mut later = session.manifest();
        later.add_file(&one).expect("the same path");
        let error = later.send(SOON).await.expect_err("it is another one now");
        assert!(error.to_string().contains("is not what it was"), "{error}");
        drop((session, dirs));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_directory_is_taken_with_hidden_files_and_links_and_without_circles() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        write(site, "tree/.hidden/file", "seen");
        write(site, "elsewhere", "linked");
        let tree = site.world.work_dir().join("tree");
        std::os::unix::fs::symlink("../elsewhere", tree.join("link")).expect("a link");
        let mut manifest = session.manifest();
        manifest.add_lib_dir(&tree).expect("a directory");
        manifest.send(SOON).await.expect("send");
        let read = |name: &str| fs::read_to_string(dirs.lib.join("tree").join(name)).expect("a file");
        assert_eq!((read(".hidden/file").as_str(), read("link").as_str()), ("seen", "linked"));
        std::os::unix::fs::symlink("..", tree.join(".hidden/circle")).expect("a link");
        let error = session.manifest().add_lib_dir(&tree).expect_err("a circle");
        assert!(error.to_string().contains("circle"), "{error}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_daemons_of_one_name_are_refused_and_one_can_run_twice() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, _) = open(&app).await;
        let copy = site
            .world
            .executable("loop_forever", &fs::read(programs::get("ignore_term")).expect("a program"));
        let start =
            async |program: &Path| session.manifest().exec_daemon(DaemonRequest::new(program), SOON).await;
        let first = start(&programs::get("loop_forever")).await.expect("a daemon");
        let second = start(&programs::get("loop_forever")).await.expect("the same daemon again");
        assert_ne!((first.id(), first.processes()), (second.id(), second.processes()));
        assert_eq!(start(&copy).await.expect_err("a clash").kind(), Kind::Invalid);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_reason() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let missing = site.world.work_dir().join("missing");
        let plain = write(site, "plain", "no program");
        let folder = site.world.work_dir();
        let mut manifest = session.manifest();
        let check = |result: gantry_frontend::Result<()>, kind: Kind, text: String| {
            let error = result.expect_err("a refusal");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&text), "{error} has no {text}");
        };
        check(manifest.add_file(&missing), Kind::NotFound, missing.display().to_string());
        check(manifest.add_library(&missing), Kind::NotFound, missing.display().to_string());
        check(manifest.add_binary(&missing), Kind::NotFound, missing.display().to_string());
        check(manifest.add_binary("no-such-program-anywhere"), Kind::NotFound, "not in PATH".to_owned());
        check(manifest.add_binary(&plain), Kind::NoAccess, "not executable".to_owned());
        check(manifest.add_file(&folder), Kind::Invalid, "not a regular file".to_owned());
        check(manifest.add_lib_dir(&missing), Kind::NotFound, missing.display().to_string());
        check(manifest.add_binary(""), Kind::Invalid, "empty".to_owned());
        check(manifest.add_file(write(site, "f/lib", "x")), Kind::Invalid, "own directories".to_owned());
        check(manifest.add_library("libgantry-none.so.7"), Kind::NotFound, "libgantry-none.so.7".to_owned());
        // Refused things are not in it.
        manifest.send(SOON).await.expect("send");
        let in_root: Vec<_> =
            fs::read_dir(&dirs.root).expect("the root").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(in_root.len(), 3, "{in_root:?}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn the_apps_end_takes_its_sessions_along() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let late = session.manifest();
        app.release(SOON).await.expect("release");
        app.wait().await.expect("the end");
        app.gone().await;
        assert!(!dirs.root.exists());
        assert_eq!(late.send(SOON).await.expect_err("the session is gone").kind(), Kind::Gone);
        assert_eq!(session.destroy(SOON).await.expect_err("the session is gone").kind(), Kind::Gone);
        app.close(SOON).await.expect("close");
        site.world.assert_nothing_left();
    });
}
