//! The machine that this process runs on.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Asked, FileVersion, Host, IsAnswer, sys};

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Machine {
    /// The environment with additional variables. The last one of a name counts.
    fn with(&self, env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        [self.environment(), env.to_vec()].concat()
    }
}

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

    fn ask_with(
        &self,
        dir: &Path,
        command: &[OsString],
        input: &[u8],
        timeout: Duration,
    ) -> io::Result<Asked> {
        super::orphan::ask_with(dir, command, input, self.environment(), None, timeout)
    }

    fn ask_in_with(
        &self,
        dir: &Path,
        command: &[OsString],
        env: &[(OsString, OsString)],
        timeout: Duration,
    ) -> io::Result<Asked> {
        super::orphan::ask_with(dir, command, &[], self.with(env), None, timeout)
    }

    fn ask_as(
        &self,
        command: &[OsString],
        env: Vec<(OsString, OsString)>,
        timeout: Duration,
    ) -> io::Result<Asked> {
        super::orphan::ask_with(Path::new("/"), command, &[], env, None, timeout)
    }

    fn ask_for_line(
        &self,
        dir: &Path,
        command: &[OsString],
        env: &[(OsString, OsString)],
        is_answer: IsAnswer,
        timeout: Duration,
    ) -> io::Result<Asked> {
        super::orphan::ask_with(dir, command, &[], self.with(env), Some(is_answer), timeout)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }
}
