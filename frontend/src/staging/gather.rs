//! Collects the input of a plan: the content of each file that a manifest names, and of its dependencies.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_shared::wire::staging::{LibcNeeds, Place};

use super::content::{Contents, Source};
use super::plan::{Absent, Item, Needed, Needs};
use crate::error::{Error, Result};

/// An item of a manifest, before its file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    /// Path below the place.
    pub(crate) name: Arc<OsStr>,
    pub(crate) source: Box<Path>,
    /// It will run, so its dependencies are staged, too.
    pub(crate) with_needs: bool,
}

/// The dependencies of a file, by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies {
    /// Libraries: requested name and path, in search order.
    pub(crate) libraries: Vec<(OsString, PathBuf)>,
    /// The interpreters of a script.
    pub(crate) programs: Vec<PathBuf>,
    /// The C library's family, with its loader.
    pub(crate) family: Vec<(OsString, PathBuf)>,
    /// Requirements on the C library.
    pub(crate) libc: Option<LibcNeeds>,
    /// Missing libraries.
    pub(crate) missing: Vec<Absent>,
}

/// Finds the dependencies of programs and libraries.
pub(crate) trait Resolve {
    /// The dependencies of this file; none for a file that is neither ELF nor a script.
    ///
    /// # Errors
    /// It cannot be read.
    fn dependencies(&mut self, path: &Path) -> Result<Dependencies>;
}

/// Examines everything. Blocks while files are read.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn gather(
    wanted: impl IntoIterator<Item = Wanted>,
    resolver: &mut dyn Resolve,
    contents: &Contents,
) -> Result<Vec<Item>> {
    let look = |path: Box<Path>| match contents.look(&path) {
        Ok(facts) => Ok(Arc::new(Source { path, facts })),
        Err(error) => Err(cannot_read(&path, error)),
    };
    let needed =
        |(name, source): (OsString, PathBuf)| look(source.into()).map(|source| Needed { name, source });
    let mut items = Vec::new();
    for Wanted { place, name, source, with_needs } in wanted {
        let source = look(source)?;
        let needs = if with_needs {
            let found = resolver.dependencies(&source.path)?;
            let programs = found.programs.into_iter().map(|path| (base_name(&path), path));
            Some(Box::new(Needs {
                libraries: found.libraries.into_iter().map(needed).collect::<Result<_>>()?,
                programs: programs.map(needed).collect::<Result<_>>()?,
                family: found.family.into_iter().map(needed).collect::<Result<_>>()?,
                libc: found.libc,
                missing: found.missing,
            }))
        } else {
            None
        };
        items.push(Item { place, name, source, needs });
    }
    Ok(items)
}

fn base_name(path: &Path) -> OsString {
    path.file_name().unwrap_or(OsStr::new("?")).to_owned()
}

pub(crate) fn cannot_read(path: &Path, error: io::Error) -> Error {
    Error::io(format!("cannot read {}", path.display()), error)
}
