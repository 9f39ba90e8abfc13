//! Limits of the node itself: memory, disk, mounts.

use super::*;

/// An archive of many small files that is never in memory as a whole.
struct Many {
    next: u32,
    files: u32,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Many {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.bytes.len() && self.next <= self.files {
            let name = format!("data/{}/a-file-with-a-name-of-some-length-{}", self.next / 1000, self.next);
            self.bytes = if self.next == self.files { vec![0; 1024] } else { file(&name, "content") };
            (self.next, self.at) = (self.next + 1, 0);
        }
        let length = to.len().min(self.bytes.len() - self.at);
        to[..length].copy_from_slice(&self.bytes[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// Peak memory counts for the whole process, so this test runs in its own process.
#[test]
fn a_hundred_thousand_small_files_need_little_memory() {
    if crate::testing::rerun_alone(
        "unpack::tests::node_limits::a_hundred_thousand_small_files_need_little_memory",
    ) {
        return;
    }
    const FILES: u32 = 100_000;
    // Disks are slow at this, and the test does not test disks.
    let node = tempfile::tempdir_in("/dev/shm").map_or_else(|_| Fixture::new(), Fixture::below);
    let root = fs::File::open(&node.root).unwrap().into();
    let limits = Limits { bytes: u64::from(FILES) * 1024 + 1024, files: FILES, copied_bytes: 0 };
    // In an existing directory each file is moved separately.
    for dir in 0..50 {
        fs::create_dir_all(node.root.join(format!("data/{dir}"))).unwrap();
    }
    let start = std::time::Instant::now();
    let many = Many { next: 0, files: FILES, bytes: Vec::new(), at: 0 };
    unpack(io::BufReader::new(many), &root, 1, limits, || Ok(())).unwrap();
    println!("{FILES} files in {:?}", start.elapsed());
    let last = format!("data/99/a-file-with-a-name-of-some-length-{}", FILES - 1);
    assert_eq!(fs::read(node.root.join(last)).unwrap(), b"content");
    assert_eq!(fs::read_dir(node.root.join("data/7")).unwrap().count(), 1000);
    let peak = crate::testing::peak_memory_kib();
    println!("peak memory {peak} KiB");
    assert!(peak < 48 * 1024, "{peak} KiB");
}

#[test]
fn a_full_disk_is_said_to_be_one_and_nothing_stays() {
    if !std::env::args().any(|arg| arg == crate::testing::IN_NAMESPACE) {
        return crate::testing::rerun_with_mount(
            "unpack::tests::node_limits::a_full_disk_is_said_to_be_one_and_nothing_stays",
            "mount -t tmpfs -o size=256k none /mnt && mkdir -p /mnt/s1/bin",
        );
    }
    let root: OwnedFd = fs::File::open("/mnt/s1").unwrap().into();
    let bytes = archive(&[file("bin/small", "x"), file("bin/large", &"x".repeat(1 << 20))]);
    let limits = Limits { bytes: bytes.len() as u64, files: 9, copied_bytes: 0 };
    let failure = unpack(&bytes[..], &root, 1, limits, || Ok(())).unwrap_err();
    assert_eq!(failure.kind(), Kind::System);
    assert!(
        failure.message().contains("bin/large") && failure.hint().unwrap().contains("free some space"),
        "{failure}"
    );
    assert_eq!(tree::names(&root).unwrap(), [c"bin".to_owned()]);
    assert!(fs::read_dir("/mnt/s1/bin").unwrap().next().is_none());
}

#[test]
fn code_is_not_unpacked_where_it_cannot_be_run() {
    if !std::env::args().any(|arg| arg == crate::testing::IN_NAMESPACE) {
        return crate::testing::rerun_with_mount(
            "unpack::tests::node_limits::code_is_not_unpacked_where_it_cannot_be_run",
            "mount -t tmpfs -o noexec none /mnt && mkdir -p /mnt/s1",
        );
    }
    let root: OwnedFd = fs::File::open("/mnt/s1").unwrap().into();
    let unpack = |bytes: Vec<u8>| {
        unpack(&bytes[..], &root, 1, Limits { bytes: 10_000, files: 9, copied_bytes: 0 }, || Ok(()))
    };
    let executable = block(&changed(header(b'0', b"data/x", 0), 100, b"0000755\0"), b"");
    for code in [file("bin/x", ""), file("lib/v/x", ""), file("loader/x", ""), executable] {
        let failure = unpack(archive(&[code])).unwrap_err();
        assert!(failure.message().contains("mounted noexec") && failure.hint().is_some(), "{failure}");
        assert!(tree::names(&root).unwrap().is_empty());
    }
    unpack(archive(&[file("data/x", "")])).unwrap();
}

#[test]
fn a_file_beyond_the_limit_of_sizes_is_refused_before_it_kills() {
    if crate::testing::rerun_alone(
        "unpack::tests::node_limits::a_file_beyond_the_limit_of_sizes_is_refused_before_it_kills",
    ) {
        return;
    }
    use nix::sys::resource::{Resource, setrlimit};
    let node = Fixture::new();
    let before = node.list();
    setrlimit(Resource::RLIMIT_FSIZE, 1000, 1000).unwrap();
    let failure = node.unpack(&archive(&[file("bin/x", &"x".repeat(1001))])).unwrap_err();
    assert!(failure.message().contains("no file here may have more than 1000"), "{failure}");
    assert_eq!(node.list(), before);
}
