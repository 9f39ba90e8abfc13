//! Files with the content of an earlier one: hard links, in terms of the archive.

use super::*;

/// A second name for the earlier file `of`, executable if `mode` says so.
fn again(name: &str, of: &str, mode: u32) -> Vec<u8> {
    let mut header = changed(header(b'1', name.as_bytes(), 0), 157, of.as_bytes());
    header.set_mode(mode);
    header.set_mtime(1_234_567);
    header.set_cksum();
    block(&header, b"")
}

#[test]
fn a_second_name_gets_a_file_of_its_own_with_its_own_mode_and_time() {
    let node = Fixture::new();
    let long = format!("data/{}/{}", "d".repeat(90), "f".repeat(90));
    let entries = [
        file("data/one", "content"),
        again("bin/two", "data/one", 0o755),
        // A third name, for a second name.
        again("data/three", "bin/two", 0o644),
        [entry(b'L', "long", &format!("{long}\0")), file("short", "far")].concat(),
        [entry(b'K', "link", &format!("{long}\0")), again("lib/near", "", 0o600)].concat(),
    ];
    node.unpack(&archive(&entries)).unwrap();
    let mut found = node.session();
    found.retain(|it| !it.ends_with(" dir"));
    let expected = [
        "bin/two 700 content",
        &format!("{long} 600 far"),
        "data/one 600 content",
        "data/three 600 content",
        "lib/near 600 far",
    ];
    assert_eq!(found, expected);
    let about = |name: &str| fs::metadata(node.root.join(name)).unwrap();
    assert_eq!(about("bin/two").mtime(), 1_234_567);
    // A change to one of them changes no other.
    for name in ["data/one", "bin/two", "data/three"] {
        assert_eq!(about(name).nlink(), 1, "{name}");
    }
}

#[test]
fn a_second_name_of_anything_else_is_refused() {
    let none = "is a hard link to something other than an earlier file of the archive";
    check(&[again("bin/x", "bin/none", 0o644)], none);
    check(&[again("bin/x", "bin/x", 0o644)], none);
    check(&[again("bin/x", "bin/y", 0o644), file("bin/y", "later")], none);
    check(&[again("bin/x", "bin", 0o644)], none);
    check(&[again("bin/x", "bin/first/y", 0o644)], none);
    check(&[again("bin/x", "/etc/passwd", 0o644)], "is a hard link to a name that is an absolute path");
    check(&[again("bin/x", "../outside", 0o644)], "is a hard link to a name that has a part `.` or `..`");
    check(&[again("bin/x", "", 0o644)], "is a hard link to a name that is empty");
    check(&[again("../x", "bin/first", 0o644)], "the name has a part `.` or `..`");
    check(&[again("bin/first", "bin/first", 0o644)], "comes twice");
    let full = changed(header(b'1', b"bin/x", 3), 157, b"bin/first");
    check(&[block(&full, b"abc")], "has content and is not a file");
}

#[test]
fn what_the_session_has_from_before_is_no_content_of_an_archive() {
    let node = Fixture::new();
    fs::write(node.root.join("bin/secret"), "of the session").unwrap();
    symlink(node.scratch.path().join("outside"), node.root.join("lib/node")).unwrap();
    let before = node.list();
    for of in ["bin/secret", "lib/node", "../outside"] {
        let failure = node.unpack(&archive(&[again("bin/x", of, 0o644)])).unwrap_err();
        assert!(failure.message().contains("is a hard link to"), "{failure:?}");
        assert_eq!(node.list(), before);
    }
}

#[test]
fn a_few_bytes_do_not_become_many() {
    let bomb: Vec<_> = (0..900).map(|number| again(&format!("data/{number}"), "data/one", 0o644)).collect();
    let mut entries = vec![file("data/one", &"x".repeat(1000))];
    entries.extend(bomb);
    let bytes = archive(&entries);
    check_bytes(
        &bytes,
        "\"data/10\": with it, more bytes would be copied within the archive than were announced",
    );
    let node = Fixture::new();
    let limits = |copied_bytes| Limits { bytes: bytes.len() as u64, files: 901, copied_bytes };
    let before = node.list();
    node.unpack_within(&bytes, limits(899_999)).unwrap_err();
    assert_eq!(node.list(), before);
    node.unpack_within(&bytes, limits(900_000)).unwrap();
}
