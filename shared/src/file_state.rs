//! What tells one state of a file from another without reading it: both sides remember what they have read in files, for as long as those do not change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A file that was changed less than this ago may change again with the same time stamps.
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
    /// The state in which the file was when it was looked at.
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

    /// Whether a later change is sure to show: the last one is two seconds old at least.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(0));
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed).is_ok_and(|age| age > SETTLED)
    }
}
