//! Where the output of subjobs goes.
//!
//! A file is opened when a subjob that writes to it starts. So a refused request leaves all files as they are.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::request::OutputTo;

/// Where output without a destination of its own goes.
#[derive(Debug, Default)]
pub enum SubjobOutput {
    /// It is discarded.
    #[default]
    Null,
    /// To these descriptors, for all subjobs together.
    Fds {
        /// Gets standard output.
        stdout: OwnedFd,
        /// Gets standard error.
        stderr: OwnedFd,
    },
}

/// Where one subjob's output goes.
#[derive(Debug)]
pub(super) struct Destination {
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
    /// For what has no file.
    otherwise: Arc<SubjobOutput>,
}

impl Destination {
    /// # Errors
    /// A file cannot be written to, as far as can be told without opening it.
    pub(super) fn new(
        stdout: Option<PathBuf>,
        stderr: Option<PathBuf>,
        otherwise: &Arc<SubjobOutput>,
    ) -> Result<Self> {
        for path in [&stdout, &stderr].into_iter().flatten() {
            check_writable(path).map_err(|error| cannot_write(path, error.into()))?;
        }
        Ok(Self { stdout, stderr, otherwise: Arc::clone(otherwise) })
    }

    /// Opens the files. Blocks where one is a FIFO without a reader.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub(super) fn open(self, files: &OutputFiles) -> Result<OutputTo> {
        let Self { stdout, stderr, otherwise } = self;
        let (out, err) = match &*otherwise {
            SubjobOutput::Null if stdout.is_none() && stderr.is_none() => return Ok(OutputTo::Null),
            SubjobOutput::Null => (None, None),
            SubjobOutput::Fds { stdout, stderr } => (Some(stdout), Some(stderr)),
        };
        Ok(OutputTo::Fds { stdout: files.open_or(stdout, out)?, stderr: files.open_or(stderr, err)? })
    }
}

/// The files that a job has opened. The first subjob of a job that writes to a file empties it, the others append.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputFiles(Arc<Mutex<HashSet<(u64, u64)>>>);

impl OutputFiles {
    fn open_or(&self, path: Option<PathBuf>, otherwise: Option<&OwnedFd>) -> Result<OwnedFd> {
        match (path, otherwise) {
            (None, Some(fd)) => {
                let copied = fd.as_fd().try_clone_to_owned();
                copied.map_err(|e| Error::io("cannot connect a subjob's output", e))
            }
            (path, _) => {
                let path = path.unwrap_or_else(|| PathBuf::from("/dev/null"));
                self.open(&path).map_err(|error| cannot_write(&path, error))
            }
        }
    }

    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let found = file.metadata()?;
        let mut known = lock(&self.0);
        // Nothing else can be emptied.
        if found.is_file() && known.insert((found.dev(), found.ino())) {
            file.set_len(0)?;
        }
        Ok(file.into())
    }
}

fn check_writable(path: &Path) -> nix::Result<()> {
    match access(path, AccessFlags::W_OK) {
        Ok(()) if path.is_dir() => Err(Errno::EISDIR),
        Err(Errno::ENOENT) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            access(folder.unwrap_or(Path::new(".")), AccessFlags::W_OK | AccessFlags::X_OK)
        }
        checked => checked,
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::io(format!("cannot write to {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;

    fn plan(stdout: &Path, stderr: &Path) -> Result<Destination> {
        Destination::new(Some(stdout.into()), Some(stderr.into()), &Arc::default())
    }

    fn write(to: OutputTo, out: &str, err: &str) {
        let OutputTo::Fds { stdout, stderr } = to else { panic!("{to:?}") };
        let (mut stdout, mut stderr) = (File::from(stdout), File::from(stderr));
        stdout.write_all(out.as_bytes()).unwrap();
        stderr.write_all(err.as_bytes()).unwrap();
        stdout.write_all(out.as_bytes()).unwrap();
    }

    #[test]
    fn a_plan_leaves_files_as_they_are_and_the_first_subjob_that_starts_empties_them() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("file"), folder.path().join("new"));
        fs::write(&file, "old").unwrap();
        let (first, second) = (plan(&file, &file).unwrap(), plan(&new, &file).unwrap());
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), new.exists()), ("old", false));
        let files = OutputFiles::default();
        write(first.open(&files).unwrap(), "a", "b");
        write(second.open(&files).unwrap(), "c", "d");
        assert_eq!(fs::read_to_string(&file).unwrap(), "abad");
        assert_eq!(fs::read_to_string(&new).unwrap(), "cc");
        // Another job.
        write(plan(&file, &new).unwrap().open(&OutputFiles::default()).unwrap(), "e", "f");
        assert_eq!(fs::read_to_string(&file).unwrap(), "ee");
    }

    #[test]
    fn what_cannot_be_written_to_is_refused_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let null = Path::new("/dev/null");
        for path in [folder.path(), &folder.path().join("none/file"), &null.join("file")] {
            let error = plan(null, path).unwrap_err().to_string();
            assert!(error.contains(&format!("cannot write to {}", path.display())), "{error}");
        }
        let nowhere = Destination::new(None, None, &Arc::default()).unwrap();
        assert!(matches!(nowhere.open(&OutputFiles::default()).unwrap(), OutputTo::Null));
    }
}
