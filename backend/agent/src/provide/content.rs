//! Whether a file has a certain content: checks the size first, then the build id or BLAKE3.
//!
//! Results are kept as long as the file does not change.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_shared::build_id::read_build_id;
use gantry_shared::file_state::FileState;
use gantry_shared::wire::staging::{Content, Mark};

use super::libc_version::{LibcVersion, has_version};

/// Most files in the cache. A full cache is cleared: a session has hundreds of files, and an app few sessions.
const MAX_FILES: usize = 4096;

fn state_of(file: &File) -> io::Result<FileState> {
    Ok(FileState::of(&file.metadata()?))
}

/// Most bytes of a file that are searched for a text. C libraries have 2 MiB.
const MAX_SEARCHED_BYTES: u64 = 64 * 1024 * 1024;

/// A question about a file that needs reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    Hash,
    BuildId,
    HasVersion(LibcVersion),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Hash([u8; 32]),
    BuildId(Option<Vec<u8>>),
    HasVersion(bool),
}

/// Answers about files that were read, by their state. Clones share the cache. No clone waits while another reads a
/// file.
#[derive(Debug, Default, Clone)]
pub(crate) struct ContentCache {
    known: Arc<Mutex<HashMap<(FileState, Question), Known>>>,
    #[cfg(test)]
    pub(super) files_read: u32,
}

impl ContentCache {
    /// Whether the file has that size and that mark. If it must read the file, it reads all of it, in small pieces. A
    /// file that cannot be read, or that changes meanwhile, has no content.
    pub(super) fn is_same(&mut self, file: &File, content: &Content) -> bool {
        let Ok(state) = state_of(file) else { return false };
        let question = match &content.mark {
            Mark::Blake3(_) => Question::Hash,
            Mark::BuildId(_) => Question::BuildId,
        };
        state.size == content.size
            && match (self.find_out(file, state, question), &content.mark) {
                (Ok(Known::Hash(found)), Mark::Blake3(hash)) => found == *hash,
                (Ok(Known::BuildId(found)), Mark::BuildId(id)) => found.as_ref() == Some(id),
                _ => false,
            }
    }

    /// Whether a C library has this version or a newer one.
    pub(super) fn has_version(&mut self, library: &File, needed: LibcVersion) -> bool {
        let state = state_of(library);
        let known = state.and_then(|state| self.find_out(library, state, Question::HasVersion(needed)));
        matches!(known, Ok(Known::HasVersion(true)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(FileState, Question), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_out(&mut self, file: &File, state: FileState, question: Question) -> io::Result<Known> {
        let key = (state, question);
        if let Some(known) = self.known().get(&key) {
            return Ok(known.clone());
        }
        #[cfg(test)]
        {
            self.files_read += 1;
        }
        let known = match &key.1 {
            Question::BuildId => Known::BuildId(read_build_id(file)?),
            Question::HasVersion(needed) => {
                Known::HasVersion(has_version(file.take(MAX_SEARCHED_BYTES), *needed)?)
            }
            Question::Hash => {
                let mut hasher = blake3::Hasher::new();
                // Bounded, so that a file which grows meanwhile cannot keep this read going.
                hasher.update_reader(file.take(state.size.saturating_add(1)))?;
                Known::Hash(*hasher.finalize().as_bytes())
            }
        };
        if state_of(file)? != state {
            return Err(io::Error::other("the file changed while it was read"));
        }
        if state.is_settled() {
            let mut all = self.known();
            if all.len() >= MAX_FILES {
                all.clear();
            }
            all.insert(key, known.clone());
        }
        Ok(known)
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
        assert!(state_of(&File::open(path).unwrap()).unwrap().is_settled());
        assert!(same(&mut cache, path, &content) && same(&mut cache, path, &content));
        assert_eq!(cache.files_read, 1);
    }

    #[test]
    fn a_build_id_is_compared_without_reading_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("elf");
        let mut elf = vec![0; 300];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56]) = (64, 56, 1);
        // One PT_NOTE segment of 36 bytes at 200, with a build id of 20 bytes.
        (elf[64], elf[72], elf[96], elf[112]) = (4, 200, 36, 4);
        elf[200..216].copy_from_slice(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0");
        elf[216..236].copy_from_slice(b"0123456789abcdefghij");
        std::fs::write(&path, &elf).unwrap();
        let mut cache = ContentCache::default();
        let mut check = |id: &[u8], size: u64, expected: bool| {
            let content = Content { size, mark: Mark::BuildId(id.to_vec()) };
            assert_eq!(cache.is_same(&File::open(&path).unwrap(), &content), expected);
        };
        check(b"0123456789abcdefghij", 300, true);
        check(b"0123456789abcdefghiX", 300, false);
        check(b"0123456789abcdefghij", 301, false);
        check(b"", 300, false);
        let none = Content { size: 9, mark: Mark::BuildId(Vec::new()) };
        std::fs::write(&path, "no ELF...").unwrap();
        assert!(!cache.is_same(&File::open(&path).unwrap(), &none));
        let program = File::open("/proc/self/exe").unwrap();
        let size = program.metadata().unwrap().len();
        assert!(!cache.is_same(&program, &Content { size, mark: Mark::BuildId(vec![1; 20]) }));
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
