//! Archives from any bytes. Nothing outside of the session may change, no link may come into it, and a failure may leave
//! no remains.
//!
//! The first byte selects how the rest is used: unchanged, or with plausible headers. Random bytes hardly ever have the
//! correct checksum of a header.

#![no_main]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gantry_agent::unpack::{Limits, unpack};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;

/// Links that the session has before.
const LINKS: [&str; 2] = ["lib/dangling", "lib/node"];

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let mut archive = bytes.to_vec();
    if how & 1 == 1 {
        mend(&mut archive);
    }
    let scratch = scratch();
    let session = furnish(scratch);
    let root = fs::File::open(&session).expect("the session can be opened").into();
    let limits = Limits { bytes: archive.len() as u64, files: 100, copied_bytes: 1 << 20 };
    let unpacked = unpack(&archive[..], &root, 1, limits, || Ok(()));
    check(scratch, &session, unpacked.is_ok());
    // The folder is made again each time. After a failure it stays for inspection.
    drop(fs::remove_dir_all(scratch));
});

/// In memory where that is possible: a directory for this process.
fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        base.join(format!("gantry-fuzz-unpack-{}", std::process::id()))
    })
}

/// A session with a file of its own, and with a link to a file of the node.
fn furnish(scratch: &Path) -> PathBuf {
    let session = scratch.join("s1");
    for dir in ["bin", "lib", "tmp"] {
        fs::create_dir_all(session.join(dir)).expect("directories can be made");
    }
    fs::write(scratch.join("outside"), "as it was").expect("files can be written");
    fs::write(session.join("bin/here"), "here").expect("files can be written");
    let [dangling, node] = LINKS.map(|link| session.join(link));
    symlink("/../outside", dangling).expect("links can be made");
    symlink(scratch.join("outside"), node).expect("links can be made");
    session
}

fn check(scratch: &Path, session: &Path, unpacked: bool) {
    assert_eq!(names(scratch), ["outside", "s1"]);
    assert_eq!(fs::read(scratch.join("outside")).expect("it is there"), b"as it was");
    assert_eq!(fs::read(session.join("bin/here")).expect("it is there"), b"here");
    if !unpacked {
        assert_eq!(names(session), ["bin", "lib", "tmp"]);
        assert_eq!(names(&session.join("bin")), ["here"]);
        assert_eq!(names(&session.join("lib")), ["dangling", "node"]);
        assert_eq!(names(&session.join("tmp")), [""; 0]);
    }
    assert!(!session.join(".incoming-1").exists());
    check_links(session, &LINKS.map(|link| session.join(link)));
}

/// No link but those of `before`.
fn check_links(dir: &Path, before: &[PathBuf]) {
    for name in names(dir) {
        let path = dir.join(name);
        let meta = fs::symlink_metadata(&path).expect("it is there");
        if meta.is_dir() {
            check_links(&path, before);
        } else {
            assert!(!meta.is_symlink() || before.contains(&path), "{} is a link", path.display());
        }
    }
}

fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).expect("it can be read");
    let mut names: Vec<OsString> = entries.map(|entry| entry.expect("it can be read").file_name()).collect();
    names.sort();
    names
}

/// Writes into each header its magic, a length within the archive, and its checksum.
fn mend(archive: &mut Vec<u8>) {
    let mut at = 0;
    while at + BLOCK <= archive.len() {
        let rest = archive.len() - at - BLOCK;
        let header = &mut archive[at..at + BLOCK];
        let size = usize::from(header[124]) % (rest + 1).min(256);
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[136..148].fill(b' ');
        let mode = if header[100] & 1 == 1 { b"0000755\0" } else { b"0000644\0" };
        header[100..108].copy_from_slice(mode);
        header[257..265].copy_from_slice(b"ustar  \0");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    archive.resize(at + 2 * BLOCK, 0);
}
