//! A machine made of tables, for tests of detection, plans and look-ups.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Asked, Host, Question};

/// A machine made of tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeHost {
    env: Vec<(OsString, OsString)>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    links: BTreeMap<PathBuf, PathBuf>,
    answers: BTreeMap<String, Asked>,
    reads: Arc<AtomicUsize>,
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

    /// The output of a command on its standard output and error.
    pub(crate) fn with_answer(mut self, command: &str, stdout: &str, stderr: &str) -> Self {
        let answer = Asked { stdout: stdout.to_owned(), stderr: stderr.to_owned() };
        self.answers.insert(command.to_owned(), answer);
        self
    }

    /// How many files were read.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
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
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let below = self.files.keys().filter_map(|path| path.strip_prefix(directory).ok());
        let mut names: Vec<OsString> = below
            .filter_map(|rest| rest.components().next())
            .map(|name| name.as_os_str().to_owned())
            .collect();
        names.dedup();
        Ok(names)
    }

    fn share(&self) -> Arc<dyn Host> {
        Arc::new(self.clone())
    }

    /// Answers to a command line, whatever its directory, input and variables are.
    fn run(&self, question: Question<'_>) -> io::Result<Asked> {
        let line = question.command.join(OsStr::new(" ")).into_string().expect("text");
        self.answers.get(&line).cloned().ok_or_else(|| io::Error::other(format!("no answer for '{line}'")))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.links.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
