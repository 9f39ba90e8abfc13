//! Every launcher whose arguments are understood, and what tells which of them a program is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::dialect::{Dialect, Launcher};
use super::{hydra, openmpi, prrte, srun};

/// How a launcher reads its arguments.
pub(crate) fn dialect_of(launcher: Launcher) -> &'static Dialect {
    match launcher {
        Launcher::Srun => &srun::DIALECT,
        Launcher::Hydra => &hydra::DIALECT,
        Launcher::OpenMpi => &openmpi::DIALECT,
        Launcher::Prrte => &prrte::DIALECT,
    }
}

/// The dialect of a launcher of that file name, links having been followed by the caller: the base name of what `mpirun` leads to.
/// A name that several launchers have (`mpiexec`) tells nothing: [`find_by_version`] does.
pub(super) fn find_by_name(name: &OsStr) -> Option<&'static Dialect> {
    let base = Path::new(name).file_name()?.as_bytes();
    match base {
        b"srun" => Some(&srun::DIALECT),
        b"mpiexec.hydra" | b"mpiexec.mpich" | b"mpirun.mpich" => Some(&hydra::DIALECT),
        b"orterun" | b"mpirun.openmpi" | b"mpiexec.openmpi" => Some(&openmpi::DIALECT),
        b"prterun" => Some(&prrte::DIALECT),
        _ => None,
    }
}

/// The dialect of the launcher that prints this when it is asked for its version.
pub(crate) fn find_by_version(printed: &str) -> Option<&'static Dialect> {
    let first = printed.lines().find(|line| !line.trim().is_empty())?.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| first.contains(word));
    if says(&["hydra", "intel(r) mpi"]) {
        Some(&hydra::DIALECT)
    } else if says(&["open mpi", "openrte"]) {
        Some(&openmpi::DIALECT)
    } else if says(&["prrte", "pmix reference"]) {
        Some(&prrte::DIALECT)
    } else if first.starts_with("slurm") {
        Some(&srun::DIALECT)
    } else {
        None
    }
}

/// Whether a launcher has an option of this name: `--time`, `--time=5`.
pub fn is_launcher_option(word: &str) -> bool {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let mut rows = Launcher::ALL.into_iter().flat_map(|launcher| dialect_of(launcher).rows());
    word.starts_with("--") && rows.any(|(names, _)| names.split(' ').any(|known| known == name))
}
