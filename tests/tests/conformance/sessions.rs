//! Sessions: private storage on every node, the files of manifests, and their removal.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_backend::SessionDirs;
use gantry_frontend::{App, DaemonRequest, Session};
use gantry_tests::{
    Lease, Run, SOON, Site, eventually, on_every_wlm, on_this_machine, outside, path_on, proc, programs,
};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;

const LIMIT: Duration = Duration::from_secs(90);
const FIRST: NodeId = NodeId(0);

/// A session, and its directories on the first node as they are looked at from here.
async fn open(app: &App) -> (Session, SessionDirs) {
    let session = app.session(SOON).await.expect("a session");
    let root = &session.dirs(FIRST).expect("directories").root;
    let dirs = SessionDirs::new(path_on(app, FIRST, root));
    (session, dirs)
}

/// The text of a file of a node.
#[track_caller]
fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    outside::read_text(path).unwrap_or_else(|| panic!("{} cannot be read", path.display()))
}

fn write(site: &Site, name: &str, text: &str) -> PathBuf {
    let path = site.world.work_dir().join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, text).expect("a file");
    path
}

fn assert_private(path: &Path) {
    let (mode, owner) =
        outside::mode_and_owner(path).unwrap_or_else(|| panic!("{} is not there", path.display()));
    assert_eq!(mode, libc::S_IFDIR | 0o700, "{}", path.display());
    assert_eq!(owner, nix::unistd::geteuid().as_raw());
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
        // Nodes elsewhere have it where they have it by default.
        assert!(outside::is_asked() || dirs.root.starts_with(site.world.stage_dir()), "{dirs:?}");
        assert_private(dirs.root.parent().expect("the app's folder"));
        let leave = DaemonRequest::new("sh").args(["-c", "echo by a daemon >$TMPDIR/left"]);
        let daemon = session.manifest().exec_daemon(leave, SOON).await.expect("a daemon");
        assert!(daemon.wait().await[0].1.is_success());
        assert_eq!(read(dirs.tmp.join("left")), "by a daemon\n");
        session.destroy(SOON).await.expect("destroy");
        assert!(!outside::exists(&dirs.root));
        // The app and a second session go on.
        let (second, other) = open(&app).await;
        assert_ne!(other.root, dirs.root);
        assert!(outside::exists(&other.tmp));
        drop(second);
        proc::eventually(SOON, "a dropped session is removed", || !outside::exists(&other.root));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_session_has_one_path_on_every_node() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(3, 3, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let roots: BTreeSet<PathBuf> =
            (0..3).map(|node| session.dirs(NodeId(node)).expect("a node").root.clone()).collect();
        let root = roots.first().expect("a root").clone();
        assert_eq!(roots.len(), 1, "{roots:?}");
        let there: Vec<PathBuf> = (0..3).map(|node| path_on(&app, NodeId(node), &root)).collect();
        there.iter().for_each(|root| assert_private(root));
        assert!(session.dirs(NodeId(3)).is_none());
        let mut manifest = session.manifest();
        manifest.add_file(write(site, "data", "for everybody")).expect("a file");
        let request = DaemonRequest::new("test").args(["-s", root.join("data").to_str().expect("text")]);
        let daemon = manifest.exec_daemon(request, SOON).await.expect("daemons");
        let ends = daemon.wait().await;
        assert_eq!(ends.len(), 3, "{ends:?}");
        assert!(ends.iter().all(|(_, status)| status.code() == Some(0)), "{ends:?}");
        // One machine plays the nodes: a file that one of three daemons still uses is not removed by another node.
        let stays = session.manifest().exec_daemon(DaemonRequest::new("sleep").args(["1000"]), SOON);
        drop(stays.await.expect("daemons"));
        session.destroy(SOON).await.expect("destroy");
        for root in there {
            assert!(!outside::exists(&root));
            let folder = root.parent().expect("the app's folder");
            assert!(!outside::exists(folder), "{} goes too", folder.display());
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_manifest_puts_everything_in_its_place() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
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
        assert_eq!(read(dirs.bin.join("tool")), "#!/bin/sh\necho I am a tool\n");
        let (mode, _) = outside::mode_and_owner(dirs.bin.join("tool")).expect("the tool");
        assert_eq!(mode & 0o100, 0o100);
        assert!(outside::exists(dirs.bin.join("true")));
        assert_eq!(read(dirs.lib.join("libmine.so.1")), "a library");
        assert_eq!(read(dirs.root.join("settings")), "a = b");
        assert_eq!(read(dirs.lib.join("plugins/one.so")), "one");
        assert_eq!(read(dirs.lib.join("plugins/deep/two.so")), "two");
        // The session's files are removed with it, and the originals are not.
        session.destroy(SOON).await.expect("destroy");
        assert_eq!(fs::read_to_string(tool).expect("a file"), "#!/bin/sh\necho I am a tool\n");
        let original = site.world.work_dir().join("plugins/deep/two.so");
        assert_eq!(fs::read_to_string(original).expect("a file"), "two");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_different_things_of_one_name_are_refused() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
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
        // And the files of an earlier manifest conflict, too.
        let mut later = session.manifest();
        assert_eq!(later.add_file(&two).expect_err("a clash").kind(), Kind::Invalid);
        later.add_file(&one).expect("the same again");
        later.send(SOON).await.expect("send");
        assert_eq!(read(dirs.root.join("same")), "one");
        // Another session knows nothing of it.
        let (other, there) = open(&app).await;
        let mut manifest = other.manifest();
        manifest.add_file(&two).expect("no clash");
        manifest.send(SOON).await.expect("send");
        assert_eq!(read(there.root.join("same")), "two");
        drop((session, other));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn one_content_of_one_name_is_no_clash_and_is_asked_for_once() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
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
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        write(site, "tree/.hidden/file", "seen");
        write(site, "elsewhere", "linked");
        let tree = site.world.work_dir().join("tree");
        std::os::unix::fs::symlink("../elsewhere", tree.join("link")).expect("a link");
        let mut manifest = session.manifest();
        manifest.add_lib_dir(&tree).expect("a directory");
        manifest.send(SOON).await.expect("send");
        let read = |name: &str| read(dirs.lib.join("tree").join(name));
        assert_eq!((read(".hidden/file").as_str(), read("link").as_str()), ("seen", "linked"));
        std::os::unix::fs::symlink("..", tree.join(".hidden/circle")).expect("a link");
        let error = session.manifest().add_lib_dir(&tree).expect_err("a circle");
        assert!(error.to_string().contains("circle"), "{error}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_directory_is_taken_whole_or_not_at_all() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let (session, dirs) = open(&app).await;
        let file = write(site, "a/plugins/two.so", "two");
        write(site, "b/plugins/one.so", "one");
        write(site, "b/plugins/two.so", "another two");
        write(site, "dangling/one.so", "one");
        std::os::unix::fs::symlink("nowhere", site.world.work_dir().join("dangling/two.so")).expect("a link");
        fs::create_dir_all(site.world.work_dir().join("empty/deep")).expect("a folder");
        let mut manifest = session.manifest();
        manifest.add_lib_dir(file.parent().expect("a folder")).expect("a directory");
        for (name, kind, words) in [
            ("a/plugins/two.so", Kind::Invalid, "two.so is not a directory"),
            ("b/plugins", Kind::Invalid, "have the same name in the session"),
            ("dangling", Kind::NotFound, "dangling"),
            ("empty", Kind::Invalid, "empty has no file"),
        ] {
            let error = manifest.add_lib_dir(site.world.work_dir().join(name)).expect_err("a refusal");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error} has no {words}");
        }
        assert_eq!(manifest.send(SOON).await.expect("send").files, 1);
        assert_eq!(read(dirs.lib.join("plugins/two.so")), "two");
        app.close(SOON).await.expect("close");
    });
}

/// The threads of this process that wait in open(2) for a file of that name.
fn opening(name: &str) -> usize {
    let memory = fs::File::open("/proc/self/mem").expect("memory");
    let opens = |call: &str| {
        let mut words = call.split(' ');
        let is_open = words.next() == Some(&*libc::SYS_openat.to_string());
        let address = words.nth(1).filter(|_| is_open);
        let address = address.and_then(|it| u64::from_str_radix(it.strip_prefix("0x")?, 16).ok());
        let mut path = [0; 4096];
        // The memory may end before the buffer does.
        let read = address.and_then(|address| memory.read_at(&mut path, address).ok()).unwrap_or(0);
        path[..read].split(|byte| *byte == 0).next().is_some_and(|path| path.ends_with(name.as_bytes()))
    };
    let threads = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let calls = threads.filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok());
    calls.filter(|call| opens(call)).count()
}

/// On this machine: its kernel makes the clients' requests wait.
#[test]
fn clients_whose_files_cannot_be_read_now_do_not_stop_the_app() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let file = write(site, "leased", "x");
        let lease = Lease::take(&file).expect("a lease");
        let (id, file) = (app.id().to_string(), file.display().to_string());
        // More than the tool has workers.
        let clients: Vec<Run> =
            (0..3).map(|_| site.world.gantry(["daemon", &id, "--file", &file, "--", "true"])).collect();
        eventually(SOON, "two threads wait for the file", || opening("/leased") >= 2);
        app.release(SOON).await.expect("release");
        app.wait().await.expect("the end");
        // Otherwise it waited until the kernel took the lease away. A thread may run for a moment meanwhile.
        eventually(SOON, "two threads still wait for the file", || opening("/leased") >= 2);
        drop((lease, clients));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_daemons_of_one_name_are_refused_and_one_can_run_twice() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
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
fn an_unusable_file_is_refused_with_its_reason() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
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
        let in_root = outside::list(&dirs.root).expect("the root");
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
        assert!(!outside::exists(&dirs.root));
        assert_eq!(late.send(SOON).await.expect_err("the session is gone").kind(), Kind::Gone);
        assert_eq!(session.destroy(SOON).await.expect_err("the session is gone").kind(), Kind::Gone);
        app.close(SOON).await.expect("close");
        site.world.assert_nothing_left();
    });
}
