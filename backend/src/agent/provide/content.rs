//! Whether a file has a certain content: by size first, then by BLAKE3, which is remembered for as long as the file does not change.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use gantry_shared::wire::staging::{Content, Mark};

/// Most files that are remembered. When there are more it starts afresh: a session has hundreds, and an app few sessions.
const MAX_FILES: usize = 4096;

/// A file that was changed less than this ago is not remembered: a second change could bear the same time stamps.
const SETTLED: Duration = Duration::from_secs(2);

/// What tells one state of a file from another without reading it. The change time cannot be set by programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileState {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed).is_ok_and(|age| age > SETTLED)
    }
}

/// The hashes of files that were read, by their state.
#[derive(Debug, Default)]
pub(crate) struct ContentCache {
    hashes: HashMap<FileState, [u8; 32]>,
    #[cfg(test)]
    pub(super) files_read: u32,
}

impl ContentCache {
    /// Whether the file has that many bytes with that hash. Reads it, if at all, from its beginning to its end in small pieces. A file that
    /// cannot be read, or that changes meanwhile, has no content.
    pub(super) fn is_same(&mut self, file: &File, content: &Content) -> bool {
        let Ok(state) = FileState::of(file) else { return false };
        state.size == content.size
            && match &content.mark {
                Mark::Blake3(hash) => self.hash(file, state).is_ok_and(|found| found == *hash),
                Mark::BuildId(_) => false,
            }
    }

    fn hash(&mut self, file: &File, state: FileState) -> io::Result<[u8; 32]> {
        if let Some(hash) = self.hashes.get(&state) {
            return Ok(*hash);
        }
        #[cfg(test)]
        {
            self.files_read += 1;
        }
        let mut hasher = blake3::Hasher::new();
        // A file that grows under our eyes must not keep us.
        hasher.update_reader(file.take(state.size.saturating_add(1)))?;
        let hash = *hasher.finalize().as_bytes();
        if FileState::of(file)? != state {
            return Err(io::Error::other("the file changed while it was read"));
        }
        if state.is_settled() {
            if self.hashes.len() >= MAX_FILES {
                self.hashes.clear();
            }
            self.hashes.insert(state, hash);
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    fn same(cache: &mut ContentCache, path: &std::path::Path, content: &[u8]) -> bool {
        let mark = Mark::Blake3(*blake3::hash(content).as_bytes());
        cache.is_same(&File::open(path).unwrap(), &Content { size: content.len() as u64, mark })
    }

    #[test]
    fn content_is_told_by_size_and_hash() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let content = vec![7; 300_000];
        std::fs::write(&path, &content).unwrap();
        let mut cache = ContentCache::default();
        assert!(same(&mut cache, &path, &content));
        assert!(!same(&mut cache, &path, &vec![8; 300_000]));
        let read = cache.files_read;
        assert!(!same(&mut cache, &path, &content[1..]), "another size");
        assert_eq!(cache.files_read, read, "another size needs no reading");
    }

    #[test]
    fn a_file_that_is_settled_is_read_once() {
        let mut cache = ContentCache::default();
        let path = std::path::Path::new("/etc/passwd");
        let content = std::fs::read(path).unwrap();
        assert!(FileState::of(&File::open(path).unwrap()).unwrap().is_settled());
        assert!(same(&mut cache, path, &content) && same(&mut cache, path, &content));
        assert_eq!(cache.files_read, 1);
    }

    #[test]
    fn a_file_that_was_just_changed_is_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let mut cache = ContentCache::default();
        assert!(same(&mut cache, &path, b"one"));
        OpenOptions::new().write(true).open(&path).unwrap().write_all(b"two").unwrap();
        assert!(same(&mut cache, &path, b"two"));
        assert_eq!(cache.files_read, 2);
    }
}
