use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use tokio::io::AsyncReadExt;

use super::*;
use crate::staging::content::{Contents, Source};

fn want(place: Place, name: impl Into<OsString>, source: &Path) -> Want {
    let facts = Contents::default().look(source).unwrap();
    let source = Arc::new(Source { path: source.into(), facts });
    Want { place, name: name.into().into(), source, known: None }
}

async fn read(archive: Archive, packed: bool) -> (io::Result<Vec<u8>>, Sent) {
    let mut reader = archive.start(packed, |_| ());
    let sent = reader.watch();
    let mut bytes = Vec::new();
    let read = reader.read_to_end(&mut bytes).await;
    drop(reader);
    let sent = std::mem::take(&mut *lock(&sent));
    (read.map(|_| bytes), sent)
}

/// Path, mode, modification time and content of an archive's files. A hard link has the content of its target.
fn unpack(bytes: &[u8]) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let mut unpacked = BTreeMap::<PathBuf, (u32, u64, Vec<u8>)>::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        let mut content = Vec::new();
        match entry.header().entry_type() {
            tar::EntryType::Regular => drop(entry.read_to_end(&mut content).unwrap()),
            tar::EntryType::Link => {
                let original = entry.link_name().unwrap().expect("a name");
                content.clone_from(&unpacked[&*original].2);
                assert_eq!(entry.size(), 0);
            }
            other => panic!("{other:?}"),
        }
        let (mode, time) = (entry.header().mode().unwrap(), entry.header().mtime().unwrap());
        unpacked.insert(entry.path().unwrap().into_owned(), (mode, time, content));
    }
    unpacked
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// When the files below were changed, in seconds since 1970.
const TOOL_TIME: u64 = 1_600_000_000;
const DATA_TIME: u64 = 1_700_000_000;

#[tokio::test]
async fn archived_files_come_out_unchanged_and_the_length_is_right() {
    let folder = Folder::new();
    let long = format!("{}/{}", "d".repeat(120), "é".repeat(100));
    let longer = format!("{long}x");
    for length in [0, 1, 511, 512, 513, 3 * PIECE_BYTES, 1_000_003] {
        let content = noise(length);
        let (tool, data) = (folder.file("tool", &content), folder.file("data", &content));
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o6755)).unwrap();
        for (path, time) in [(&tool, TOOL_TIME), (&data, DATA_TIME)] {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time)).unwrap();
        }
        let wants = vec![
            want(Place::Bin, "tool", &tool),
            want(Place::Lib, &long, &data),
            want(Place::Lib, &longer, &folder.file("other", "another one")),
            want(Place::Bin, "another", &folder.file("again", "another one")),
            want(Place::Loader, "ld.so", &tool),
            want(Place::Root, ".hidden", &data),
        ];
        for packed in [false, true] {
            let archive = Archive::new(wants.clone()).unwrap();
            let (files, total) = (archive.files(), archive.bytes());
            assert_eq!(archive.copied_bytes(), 3 * length as u64 + 11);
            assert!(total < length as u64 + 24 * BLOCK_BYTES, "{total} bytes for one content of {length}");
            let (bytes, sent) = read(archive, packed).await;
            let bytes = bytes.unwrap();
            assert_eq!(sent.bytes, bytes.len() as u64);
            let bytes = if packed { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
            assert_eq!((files, total), (6, bytes.len() as u64), "{length} bytes, packed: {packed}");
            let unpacked = unpack(&bytes);
            let check = |path: &str, mode, time| {
                let (found_mode, found_time, found) = &unpacked[Path::new(path)];
                assert_eq!((*found_mode, *found_time), (mode, time), "{path}");
                assert!(*found == content, "{path} of {length} bytes");
            };
            assert_eq!(unpacked.len(), 6);
            assert_eq!(unpacked[Path::new("bin/another")].2, b"another one");
            check("bin/tool", 0o700, TOOL_TIME);
            check(&format!("lib/{long}"), 0o600, DATA_TIME);
            check("loader/ld.so", 0o700, TOOL_TIME);
            check(".hidden", 0o600, DATA_TIME);
        }
    }
}

#[tokio::test]
async fn progress_counts_the_archive_up_to_its_last_byte() {
    let folder = Folder::new();
    let file = folder.file("file", noise(500_000));
    for packed in [false, true] {
        let archive = Archive::new(vec![want(Place::Root, "file", &file)]).unwrap();
        let total = archive.bytes();
        let steps = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&steps);
        let mut reader = archive.start(packed, move |bytes| lock(&told).push(bytes));
        reader.read_to_end(&mut Vec::new()).await.unwrap();
        let steps = lock(&steps);
        assert!(steps.is_sorted() && steps.len() > 3, "{steps:?}");
        assert_eq!(steps.last(), Some(&total));
    }
}

#[tokio::test]
async fn a_changed_file_ends_the_stream_and_is_named() {
    let check = async |change: &dyn Fn(&Path), expected: &str| {
        let folder = Folder::new();
        let (fine, file) = (folder.file("fine", noise(1000)), folder.file("the-one", noise(300_000)));
        let wants = vec![want(Place::Root, "fine", &fine), want(Place::Root, "the-one", &file)];
        let archive = Archive::new(wants).unwrap();
        change(&file);
        let (read, sent) = read(archive, false).await;
        assert!(read.is_err(), "{expected}");
        let error = sent.failure.expect("the reason").to_string();
        assert!(error.contains("the-one") && error.contains(expected), "{error}");
    };
    let changed = "it changed while it was being sent";
    check(&|file| std::fs::remove_file(file).unwrap(), "No such file").await;
    check(&|file| std::fs::write(file, noise(299_999)).unwrap(), changed).await;
    check(&|file| std::fs::write(file, noise(300_001)).unwrap(), changed).await;
    let replace = |file: &Path| {
        std::fs::rename(file, file.with_extension("old")).unwrap();
        std::fs::copy(file.with_extension("old"), file).unwrap();
    };
    check(&replace, changed).await;
    let directory = |file: &Path| {
        std::fs::remove_file(file).unwrap();
        std::fs::create_dir(file).unwrap();
    };
    check(&directory, "not a regular file").await;
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_sent_ends_the_stream() {
    let check = async |change: &dyn Fn(&std::fs::File)| {
        let folder = Folder::new();
        // More than the queue holds, so that the thread is in the middle of the file.
        let length = 4 * PIECES * PIECE_BYTES;
        let file = folder.file("file", noise(length));
        let archive = Archive::new(vec![want(Place::Root, "file", &file)]).unwrap();
        let mut reader = archive.start(false, |_| ());
        let sent = reader.watch();
        reader.read_exact(&mut [0; 1000]).await.unwrap();
        change(&std::fs::OpenOptions::new().write(true).open(&file).unwrap());
        assert!(reader.read_to_end(&mut Vec::new()).await.is_err());
        let failure = lock(&sent).failure.take().expect("the reason").to_string();
        assert!(failure.ends_with("it changed while it was being sent"), "{failure}");
    };
    check(&|file| file.set_len(100_000).unwrap()).await;
    check(&|file| file.set_len(100_000_000).unwrap()).await;
    check(&|file| std::os::unix::fs::FileExt::write_all_at(file, b"other", 5).unwrap()).await;
}

#[tokio::test]
async fn content_decides_where_time_stamps_say_nothing() {
    let folder = Folder::new();
    let file = folder.file("file", "one");
    let mut want = want(Place::Root, "file", &file);
    let mark = Mark::Blake3(*blake3::hash(b"two").as_bytes());
    Arc::get_mut(&mut want.source).unwrap().facts.content.mark = mark;
    let (read, sent) = read(Archive::new(vec![want]).unwrap(), false).await;
    assert!(read.is_err() && sent.failure.is_some());
}

#[tokio::test]
async fn a_reader_that_goes_ends_the_thread() {
    let folder = Folder::new();
    let file = folder.file("file", noise(4 * PIECES * PIECE_BYTES));
    let archive = Archive::new(vec![want(Place::Root, "file", &file)]).unwrap();
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let mut reader = archive.start(false, move |_| _ = &ended);
    reader.read_exact(&mut [0; 10]).await.unwrap();
    drop(reader);
    // The thread drops its progress callback.
    assert!(tokio::time::timeout(std::time::Duration::from_secs(60), end).await.unwrap().is_err());
}

#[test]
fn names_that_no_archive_can_have_are_refused() {
    let folder = Folder::new();
    let file = folder.file("file", "x");
    for name in ["../up", "a/../../b"] {
        assert!(Archive::new(vec![want(Place::Root, name, &file)]).is_err(), "{name}");
    }
}
