use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use gantry_types::error::Kind;

use super::*;

mod again;
mod node_limits;

/// A session's directory, and the directory around it.
struct Fixture {
    scratch: tempfile::TempDir,
    root: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        Self::below(tempfile::tempdir().unwrap())
    }

    fn below(scratch: tempfile::TempDir) -> Self {
        let root = scratch.path().join("s1");
        for dir in ["bin", "lib", "tmp"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(scratch.path().join("outside"), "as it was").unwrap();
        Self { scratch, root }
    }

    fn unpack(&self, archive: &[u8]) -> Result<(), Failure> {
        self.unpack_within(
            archive,
            Limits { bytes: archive.len() as u64 + (1 << 20), files: 1000, copied_bytes: 10_000 },
        )
    }

    fn unpack_within(&self, archive: &[u8], limits: Limits) -> Result<(), Failure> {
        let root = fs::File::open(&self.root).unwrap().into();
        unpack(archive, &root, 7, limits, || Ok(()))
    }

    /// All files, with kind, mode and content.
    fn list(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        list_into(self.scratch.path(), self.scratch.path(), &mut all);
        all
    }

    /// The files of the session, without those that every session has.
    fn session(&self) -> Vec<String> {
        let all = self.list();
        let in_session = all.iter().filter_map(|(path, what)| Some((path.strip_prefix("s1").ok()?, what)));
        let text = in_session.map(|(path, what)| format!("{} {what}", path.display()));
        text.filter(|text| !matches!(text.split_once(' '), Some(("" | "bin" | "lib" | "tmp", _)))).collect()
    }
}

fn list_into(top: &Path, dir: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let what = if meta.is_dir() {
            list_into(top, &path, all);
            "dir".to_owned()
        } else if meta.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else {
            String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
        };
        let mode = if meta.is_symlink() { 0 } else { meta.mode() & 0o7777 };
        all.insert(path.strip_prefix(top).unwrap().to_owned(), format!("{mode:o} {what}"));
    }
}

/// A header with these values, valid or not.
fn header(kind: u8, name: &[u8], size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header
}

/// A header with some of its bytes changed and the checksum corrected.
fn changed(mut header: tar::Header, at: usize, bytes: &[u8]) -> tar::Header {
    header.as_mut_bytes()[at..at + bytes.len()].copy_from_slice(bytes);
    header.set_cksum();
    header
}

fn block(header: &tar::Header, content: &[u8]) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn entry(kind: u8, name: &str, content: &str) -> Vec<u8> {
    block(&header(kind, name.as_bytes(), content.len() as u64), content.as_bytes())
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(b'0', name, content)
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn what_the_tar_crate_writes_is_unpacked_for_its_owner_alone() {
    let node = Fixture::new();
    let long = format!("data/{}/{}", "d".repeat(150), "f".repeat(150));
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, mode: u32, content: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(1_234_567);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    };
    add("bin/tool", 0o6755, "tool");
    add("lib/v1/libx.so.1", 0o444, "elf");
    add("data/empty", 0, "");
    add("data/big", 0o600, &"0123456789".repeat(20_000));
    add(&long, 0o644, "far");
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    builder.append_link(&mut header, "bin/near", &long).unwrap();
    node.unpack(&builder.into_inner().unwrap()).unwrap();
    let expected = [
        "bin/near 600 far".to_owned(),
        "bin/tool 700 tool".to_owned(),
        "data 700 dir".to_owned(),
        format!("data/big 600 {}", "0123456789".repeat(20_000)),
        format!("{} 700 dir", Path::new(&long).parent().unwrap().display()),
        format!("{long} 600 far"),
        "data/empty 600 ".to_owned(),
        "lib/v1 700 dir".to_owned(),
        "lib/v1/libx.so.1 600 elf".to_owned(),
    ];
    assert_eq!(node.session(), expected);
    assert_eq!(fs::metadata(node.root.join("bin/tool")).unwrap().mtime(), 1_234_567);
}

/// Asserts that the archive is refused with these words. Nothing of it is left, nor of the file in front of it.
#[track_caller]
fn check(bad: &[Vec<u8>], expected: &str) {
    let mut entries = vec![file("bin/first", "fine")];
    entries.extend_from_slice(bad);
    check_bytes(&archive(&entries), expected);
}

#[track_caller]
fn check_bytes(bytes: &[u8], expected: &str) {
    let node = Fixture::new();
    let before = node.list();
    let failure = node.unpack(bytes).unwrap_err();
    assert!(failure.message().contains(expected), "{failure:?} has no {expected:?}");
    assert!(failure.hint().is_some(), "{failure:?}");
    assert_eq!(node.list(), before);
}

#[test]
fn hostile_names_are_refused() {
    check(&[file("/etc/passwd", "")], "\"/etc/passwd\": the name is an absolute path");
    check(&[file("../outside", "x")], "\"../outside\": the name has a part `.` or `..`");
    check(&[file("bin/../../outside", "x")], "has a part `.` or `..`");
    check(&[file("./bin/x", "x")], "has a part `.` or `..`");
    check(&[file("bin//x", "x")], "has an empty part");
    check(&[file("bin/x/", "x")], "has an empty part");
    check(&[file("", "x")], "the name is empty");
    check(&[file(".incoming-8/x", "x")], "such names are gantry's own");
    check(&[file(".incoming-7", "")], "such names are gantry's own");
    check(&[file("bin/\x1b[2J", "x"), file("bin/\x1b[2J", "x")], "\"bin/\\u{1b}[2J\": comes twice");
    let long = |name: &str| [entry(b'L', "././@LongLink", name), file("bin/short", "x")].concat();
    check(&[long("../outside\0")], "has a part `.` or `..`");
    check(&[long("/etc/passwd\0")], "is an absolute path");
    check(&[long("bin/a\0b\0")], "has a NUL");
    check(&[long(&"x".repeat(256))], "has a part that is too long");
    check(&[long(&["a"; 65].join("/"))], "has too many parts");
    check(&[long(&["abcdefghijklmnop".repeat(10).as_str(); 20].join("/"))], "is too long");
    check(&[long("")], "the name is empty");
}

#[test]
fn what_gantry_does_not_write_is_refused() {
    let unknown = "is of a kind that is not unpacked";
    let kinds = [
        (b'2', "is a symbolic link"),
        (b'3', "is a device"),
        (b'4', "is a device"),
        (b'5', "is a directory"),
        (b'6', "is a named pipe"),
        (b'7', unknown),
        (b'S', "is a sparse file"),
        (b'x', "is an extension that is not unpacked"),
        (b'g', "is an extension that is not unpacked"),
        (b'D', unknown),
        (b'V', unknown),
        (0xff, unknown),
    ];
    for (kind, expected) in kinds {
        for content in ["", "19 path=../outside\n"] {
            let linked = changed(header(kind, b"bin/x", content.len() as u64), 157, b"first");
            check(&[block(&linked, content.as_bytes())], &format!("\"bin/x\": {expected}"));
        }
    }
    let ustar = changed(header(b'0', b"bin/x", 0), 257, b"ustar\x0000");
    check(&[block(&ustar, b"")], "a header is malformed");
    check(
        &[[entry(b'K', "././@LongLink", "bin\0"), file("out", "")].concat()],
        "has a link's target and is not a link",
    );
}

#[test]
fn what_comes_twice_is_refused() {
    check(&[file("bin/first", "fine")], "\"bin/first\": comes twice");
    check(&[file("data/x/y", ""), file("data/x", "")], "comes twice");
    check(
        &[file("lib/x", "z"), file("lib/x/y", "z")],
        "\"lib/x/y\": its path leads through a file or a link",
    );
    let twice = |one: &str, other: &str| {
        [entry(one.as_bytes()[0], "one", "a"), entry(other.as_bytes()[0], "two", "b"), file("x", "")].concat()
    };
    check(&[twice("L", "L")], "has an extension twice");
    check(&[twice("K", "K")], "has an extension twice");
}

#[test]
fn announced_lengths_are_bounded() {
    let larger = "larger than the rest of the archive";
    check(&[block(&header(b'0', b"data/large", 4 << 30), b"")], larger);
    let most = b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
    check(&[block(&changed(header(b'0', b"data/huge", 0), 124, most), b"")], larger);
    check(&[entry(b'L', "long", &"x".repeat(17_000))], "has an extension that is too long");
}

#[test]
fn a_time_that_no_file_can_have_is_no_loss() {
    let node = Fixture::new();
    let far = changed(header(b'0', b"far", 0), 136, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    let far_too = changed(header(b'0', b"far-too", 0), 136, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    node.unpack(&archive(&[block(&far, b""), block(&far_too, b"")])).unwrap();
    assert_eq!(node.session(), ["far 600 ", "far-too 600 "]);
}

#[test]
fn damaged_archives_are_refused() {
    let good = archive(&[file("bin/x", "content")]);
    for length in 0..good.len() {
        check_bytes(&good[..length], "it ends too early");
    }
    let end = |bytes: &[u8]| [&good[..1024], bytes].concat();
    check_bytes(&[&good[..], b"x"].concat(), "there is data after its end");
    check_bytes(&[&good[..], &[0; 5000], b"x"].concat(), "there is data after its end");
    check_bytes(&end(&[&[0; 512][..], &[1; 512], &[0; 1024]].concat()), "there is data after its end");
    check_bytes(&end(&[1; 2048]), "a header is malformed");
    let mut wrong = good.clone();
    wrong[0] ^= 1;
    check_bytes(&wrong, "the checksum of a header is wrong");
    check(&[block(&changed(header(b'0', b"x", 0), 124, b"12x\0"), b"")], "a number in a header is malformed");
    check(&[block(&changed(header(b'0', b"x", 0), 257, b"\0\0\0\0\0\0\0\0"), b"")], "a header is malformed");
    check(&[entry(b'L', "long", "x")], "between an extension and its entry");
}

#[test]
fn more_than_was_announced_is_refused() {
    let bytes = archive(&[file("bin/x", "content"), file("bin/y", "content")]);
    let check = |bytes_limit: usize, files: u32, expected: Option<&str>| {
        let node = Fixture::new();
        let before = node.list();
        let limits = Limits { bytes: bytes_limit as u64, files, copied_bytes: 0 };
        match (node.unpack_within(&bytes, limits), expected) {
            (Ok(()), None) => {}
            (Err(failure), Some(expected)) => {
                assert!(failure.message().contains(expected), "{failure:?}");
                assert_eq!(node.list(), before);
            }
            (other, _) => panic!("{other:?} where {expected:?} was expected"),
        }
    };
    check(bytes.len(), 2, None);
    check(bytes.len(), 1, Some("more than the 1 files that were announced"));
    check(bytes.len() - 1, 2, Some("it has more bytes than were announced"));
    check(512, 2, Some("larger than the rest of the archive"));
    check(0, 2, Some("it has more bytes than were announced"));
}

#[test]
fn a_link_to_a_nodes_own_file_of_other_content_makes_way() {
    let node = Fixture::new();
    let theirs = node.scratch.path().join("node-file");
    fs::write(&theirs, "elf").unwrap();
    symlink(&theirs, node.root.join("lib/liby.so")).unwrap();
    // Another node of the same file system has it.
    symlink("/nowhere/libx.so", node.root.join("lib/libx.so")).unwrap();
    node.unpack(&archive(&[file("lib/libx.so", "ELF"), file("lib/liby.so", "ELF")])).unwrap();
    assert_eq!(node.session(), ["lib/libx.so 600 ELF", "lib/liby.so 600 ELF"]);
    assert_eq!(fs::read(&theirs).unwrap(), b"elf", "the node's own file is as it was");
}

#[test]
fn a_link_to_a_nodes_own_file_that_other_users_could_change_makes_way() {
    let node = Fixture::new();
    let theirs = node.scratch.path().join("node-file");
    fs::write(&theirs, "elf").unwrap();
    fs::set_permissions(&theirs, PermissionsExt::from_mode(0o666)).unwrap();
    // Another node of the same file system has such a file that only its user can change.
    symlink(&theirs, node.root.join("lib/libx.so")).unwrap();
    node.unpack(&archive(&[file("lib/libx.so", "elf")])).unwrap();
    assert_eq!(node.session(), ["lib/libx.so 600 elf"]);
}

#[test]
fn what_is_there_stays_and_must_be_the_same() {
    let node = Fixture::new();
    let theirs = node.scratch.path().join("node-file");
    fs::write(&theirs, "elf").unwrap();
    symlink(&theirs, node.root.join("lib/libx.so")).unwrap();
    fs::write(node.root.join("bin/tool"), "tool").unwrap();
    fs::set_permissions(node.root.join("bin/tool"), PermissionsExt::from_mode(0o700)).unwrap();
    symlink("tool", node.root.join("bin/alias")).unwrap();
    let same = [file("lib/libx.so", "elf"), file("bin/tool", "tool"), file("data/new", "n")];
    node.unpack(&archive(&same)).unwrap();
    let expected = [
        "bin/alias 0 -> tool".to_owned(),
        "bin/tool 700 tool".to_owned(),
        "data 700 dir".to_owned(),
        "data/new 600 n".to_owned(),
        format!("lib/libx.so 0 -> {}", theirs.display()),
    ];
    assert_eq!(node.session(), expected);
    let before = node.list();
    let conflicts = [
        (file("bin/tool", "other"), "\"bin/tool\" in place"),
        (file("bin/alias", "other"), "\"tool\" exists there with different content"),
        (file("data", ""), "there with different content"),
        (file("tmp", ""), "there with different content"),
        (file("bin/tool/x", ""), "other than a directory is in its place"),
        (file("bin/alias/x", ""), "other than a directory is in its place"),
    ];
    for (conflict, expected) in conflicts {
        // The rest of it would fit, and is removed again, whatever came first.
        let entries =
            [file("bin/a", "a"), file("zz/z", "z"), file("lib/deep/a", "a"), conflict, file("lib/zz", "z")];
        let failure = node.unpack(&archive(&entries)).unwrap_err();
        assert_eq!(failure.kind(), Kind::Invalid, "{failure}");
        assert!(failure.message().contains(expected), "{failure} has no {expected}");
        assert_eq!(node.list(), before);
    }
}

#[test]
fn a_place_that_turned_into_a_link_is_not_gone_through() {
    let node = Fixture::new();
    let outside = node.scratch.path().join("out");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(node.root.join("lib")).unwrap();
    symlink(&outside, node.root.join("lib")).unwrap();
    let failure = node.unpack(&archive(&[file("lib/x", "x")])).unwrap_err();
    assert!(failure.message().contains("other than a directory is in its place"), "{failure}");
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

#[test]
fn nothing_is_moved_when_it_may_not_be() {
    let node = Fixture::new();
    let before = node.list();
    let bytes = archive(&[file("bin/x", "x")]);
    let root = fs::File::open(&node.root).unwrap().into();
    let limits = Limits { bytes: 10_000, files: 1, copied_bytes: 0 };
    let closed = || Err::<(), _>(Failure::new(Kind::Gone, "the session was closed"));
    let failure = unpack(&bytes[..], &root, 1, limits, closed).unwrap_err();
    assert_eq!((failure.kind(), node.list()), (Kind::Gone, before));
}

#[test]
fn errors_of_what_it_reads_are_told_apart() {
    struct Fails(io::ErrorKind);
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
    }
    let node = Fixture::new();
    let check = |error: io::ErrorKind, expected: Kind| {
        let root = fs::File::open(&node.root).unwrap().into();
        let limits = Limits { bytes: 10_000, files: 1, copied_bytes: 0 };
        assert_eq!(
            unpack(io::BufReader::new(Fails(error)), &root, 1, limits, || Ok(())).unwrap_err().kind(),
            expected
        );
    };
    check(io::ErrorKind::ConnectionAborted, Kind::Gone);
    check(io::ErrorKind::ConnectionReset, Kind::Lost);
    check(io::ErrorKind::InvalidData, Kind::Protocol);
}

fn any_entry() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(".."),
        Just("."),
        Just(""),
        Just("a"),
        Just("b"),
        Just("bin"),
        Just("s1"),
        Just("outside"),
        Just(".incoming-7"),
    ];
    let name = proptest::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"));
    let kind = prop_oneof![
        Just(b'0'),
        Just(b'1'),
        Just(b'2'),
        Just(b'5'),
        Just(b'L'),
        Just(b'K'),
        Just(b'x'),
        any::<u8>()
    ];
    (kind, name.clone(), name).prop_map(|(kind, name, text)| {
        let content = match kind {
            b'0' | b'L' | b'K' => text.clone(),
            _ => String::new(),
        };
        block(
            &changed(header(kind, name.as_bytes(), content.len() as u64), 157, text.as_bytes()),
            content.as_bytes(),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_outside_changes_and_no_half_is_left(
        entries in proptest::collection::vec(any_entry(), 1..6), damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())))
    {
        let node = Fixture::new();
        let before = node.list();
        let mut bytes = archive(&entries);
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let unpacked = node.unpack(&bytes);
        let after = node.list();
        if unpacked.is_err() {
            prop_assert_eq!(&after, &before);
        }
        let outside = |all: &BTreeMap<PathBuf, String>| -> Vec<(PathBuf, String)> {
            all.iter().filter(|(path, _)| !path.starts_with("s1")).map(|(path, what)| (path.clone(), what.clone())).collect()
        };
        prop_assert_eq!(outside(&after), outside(&before));
        prop_assert!(!after.values().any(|what| what.contains("->")), "an archive brings no link");
        prop_assert!(!node.root.join(".incoming-7").exists());
    }
}
