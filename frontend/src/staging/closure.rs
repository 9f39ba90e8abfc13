//! The answer: everything that a program needs, and what it needs in vain.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::libc_needs::GlibcVersion;

/// What one file needs in order to run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closure {
    /// The file, as it was named.
    pub binary: PathBuf,
    /// The loader that it asks for, or that the program asks for which runs a script. None: it is static, or a library.
    pub interpreter: Option<PathBuf>,
    /// For a script: the programs that it is started with, in the kernel's order, and with `env` the program that this finds. They and all
    /// that they need are among [`Closure::needed`].
    pub script: Vec<PathBuf>,
    /// What the file itself asks for, in its order.
    pub needs: Vec<Need>,
    /// Everything that gets loaded, in the loader's order.
    pub needed: Vec<Dependency>,
    /// What is needed and not there.
    pub missing: Vec<Missing>,
    /// What may be loaded later and can be done without.
    pub optional: Vec<Optional>,
    /// What is needed of the C library.
    pub libc: LibcNeeds,
}

/// Something that one file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// By this name.
    pub name: OsString,
    /// Its place in [`Closure::needed`]; none: it is missing, or is the file whose closure this is.
    pub found: Option<usize>,
}

/// A library, a loader or a script's program that gets loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The name by which it was first asked for.
    pub name: OsString,
    /// Other names by which it was asked for: a copy has to be there under all of them.
    pub other_names: Vec<OsString>,
    /// Its path, as the loader calls it; in a sysroot, a path in there.
    pub path: PathBuf,
    /// Where it can be opened from here.
    pub file: PathBuf,
    /// Who asked first.
    pub needed_by: PathBuf,
    /// How it was found.
    pub how: How,
    /// It belongs to the C library's own family: the loader, libc, and what is built with them. They must be of one version, so they are
    /// never mixed with a node's own.
    pub is_glibc: bool,
    /// The link editor's name for its content.
    pub build_id: Option<Vec<u8>>,
    /// What it asks for, in its order.
    pub needs: Vec<Need>,
}

/// How something was found. The texts are the ones of `gantry deps --json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// DT_RPATH of the object, or of one that had it loaded.
    Rpath,
    /// DT_RUNPATH of the object.
    Runpath,
    /// LD_LIBRARY_PATH.
    LibraryPath,
    /// ld.so.cache; in a sysroot without one, the folders of ld.so.conf.
    Cache,
    /// The loader's default folders.
    Default,
    /// It was asked for by path: the loader itself, a name with a slash, a script's first line.
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

/// Something that is needed and not there. Displayed as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub name: OsString,
    /// Who asks for it.
    pub needed_by: PathBuf,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with something that is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It was not found.
    NotFound {
        /// Where it was looked for, in order; the first ones of very many. Empty for a name that is a path.
        looked_in: Vec<(How, PathBuf)>,
        /// Files of that name for another machine.
        other_machine: Vec<PathBuf>,
    },
    /// The first file of that name cannot be loaded, and the loader looks no further.
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: super::elf::Unfit,
    },
    /// The library is there, and is too old or another one.
    Version {
        /// The file.
        path: PathBuf,
        /// The version of symbols that it lacks.
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
    /// Names that will be tried, the best first.
    pub names: Vec<String>,
    /// Who may load it.
    pub wanted_by: PathBuf,
    /// What it is for, in one word.
    pub feature: Option<String>,
    /// What it is for, for people.
    pub description: Option<String>,
    /// `required`, `recommended` or `suggested`.
    pub priority: Option<String>,
    /// The first of the names that would be found. None: nothing would be.
    pub found: Option<PathBuf>,
}

/// What is needed of the C library, to tell whether another system's will do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibcNeeds {
    /// The newest version of symbols of glibc's family that anything outside the family needs.
    pub newest: Option<GlibcVersion>,
    /// Who needs it.
    pub newest_by: Option<PathBuf>,
    /// `libc.so.6`, when it gets loaded.
    pub path: Option<PathBuf>,
    /// The newest version of symbols that this libc has.
    pub provided: Option<GlibcVersion>,
}
