//! Launchers: where the program stands among their arguments, what the files say that some read programs from, and how a process that
//! they have started learns its rank.
//!
//! This is all that is known of launchers, and no launcher is named outside this folder and the folders of WLMs. Nothing here opens a file, and
//! `recognize` alone starts a process: a launcher that is asked for its version. The tables hold facts about the launchers' option parsers; a test compares them with the help texts of the
//! launchers that are installed.

mod facts;
mod files;
mod held;
mod hydra;
mod openmpi;
mod options;
pub(crate) mod proxies;
mod prrte;
mod recognize;
mod rewrite;
mod srun;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

pub use facts::{LocalFacts, NoRank, RankFacts, dies_with_step, find_node_name, parse_rank_facts};
pub(crate) use files::{escape_multi_prog, rewrite_file};
pub(crate) use held::{build_shim, find_launcher, find_program, move_files, plan_driven, plan_launcher};
pub(crate) use options::{Given, Part, Takes, locate};
pub use prrte::is_asked_for;
pub(crate) use recognize::recognize;
pub(crate) use rewrite::{replace_file, rewrite};

use crate::Error;
use options::Grammar;

/// The launchers whose arguments are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Slurm's `srun`.
    Srun,
    /// MPICH's `mpiexec.hydra` and those made from it.
    Hydra,
    /// Open MPI's `mpirun` (`orterun`).
    OpenMpi,
    /// PRRTE's `prterun`, which stands behind Open MPI's `mpirun` since 5.0, started by its own name.
    Prrte,
}

/// An environment, as names and values.
type Environment = [(OsString, OsString)];

/// How one launcher reads its arguments.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Which launcher it is.
    pub launcher: Launcher,
    /// What it is called in messages.
    pub name: &'static str,
    grammar: Grammar,
    /// Names separated by a blank, the first being the one by which [`Given`] names it, and what the option takes.
    options: &'static [(Takes, &'static [&'static str])],
    /// Options with which nothing is launched.
    runs_nothing: &'static [&'static str],
    /// Options whose value is a file with programs.
    file_options: &'static [&'static str],
    /// The file with programs is named in the program's place.
    file_is_program: bool,
    /// Whether it reads programs from a file in the program's place.
    reads_file: fn(&[Given], &Environment) -> bool,
    /// It knows `--` itself. Else the marker is ours and is taken out again.
    knows_marker: bool,
}

impl Dialect {
    fn rows(&self) -> impl Iterator<Item = (&'static str, Takes)> + '_ {
        self.options.iter().flat_map(|(takes, rows)| rows.iter().map(move |names| (*names, *takes)))
    }

    /// The dialect of a launcher of that file name, links having been followed by the caller: the base name of what `mpirun` leads to.
    /// A name that several launchers have (`mpiexec`) tells nothing: [`Self::of_version`] does.
    pub(crate) fn of_program(name: &OsStr) -> Option<&'static Self> {
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
    pub(crate) fn of_version(printed: &str) -> Option<&'static Self> {
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
}

impl Launcher {
    /// Every launcher there is.
    pub const ALL: [Self; 4] = [Self::Srun, Self::Hydra, Self::OpenMpi, Self::Prrte];

    /// How it reads its arguments.
    pub(crate) fn dialect(self) -> &'static Dialect {
        match self {
            Self::Srun => &srun::DIALECT,
            Self::Hydra => &hydra::DIALECT,
            Self::OpenMpi => &openmpi::DIALECT,
            Self::Prrte => &prrte::DIALECT,
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Srun => "srun",
            Self::Hydra => "hydra",
            Self::OpenMpi => "openmpi",
            Self::Prrte => "prrte",
        })
    }
}

impl FromStr for Launcher {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|launcher| launcher.to_string() == text)
            .ok_or_else(|| Error::invalid(format!("no launcher is named '{text}'")))
    }
}

/// Whether a launcher has an option of this name: `--time`, `--time=5`.
pub fn is_launcher_option(word: &str) -> bool {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let mut rows = Launcher::ALL.into_iter().flat_map(|launcher| launcher.dialect().rows());
    word.starts_with("--") && rows.any(|(names, _)| names.split(' ').any(|known| known == name))
}

/// For launchers that never read programs from a file in the program's place.
fn reads_no_file(_given: &[Given], _environment: &Environment) -> bool {
    false
}

#[cfg(test)]
mod tests;
