//! What is known of a launcher: how it is recognized, how it reads its arguments, and how its ranks learn who they are. Each launcher has a
//! file of its own with a [`Dialect`], and a line in the table.

use std::ffi::OsString;
use std::fmt;

use super::variables::RankSide;
use crate::error::Result;

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
pub(crate) enum Grammar {
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
pub(crate) type Environment = [(OsString, OsString)];

/// Where a launcher reads programs from, if not from its command line.
#[derive(Debug)]
pub(crate) enum ProgramFiles {
    /// From a file that an option names. Each of its lines is a part of a command line, in which blanks separate and nothing quotes.
    Option {
        /// The options.
        names: &'static [&'static str],
        /// How comments begin.
        comments: &'static [&'static str],
    },
    /// From a file in the program's place, in a format of its own. A line that ends in a backslash goes on in the next.
    InPlace {
        /// Whether it is given such a file.
        is_given: fn(&[Given], &Environment) -> bool,
        /// Puts words in front of the program of a line.
        rewrite_line: fn(&[u8], &[OsString]) -> Result<Vec<u8>>,
        /// The most bytes that it reads.
        max_bytes: usize,
    },
}

/// What gantry changes of a launch besides the programs.
#[derive(Debug)]
pub(crate) struct Adjusted {
    /// Options to add.
    pub options: Vec<OsString>,
    /// The launcher whose variables the ranks will have.
    pub by: &'static RankSide,
}

/// Changes arguments of a launch, given the options among them.
pub(crate) type Adjust = fn(&mut [OsString], &[&Given], &Environment) -> Adjusted;

/// What is known of one launcher. Equal by its word.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// What it is called in messages.
    pub name: &'static str,
    /// File names that no other launcher has.
    pub file_names: &'static [&'static str],
    /// Words that the first line of its answer to `--version` has, in small letters. A line break in front: the line begins with the word.
    pub versions: &'static [&'static str],
    /// It stops its ranks itself, as for a debugger. A script that runs it needs no understanding.
    pub stops_ranks: bool,
    /// The words of which one stands in front of its options and says what it is to do. The first is put there where none is.
    pub verbs: &'static [&'static str],
    pub grammar: Grammar,
    /// Names separated by a blank, the first being the one by which [`Given`] names it, and what the option takes.
    pub options: &'static [(Takes, &'static [&'static str])],
    /// Options with which nothing is launched.
    pub runs_nothing: &'static [&'static str],
    pub files: ProgramFiles,
    /// It knows `--` itself. Else the marker is ours and is taken out again.
    pub knows_marker: bool,
    /// The option that names a variable which ranks on other hosts are to get, where they do not get all.
    pub forward_option: Option<&'static str>,
    /// Changes the arguments so that gantry finds the ranks, given the options among them.
    pub adjust: Option<Adjust>,
    /// What its ranks see of it.
    pub ranks: &'static RankSide,
}

impl Dialect {
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, Takes)> + '_ {
        self.options.iter().flat_map(|(takes, rows)| rows.iter().map(move |names| (*names, *takes)))
    }

    pub(super) fn reads_in_place(&self) -> bool {
        matches!(self.files, ProgramFiles::InPlace { .. })
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.ranks == other.ranks
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ranks.fmt(f)
    }
}
