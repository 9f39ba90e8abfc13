//! The facts about a launcher: how to recognize it, how it parses its arguments, and how its ranks learn their rank.
//! Each launcher has its own file with a [`Dialect`], and a line in the table.

use std::ffi::OsString;
use std::fmt;

use super::variables::RankSide;
use crate::error::Result;

/// The values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing.
    Nothing,
    /// A value, attached or as the next argument.
    Value,
    /// An optional value, only if it is attached: `--nice=5`, `-K0`.
    Attached,
    /// Two values: `--mca btl tcp`.
    Two,
    /// `NAME VALUE` or, in one argument, `NAME=VALUE`.
    Assignment,
    /// Nothing in some versions, a value in others: it is unknown which.
    Depends,
}

/// How a launcher parses its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// As getopt_long: clusters of letters behind one dash, and unique prefixes of long names behind two.
    Getopt,
    /// Any number of dashes before a full name. Letters in any case. `NAME=VALUE` counts as two arguments.
    AnyDashes,
    /// One or two dashes before a full name. Newer versions also take `--NAME=VALUE` and `-nVALUE`.
    OneOrTwoDashes,
}

/// An option that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// Its first name in the table, without dashes, in whatever form it was written.
    pub name: &'static str,
    /// The index of its argument.
    pub at: usize,
    /// Its values: none, one or two.
    pub values: Vec<OsString>,
}

/// An environment, as names and values.
pub(crate) type Environment = [(OsString, OsString)];

/// The files from which a launcher reads programs, instead of from its command line.
#[derive(Debug)]
pub(crate) enum ProgramFiles {
    /// A file named by an option. Each line is a part of a command line: blanks separate, and there is no quoting.
    Option {
        /// The options.
        names: &'static [&'static str],
        /// The prefixes of comments.
        comments: &'static [&'static str],
    },
    /// A file in the program's place, in a special format. A backslash at the end continues a line.
    InPlace {
        /// Whether the arguments name such a file.
        is_given: fn(&[Given], &Environment) -> bool,
        /// Puts words in front of the program in a line.
        rewrite_line: fn(&[u8], &[OsString]) -> Result<Vec<u8>>,
        /// The maximum number of bytes that the launcher reads.
        max_bytes: usize,
    },
}

/// Changes of a launch besides those of the programs.
#[derive(Debug)]
pub(crate) struct Adjusted {
    /// Options to add.
    pub options: Vec<OsString>,
    /// The launcher whose variables the ranks will have.
    pub by: &'static RankSide,
}

/// Changes the arguments of a launch. Gets the options among them.
pub(crate) type Adjust = fn(&mut [OsString], &[&Given], &Environment) -> Adjusted;

/// The facts about one launcher. Two are equal if their words are equal.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Its name in messages.
    pub name: &'static str,
    /// File names that only this launcher has.
    pub file_names: &'static [&'static str],
    /// Words in the first line of its answer to `--version`, in lower case. A leading line break means: the line starts
    /// with the word.
    pub versions: &'static [&'static str],
    /// It stops its ranks itself, as for a debugger. A script that runs it need not be parsed.
    pub stops_ranks: bool,
    /// Verbs: one precedes the options and selects the action. If there is none, the first one is inserted.
    pub verbs: &'static [&'static str],
    pub grammar: Grammar,
    /// Names separated by a blank, with the values that the option takes. [`Given`] uses the first name.
    pub options: &'static [(Takes, &'static [&'static str])],
    /// Options with which the launcher launches nothing.
    pub runs_nothing: &'static [&'static str],
    pub files: ProgramFiles,
    /// Whether it accepts `--` itself. Otherwise the marker is ours and is removed.
    pub knows_marker: bool,
    /// The option that names a variable to pass to ranks on other hosts, for a launcher that does not pass all.
    pub forward_option: Option<&'static str>,
    /// Changes the arguments so that gantry can find the ranks. Gets the options among them.
    pub adjust: Option<Adjust>,
    /// What its ranks see of the launcher.
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
