//! What is known of a launcher: how it is recognized, how it reads its arguments, and how its ranks learn who they are. Each launcher has a
//! file of its own with a [`Dialect`], and a line in the table.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use super::variables::RankVariables;
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
    pub by: &'static Dialect,
}

/// Changes arguments of a launch, given the options among them.
pub(crate) type Adjust = fn(&mut [OsString], &[&Given], &Environment) -> Adjusted;

/// What is known of one launcher. Equal by its word.
#[derive(Debug)]
pub struct Dialect {
    /// The word for it in `gantry-agent hold --by`.
    pub(crate) word: &'static str,
    /// What it is called in messages.
    pub(crate) name: &'static str,
    /// File names that no other launcher has.
    pub(crate) file_names: &'static [&'static str],
    /// Words that the first line of its answer to `--version` has, in small letters. A line break in front: the line begins with the word.
    pub(crate) versions: &'static [&'static str],
    /// It stops its ranks itself, as for a debugger. A script that runs it needs no understanding.
    pub(crate) stops_ranks: bool,
    pub(crate) grammar: Grammar,
    /// Names separated by a blank, the first being the one by which [`Given`] names it, and what the option takes.
    pub(crate) options: &'static [(Takes, &'static [&'static str])],
    /// Options with which nothing is launched.
    pub(crate) runs_nothing: &'static [&'static str],
    pub(crate) files: ProgramFiles,
    /// It knows `--` itself. Else the marker is ours and is taken out again.
    pub(crate) knows_marker: bool,
    /// The option that names a variable which ranks on other hosts are to get, where they do not get all.
    pub(crate) forward_option: Option<&'static str>,
    /// Changes the arguments so that gantry finds the ranks, given the options among them.
    pub(crate) adjust: Option<Adjust>,
    /// Beginnings of variables that ranks have only because of `adjust`.
    pub(crate) hides: &'static [&'static str],
    /// The variable in which what it starts has the node's name.
    pub(crate) node_name: Option<&'static str>,
    /// Whether what ranks leave behind is killed with them: whether a control group is of its making. Takes the content of `/proc/PID/cgroup`.
    pub(crate) kills_leftovers: fn(&str) -> bool,
    /// The variables that its ranks have.
    pub(crate) ranks: &'static [RankVariables],
}

impl Dialect {
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, Takes)> + '_ {
        self.options.iter().flat_map(|(takes, rows)| rows.iter().map(move |names| (*names, *takes)))
    }

    pub(super) fn reads_in_place(&self) -> bool {
        matches!(self.files, ProgramFiles::InPlace { .. })
    }

    /// Whether its ranks have this variable only because gantry has asked the launcher for it: the program is not to see it.
    pub fn hides(&self, name: &OsStr) -> bool {
        self.hides.iter().any(|beginning| name.as_bytes().starts_with(beginning.as_bytes()))
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}
