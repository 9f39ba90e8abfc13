//! Identifies the content of a file, so that nodes can tell whether they have it. The identity is the build id of an
//! ELF file, which takes some pages to read, or BLAKE3 of the whole file. It is cached until the file changes, since
//! every manifest asks about a tool's libraries.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use gantry_shared::build_id::read_build_id;
use gantry_shared::file_state::FileState;
use gantry_shared::wire::staging::{Content, Mark};

use crate::lock::lock;

/// The most files in the cache. Beyond that it is cleared; a manifest has hundreds.
const MAX_FILES: usize = 16 * 1024;

/// The facts about a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) content: Content,
    /// Its owner may execute it.
    pub(crate) executable: bool,
    pub(crate) state: FileState,
}

impl Facts {
    /// When it was modified, in seconds since 1970.
    pub(crate) fn modified(&self) -> u64 {
        u64::try_from(self.state.modified.0).unwrap_or(0)
    }
}

/// A local file and its content's identity. A manifest may have a hundred thousand; each is stored once and shared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) path: Box<Path>,
    pub(crate) facts: Facts,
}

/// The cache of file contents.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    known: Mutex<HashMap<FileState, Mark>>,
}

impl Contents {
    /// Examines a regular file. Blocks. A file without a build id is read completely, in small pieces.
    ///
    /// # Errors
    /// It cannot be read, is not a regular file, or changes meanwhile.
    pub(crate) fn look(&self, path: &Path) -> io::Result<Facts> {
        let file = open_regular(path)?;
        let meta = file.metadata()?;
        let state = FileState::of(&meta);
        // The lock is not held while a file is read.
        let known = lock(&self.known).get(&state).cloned();
        let mark = match known {
            Some(mark) => mark,
            None => self.read(&file, state)?,
        };
        let executable = meta.mode() & 0o100 != 0;
        Ok(Facts { content: Content { size: state.size, mark }, executable, state })
    }

    fn read(&self, file: &File, state: FileState) -> io::Result<Mark> {
        let mark = match read_build_id(file)? {
            Some(id) => Mark::BuildId(id),
            None => {
                let mut hasher = blake3::Hasher::new();
                // The limit stops the read if the file keeps growing.
                hasher.update_reader(file.take(state.size.saturating_add(1)))?;
                Mark::Blake3(*hasher.finalize().as_bytes())
            }
        };
        if FileState::of(&file.metadata()?) != state {
            return Err(io::Error::other("it changed while it was read"));
        }
        if state.is_settled() {
            let mut known = lock(&self.known);
            if known.len() >= MAX_FILES {
                known.clear();
            }
            known.insert(state, mark.clone());
        }
        Ok(mark)
    }

    #[cfg(test)]
    fn remembered(&self) -> usize {
        lock(&self.known).len()
    }
}

/// Opens a regular file. Does not block if a pipe is in its place.
///
/// # Errors
/// It cannot be opened or is something else.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_build_id_is_known_by_it_and_others_by_their_hash() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("text");
        std::fs::write(&path, "some text").unwrap();
        let facts = Contents::default().look(&path).unwrap();
        assert_eq!(facts.content.size, 9);
        assert_eq!(facts.content.mark, Mark::Blake3(*blake3::hash(b"some text").as_bytes()));
        assert!(!facts.executable);
        // A damaged ELF file is treated as any other file.
        std::fs::write(&path, b"\x7fELF\x02\x01").unwrap();
        assert!(matches!(Contents::default().look(&path).unwrap().content.mark, Mark::Blake3(_)));
        let facts = Contents::default().look(Path::new("/bin/sh")).unwrap();
        assert!(matches!(facts.content.mark, Mark::BuildId(_)), "{facts:?}");
        assert!(facts.executable);
    }

    #[test]
    fn a_settled_file_is_cached_and_a_file_changed_just_now_is_not() {
        let contents = Contents::default();
        contents.look(Path::new("/etc/passwd")).unwrap();
        contents.look(Path::new("/etc/passwd")).unwrap();
        assert_eq!(contents.remembered(), 1);
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("fresh");
        std::fs::write(&path, "one").unwrap();
        let one = contents.look(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        assert_ne!(contents.look(&path).unwrap().content, one.content);
        assert_eq!(contents.remembered(), 1);
    }

    #[test]
    fn only_regular_files_have_content() {
        let scratch = tempfile::tempdir().unwrap();
        let pipe = scratch.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), scratch.path(), Path::new("/dev/null"), &scratch.path().join("none")] {
            assert!(Contents::default().look(path).is_err(), "{}", path.display());
        }
    }
}
