//! The tree of files that a package is made of.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::Result;
use crate::args::{Install, Package};
use crate::build::{run, run_in};
use crate::layout::install;

/// The version of gantry.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as package managers sort it: what has a tilde comes before what has none. A hyphen ends it.
pub(super) fn sorted_version() -> String {
    VERSION.replace('-', "~")
}

/// What gantry is, in a line.
pub(super) const SUMMARY: &str = "launch parallel programs held, put tools next to their ranks";

/// What gantry is, in more lines.
pub(super) const DESCRIPTION: [&str; 4] = [
    "gantry starts a parallel program and holds every rank before its first",
    "instruction. It shows where each rank is, starts the daemons of a debugger",
    "or profiler beside the ranks, and releases them. It also attaches to running",
    "programs, and says where ranks hang. It has libraries for tools in C.",
];

/// Files as they are to be on other machines.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) asked: &'a Package,
    /// The folder around the tree.
    pub(super) work: PathBuf,
    /// Stands for the root of the other machine.
    pub(super) root: PathBuf,
    /// The prefix of gantry below that root.
    pub(super) prefix: PathBuf,
    /// The time of all files, in seconds.
    pub(super) date: String,
    /// Its programs and libraries, in order.
    pub(super) programs: Vec<PathBuf>,
}

impl<'a> Stage<'a> {
    /// Builds gantry and installs it in a new tree. A prefix other than `/usr` may be moved.
    ///
    /// # Errors
    /// The error of the compiler, or the tree cannot be written.
    pub(super) fn new(asked: &'a Package, work: &Path, prefix: &Path, libdir: &Path) -> Result<Self> {
        let date = match asked.date {
            Some(date) => date.to_string(),
            None => last_commit()?,
        };
        match fs::remove_dir_all(work) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let root = work.join("tree");
        let prefix = install(&Install {
            prefix: prefix.to_path_buf(),
            destdir: Some(root.clone()),
            libdir: libdir.to_path_buf(),
            relocatable: prefix != Path::new("/usr"),
            building: asked.building.clone(),
        })?;
        let mut stage = Self { asked, work: work.to_path_buf(), root, prefix, date, programs: Vec::new() };
        stage.programs = stage.files()?;
        stage.programs.retain(|path| {
            fs::symlink_metadata(path)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        });
        Ok(stage)
    }

    /// The folder of documents.
    pub(super) fn documents(&self) -> PathBuf {
        self.prefix.join("share/doc/gantry")
    }

    /// Compresses the manual, as package managers have it.
    pub(super) fn compress_manual(&self) -> Result<()> {
        let pages = files_below(&self.prefix.join("share/man"))?;
        let args = [OsStr::new("-9n")].into_iter().chain(pages.iter().map(AsRef::as_ref));
        run("gzip".as_ref(), &args.collect::<Vec<_>>()).map(drop)
    }

    /// Gives all files one time. Nothing may be added afterwards.
    pub(super) fn set_times(&self) -> Result<()> {
        let date = format!("@{}", self.date);
        let touch = ["-exec", "touch", "--no-dereference", "--date", &date, "{}", "+"];
        run_in(&self.root, "find".as_ref(), &[&["."], &touch[..]].concat(), &[]).map(drop)
    }

    /// All files and links, in order.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = files_below(&self.root)?;
        files.sort_unstable();
        Ok(files)
    }

    /// The oldest version of glibc that has all that programs and libraries ask for.
    ///
    /// # Errors
    /// The error of readelf.
    pub(super) fn glibc(&self) -> Result<String> {
        let options = ["--version-info", "--wide"].iter().map(OsStr::new);
        let args = options.chain(self.programs.iter().map(AsRef::as_ref));
        let said = run_in(&self.root, "readelf".as_ref(), &args.collect::<Vec<_>>(), &[("LC_ALL", "C")])?;
        Ok(newest_glibc(&String::from_utf8_lossy(&said.stdout))
            .unwrap_or_else(|| "of any version".to_owned()))
    }
}

/// The highest version in the output of readelf.
fn newest_glibc(text: &str) -> Option<String> {
    let names = text.split("Name: GLIBC_").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let numbers =
        |version: &str| version.split('.').map(str::parse).collect::<std::result::Result<Vec<u32>, _>>();
    let newest = names.filter_map(|version| numbers(version).ok()).max()?;
    Some(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

/// When the last commit was made, in seconds.
fn last_commit() -> Result<String> {
    let said = run("git".as_ref(), &["log", "--max-count=1", "--format=%ct"]);
    let said =
        said.map_err(|e| format!("{e}; outside of a clone, set SOURCE_DATE_EPOCH to the time of the files"))?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// All files and links below a folder.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => found.extend(files_below(&entry.path())?),
            false => found.push(entry.path()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_that_of_the_highest_numbers() {
        let line = |version: &str| format!("  0x0010:   Name: {version}  Flags: none  Version: 6\n");
        let text = ["GLIBC_2.2.5", "GLIBC_2.28", "GCC_3.0", "GLIBC_2.9", "GLIBC_PRIVATE"].map(line).concat();
        assert_eq!(newest_glibc(&text).as_deref(), Some("2.28"));
        assert_eq!(newest_glibc("no version information"), None);
    }
}
