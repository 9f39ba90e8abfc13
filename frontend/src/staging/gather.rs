//! What a plan is made from: what is in each file that a manifest names or that one of those needs, read now.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use gantry_shared::wire::staging::{LibcNeeds, Place};

use super::content::Contents;
use super::plan::{Absent, Item, Needed, Needs};
use crate::error::{Error, Result};

/// Something that a manifest names, before it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    /// Path below the place.
    pub(crate) name: OsString,
    pub(crate) source: PathBuf,
    /// It runs, so what it needs to run is brought as well.
    pub(crate) with_needs: bool,
}

/// What something needs to run, by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies {
    /// Libraries: the name by which each is looked for, and where it is. In search order.
    pub(crate) libraries: Vec<(OsString, PathBuf)>,
    /// The interpreters of a script.
    pub(crate) programs: Vec<PathBuf>,
    /// The C library's own family, with its loader.
    pub(crate) family: Vec<(OsString, PathBuf)>,
    /// What is needed of the C library.
    pub(crate) libc: Option<LibcNeeds>,
    /// Libraries that are nowhere.
    pub(crate) missing: Vec<Absent>,
}

/// Who finds out what programs and libraries need.
pub(crate) trait Resolve {
    /// What this file needs; nothing for one that is neither ELF nor a script.
    ///
    /// # Errors
    /// It cannot be read.
    fn dependencies(&mut self, path: &Path) -> Result<Dependencies>;
}

/// Looks at everything. Blocks while files are read.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn gather(
    wanted: &[Wanted],
    resolver: &mut dyn Resolve,
    contents: &Contents,
) -> Result<Vec<Item>> {
    let look = |path: &Path| contents.look(path).map_err(|error| cannot_read(path, error));
    let needed = |(name, source): (OsString, PathBuf)| -> Result<Needed> {
        Ok(Needed { facts: look(&source)?, name, source })
    };
    let mut items = Vec::with_capacity(wanted.len());
    for it in wanted {
        let facts = look(&it.source)?;
        let needs = if it.with_needs {
            let found = resolver.dependencies(&it.source)?;
            let programs = found.programs.into_iter().map(|path| (base_name(&path), path));
            Some(Needs {
                libraries: found.libraries.into_iter().map(needed).collect::<Result<_>>()?,
                programs: programs.map(needed).collect::<Result<_>>()?,
                family: found.family.into_iter().map(needed).collect::<Result<_>>()?,
                libc: found.libc,
                missing: found.missing,
            })
        } else {
            None
        };
        let Wanted { place, name, source, .. } = it.clone();
        items.push(Item { place, name, source, facts, needs });
    }
    Ok(items)
}

fn base_name(path: &Path) -> OsString {
    path.file_name().unwrap_or(OsStr::new("?")).to_owned()
}

pub(crate) fn cannot_read(path: &Path, error: io::Error) -> Error {
    Error::io(format!("cannot read {}", path.display()), error)
}
