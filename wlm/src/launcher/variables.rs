//! The variables by which launchers tell a process its rank.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A rank's place on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFacts {
    /// Its number among the ranks of this node, from 0.
    pub rank: u32,
    /// How many ranks of the launch this node has.
    pub size: u32,
}

/// An environment does not say which rank a process is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRank {
    /// None of the launchers' variables is there.
    #[error("no rank in the environment: looked for {looked_for}")]
    Missing {
        /// The variables.
        looked_for: String,
    },
    /// A rank is there, but not how many there are.
    #[error("{rank} is '{value}', but the number of ranks is not set: looked for {looked_for}")]
    NoSize {
        /// The variable with the rank.
        rank: &'static str,
        /// Its value.
        value: String,
        /// The variables.
        looked_for: String,
    },
    /// A variable has a value that makes no sense.
    #[error("{name} is '{value}', which is {wanted}")]
    Nonsense {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it is not.
        wanted: &'static str,
    },
}

/// What a launcher's ranks see of it. Equal by its word. Agents carry this part of a dialect only.
#[derive(Debug)]
pub struct RankSide {
    /// The word for the launcher in `gantry-agent hold --by`.
    pub(crate) word: &'static str,
    /// The variables that tell a rank.
    pub(crate) variables: &'static [RankVariables],
    /// Beginnings of variables that ranks have only because gantry has asked the launcher for them.
    pub(crate) hides: &'static [&'static str],
    /// The variable in which what it starts has the node's name.
    pub(crate) node_name: Option<&'static str>,
    /// Whether what ranks leave behind is killed with them: whether a control group is of its making. Takes the content of `/proc/PID/cgroup`.
    pub(crate) kills_leftovers: fn(&str) -> bool,
}

impl RankSide {
    /// Whether the program is not to see this variable.
    pub fn hides(&self, name: &OsStr) -> bool {
        self.hides.iter().any(|beginning| name.as_bytes().starts_with(beginning.as_bytes()))
    }
}

impl PartialEq for RankSide {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl fmt::Display for RankSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}

/// Variables that tell a rank.
#[derive(Debug)]
pub(crate) struct RankVariables {
    /// Where the launcher usually is, from the inside: its ranks inherit the variables of launchers with greater numbers.
    pub outward: u8,
    /// Only with all of these is it this launcher's rank and not a leftover.
    pub needs: &'static [&'static str],
    pub rank: &'static str,
    /// The first that is there counts.
    pub size: &'static [&'static str],
    pub local_rank: &'static str,
    pub local_size: fn(&Variables) -> Result<Option<u32>, NoRank>,
    /// Whether the launcher may have set the variables of others: it has a PMI or PMIx server of its own, whose ranks are its own.
    pub serves: fn(&Variables) -> bool,
}

impl RankVariables {
    pub(super) fn are_in(&self, variables: &Variables) -> bool {
        [self.rank].iter().chain(self.needs).all(|name| variables.get(name).is_some())
    }
}

/// The variables of an environment that are text and not empty.
#[derive(Debug)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn of(environment: &[(OsString, OsString)]) -> Self {
        let text = environment
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())));
        Self(text.filter(|(_, value)| !value.is_empty()).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// # Errors
    /// The variable is there and no number.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u32>, NoRank> {
        let parsed = self.get(name).map(str::parse).transpose();
        parsed.map_err(|_| self.nonsense(name, "not a 32-bit number"))
    }

    pub(crate) fn nonsense(&self, name: &'static str, wanted: &'static str) -> NoRank {
        NoRank::Nonsense { name, value: self.get(name).unwrap_or_default().to_owned(), wanted }
    }
}
