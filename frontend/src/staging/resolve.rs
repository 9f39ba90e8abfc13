//! The methods of [`Resolver`] that find dependencies.

use std::ffi::OsStr;
use std::path::Path;

use super::arch::Arch;
use super::closure::{Closure, Dependency, Missing};
use super::resolver::Resolver;
use super::walk::Walk;
use crate::error::Result;

impl Resolver {
    /// The dependencies of a program, a library or a script. Missing libraries are part of the result, not an error.
    ///
    /// # Errors
    /// The file itself cannot be read, or is neither program nor library nor script.
    pub fn closure(&self, binary: &Path) -> Result<Closure> {
        match self.shebang_of(binary)? {
            Some(shebang) => self.script_closure(binary, shebang),
            None => Walk::begin(self, binary)?.finish(),
        }
    }

    /// Finds a library for a program of architecture `arch` without search paths of its own.
    ///
    /// # Errors
    /// It was not found; the error lists the searched places.
    pub fn find_library(
        &self,
        name: impl AsRef<OsStr>,
        arch: Arch,
    ) -> std::result::Result<Dependency, Missing> {
        Walk::of_nothing(self, arch).find_one(name.as_ref())
    }
}
