//! A machine made of tables, for tests of detection, plans and look-ups.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::Host;

/// A machine made of tables.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    env: Vec<(OsString, OsString)>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl FakeHost {
    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub(crate) fn with_file(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    pub(crate) fn with_link(mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.links.insert(path.into(), target.into());
        self
    }
}

impl Host for FakeHost {
    fn environment(&self) -> Vec<(OsString, OsString)> {
        self.env.clone()
    }

    fn hostname(&self) -> String {
        "fake".to_owned()
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok(PathBuf::from("/work"))
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.links.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
