//! How a launcher reads its arguments: the shape of a dialect. Each launcher's own table is a file beside this one.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use crate::error::Error;

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

impl Launcher {
    /// Every launcher there is.
    pub const ALL: [Self; 4] = [Self::Srun, Self::Hydra, Self::OpenMpi, Self::Prrte];
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

/// What an option takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing.
    Nothing,
    /// A value, attached or as the next argument.
    Value,
    /// A value, but only an attached one: `--nice=5`, `-K0`.
    Attached,
    /// Two values: `--mca btl tcp`.
    Two,
    /// `NAME VALUE` or, in one argument, `NAME=VALUE`.
    Assignment,
    /// Nothing in some versions, a value in others: it cannot be told.
    Depends,
}

/// How a launcher reads its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// As getopt_long does: clusters of letters behind one dash, unique beginnings of long names behind two.
    Getopt,
    /// Any number of dashes before a whole name, letters in any case, `NAME=VALUE` as if it were two arguments.
    AnyDashes,
    /// One or two dashes before a whole name, in newer versions `--NAME=VALUE` and `-nVALUE` too.
    OneOrTwoDashes,
}

/// An option that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// Its first name in the table, without dashes, whatever was written.
    pub name: &'static str,
    /// The index of the argument in which it stands.
    pub at: usize,
    /// Its values: none, one or two.
    pub values: Vec<OsString>,
}

/// An environment, as names and values.
pub(super) type Environment = [(OsString, OsString)];

/// How one launcher reads its arguments.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Which launcher it is.
    pub launcher: Launcher,
    /// What it is called in messages.
    pub name: &'static str,
    pub(super) grammar: Grammar,
    /// Names separated by a blank, the first being the one by which [`Given`] names it, and what the option takes.
    pub(super) options: &'static [(Takes, &'static [&'static str])],
    /// Options with which nothing is launched.
    pub(super) runs_nothing: &'static [&'static str],
    /// Options whose value is a file with programs.
    pub(super) file_options: &'static [&'static str],
    /// The file with programs is named in the program's place.
    pub(super) file_is_program: bool,
    /// Whether it reads programs from a file in the program's place.
    pub(super) reads_file: fn(&[Given], &Environment) -> bool,
    /// It knows `--` itself. Else the marker is ours and is taken out again.
    pub(super) knows_marker: bool,
}

impl Dialect {
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, Takes)> + '_ {
        self.options.iter().flat_map(|(takes, rows)| rows.iter().map(move |names| (*names, *takes)))
    }
}

/// For launchers that never read programs from a file in the program's place.
pub(super) fn reads_no_file(_given: &[Given], _environment: &Environment) -> bool {
    false
}
