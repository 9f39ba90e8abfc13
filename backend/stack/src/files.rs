//! Files that processes have mapped. The path of one may lead to another file by now: programs are built anew while
//! they run, and libraries are upgraded.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gantry_stack::module::Module;
use gantry_stack::symbols::identify_file;

/// A file, through a process that has mapped it.
#[derive(Debug, Clone)]
pub(crate) struct Mapped {
    pub(crate) pid: i32,
    pub(crate) module: Module,
}

impl Mapped {
    /// Where the file can be read. A program can be read under the process's own link to it, whatever is at its path.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let program = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let is_it = |file: &PathBuf| identify_file(file).is_ok_and(|id| id == self.module.id);
        [self.place(), program].into_iter().find(is_it)
    }

    /// Whether something else is at the path, or nothing.
    pub(crate) fn has_changed(&self) -> bool {
        match identify_file(&self.place()) {
            Ok(now) => now != self.module.id,
            Err(error) => {
                let is_other = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData);
                // A process that has ended has no paths.
                is_other && Path::new(&format!("/proc/{}/root", self.pid)).exists()
            }
        }
    }

    /// The path, as this process has it.
    fn place(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        root.join(self.module.path.strip_prefix('/').unwrap_or(&self.module.path))
    }
}
