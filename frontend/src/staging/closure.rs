//! The result: everything that a program needs, and what is missing.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::libc_needs::GlibcVersion;

/// The dependencies of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closure {
    /// The file, as it was named.
    pub binary: PathBuf,
    /// Its loader, or that of the program that runs a script. None: it is static, or a library.
    pub interpreter: Option<PathBuf>,
    /// For a script: the programs that start it, in the kernel's order, and with `env` the program that `env` finds.
    /// They and their dependencies are among [`Closure::needed`].
    pub script: Vec<PathBuf>,
    /// The file's own direct dependencies, in their order.
    pub needs: Vec<Need>,
    /// Everything that is loaded, in the loader's order.
    pub needed: Vec<Dependency>,
    /// Missing dependencies.
    pub missing: Vec<Missing>,
    /// Optional libraries that may be loaded later.
    pub optional: Vec<Optional>,
    /// Requirements on the C library.
    pub libc: LibcNeeds,
}

/// A direct dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The requested name.
    pub name: OsString,
    /// Its index in [`Closure::needed`]. None: it is missing, or is the file of this closure.
    pub found: Option<usize>,
}

/// A library, a loader or a script's program that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The name of the first request.
    pub name: OsString,
    /// Other requested names: a copy must exist under all of them.
    pub other_names: Vec<OsString>,
    /// Its path, as the loader calls it. In a sysroot, the path inside.
    pub path: PathBuf,
    /// The path that opens it from here.
    pub file: PathBuf,
    /// The file with the first request.
    pub needed_by: PathBuf,
    /// The search rule that found it.
    pub how: How,
    /// It belongs to the C library's family: the loader, libc, and the libraries built with them. They must have one
    /// version, so they are never mixed with a node's own.
    pub is_glibc: bool,
    /// The link editor's id of its content.
    pub build_id: Option<Vec<u8>>,
    /// Its direct dependencies, in their order.
    pub needs: Vec<Need>,
}

/// The search rule that found a file. `gantry deps --json` uses these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// DT_RPATH of the object, or of one of its loaders.
    Rpath,
    /// DT_RUNPATH of the object.
    Runpath,
    /// LD_LIBRARY_PATH.
    LibraryPath,
    /// ld.so.cache; in a sysroot without one, the folders of ld.so.conf.
    Cache,
    /// The loader's default folders.
    Default,
    /// An absolute request: the loader itself, a name with a slash, a script's first line.
    Absolute,
    /// PATH: the program that `env` starts.
    Path,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rpath => "rpath",
            Self::Runpath => "runpath",
            Self::LibraryPath => "ld_library_path",
            Self::Cache => "cache",
            Self::Default => "default",
            Self::Absolute => "absolute",
            Self::Path => "path",
        })
    }
}

/// A missing dependency. Displayed as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub name: OsString,
    /// The file that requests it.
    pub needed_by: PathBuf,
    /// The reason.
    pub why: Why,
}

/// The reason why a dependency is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It was not found.
    NotFound {
        /// The searched places, in order; only the first ones if there are many. Empty for a name that is a path.
        looked_in: Vec<(How, PathBuf)>,
        /// Files of that name for another machine.
        other_machine: Vec<PathBuf>,
    },
    /// The first file of that name cannot be loaded, and the loader does not search further.
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: super::elf::Unfit,
    },
    /// The library exists, but is too old or a different one.
    Version {
        /// The file.
        path: PathBuf,
        /// The missing symbol version.
        version: OsString,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, by) = (self.name.display(), self.needed_by.display());
        match &self.why {
            Why::NotFound { looked_in, other_machine } => {
                write!(f, "{name}, needed by {by}, was not found")?;
                for (number, (how, folder)) in looked_in.iter().enumerate() {
                    let lead = if number == 0 { "; looked in" } else { "," };
                    let folder = if folder.as_os_str().is_empty() { "." } else { &folder.to_string_lossy() };
                    write!(f, "{lead} {folder} ({how})")?;
                }
                for path in other_machine {
                    write!(f, "; {} is for another machine", path.display())?;
                }
                Ok(())
            }
            Why::Unfit { path, reason } => {
                write!(f, "{name}, needed by {by}, cannot be loaded: {}: {reason}", path.display())
            }
            Why::Version { path, version } => {
                write!(
                    f,
                    "version {} of {}, needed by {by}, was not found",
                    version.display(),
                    path.display()
                )
            }
        }
    }
}

/// Something that may be loaded later (`.note.dlopen`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Optional {
    /// Names to try, the best first.
    pub names: Vec<String>,
    /// The file that may load it.
    pub wanted_by: PathBuf,
    /// Its purpose, in one word.
    pub feature: Option<String>,
    /// Its purpose, for people.
    pub description: Option<String>,
    /// `required`, `recommended` or `suggested`.
    pub priority: Option<String>,
    /// The first of the names that exists. None: none of them does.
    pub found: Option<PathBuf>,
}

/// Requirements on the C library, to decide whether another system's is sufficient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibcNeeds {
    /// The newest symbol version of glibc's family that a file outside the family needs.
    pub newest: Option<GlibcVersion>,
    /// The file that needs it.
    pub newest_by: Option<PathBuf>,
    /// `libc.so.6`, if it is loaded.
    pub path: Option<PathBuf>,
    /// The newest symbol version that this libc has.
    pub provided: Option<GlibcVersion>,
}
