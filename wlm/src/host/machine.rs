//! The machine that this process runs on.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::orphan::{Running, ask};
use super::{Asked, FileVersion, Host, Question, sys};

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Host for Machine {
    fn environment(&self) -> Vec<(OsString, OsString)> {
        std::env::vars_os().collect()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Host that reads it")]
    fn env(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    fn hostname(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map(|name| name.trim_end().to_owned())
            .ok()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "localhost".to_owned())
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }

    fn uid(&self) -> u32 {
        sys::effective_uid()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn is_executable(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    }

    fn file_version(&self, path: &Path) -> Option<FileVersion> {
        let found = std::fs::metadata(path).ok()?;
        let changed = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
        Some(FileVersion { file: (found.dev(), found.ino()), changed, bytes: found.len() })
    }

    fn share(&self) -> Arc<dyn Host> {
        Arc::new(*self)
    }

    fn run(&self, question: Question<'_>) -> io::Result<Asked> {
        ask(question, &Running::default())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }
}
