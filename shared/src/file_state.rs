//! The state of a file, compared without reading the file. Both sides cache facts about files until their state
//! changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A file changed less than this ago may change again with the same time stamps.
const SETTLED: Duration = Duration::from_secs(2);

/// One state of one file. The change time cannot be set by programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    dev: u64,
    ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// When it was modified: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// The current state of the file.
    #[must_use]
    pub fn of(meta: &Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether any later change will show: the last change is at least two seconds old.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed).is_ok_and(|age| age > SETTLED)
    }
}
