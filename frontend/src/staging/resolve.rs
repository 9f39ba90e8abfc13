//! What programs, libraries and scripts need: the calls of [`Resolver`] that look for it.

use std::ffi::OsStr;
use std::path::Path;

use super::arch::Arch;
use super::closure::{Closure, Dependency, Missing};
use super::resolver::Resolver;
use super::walk::Walk;
use crate::error::Result;

impl Resolver {
    /// What a program, a library or a script needs. Libraries that are missing are part of the answer, not an error.
    ///
    /// # Errors
    /// The file itself cannot be read, or is neither program nor library nor script.
    pub fn closure(&self, binary: &Path) -> Result<Closure> {
        match self.shebang_of(binary)? {
            Some(shebang) => self.script_closure(binary, shebang),
            None => Walk::begin(self, binary)?.finish(),
        }
    }

    /// A library as a program of machine `arch` would find it that has no search paths of its own.
    ///
    /// # Errors
    /// Where it was looked for, when it was not found.
    pub fn find_library(
        &self,
        name: impl AsRef<OsStr>,
        arch: Arch,
    ) -> std::result::Result<Dependency, Missing> {
        Walk::of_nothing(self, arch).find_one(name.as_ref())
    }
}
