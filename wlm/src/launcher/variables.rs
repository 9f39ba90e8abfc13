//! The environment variables in which launchers pass a process its rank.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A rank's place on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFacts {
    /// Its number among the ranks of this node, from 0.
    pub rank: u32,
    /// The number of ranks that the launch has on this node.
    pub size: u32,
}

/// The environment does not tell the rank of the process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRank {
    /// No launcher's variables are set.
    #[error("no rank in the environment: looked for {looked_for}")]
    Missing {
        /// The variables.
        looked_for: String,
    },
    /// The rank is set, but the number of ranks is not.
    #[error("{rank} is '{value}', but the number of ranks is not set: looked for {looked_for}")]
    NoSize {
        /// The variable with the rank.
        rank: &'static str,
        /// Its value.
        value: String,
        /// The variables.
        looked_for: String,
    },
    /// A variable has an invalid value.
    #[error("{name} is '{value}', which is {wanted}")]
    Nonsense {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Why the value is invalid.
        wanted: &'static str,
    },
}

/// A launcher's effects on its ranks' environment. Two are equal if their words are equal. Agents contain only this
/// part of a dialect.
#[derive(Debug)]
pub struct RankSide {
    /// The word for the launcher in `gantry-agent hold --by`.
    pub(crate) word: &'static str,
    /// The variables with the rank.
    pub(crate) variables: &'static [RankVariables],
    /// Prefixes of variables that ranks have only because gantry requested them from the launcher.
    pub(crate) hides: &'static [&'static str],
    /// The variable in which the launcher gives the processes that it starts their node's name.
    pub(crate) node_name: Option<&'static str>,
    /// Whether the launcher kills leftover processes together with the ranks: whether it created the control group.
    /// Takes the content of `/proc/PID/cgroup`.
    pub(crate) kills_leftovers: fn(&str) -> bool,
}

impl RankSide {
    /// Whether to hide this variable from the program.
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

/// A set of variables that tell a rank.
#[derive(Debug)]
pub(crate) struct RankVariables {
    /// Where the launcher usually is in a nesting, counted from the inside. Its ranks inherit the variables of
    /// launchers with greater numbers.
    pub outward: u8,
    /// Variables that a rank of this launcher always has. If one is missing, the others were inherited.
    pub needs: &'static [&'static str],
    pub rank: &'static str,
    /// Variables with the number of ranks. The first one that is set counts.
    pub size: &'static [&'static str],
    pub local_rank: &'static str,
    pub local_size: fn(&Variables<'_>) -> Result<Option<u32>, NoRank>,
    /// Whether this launcher may have set another launcher's variables: it has its own PMI or PMIx server, which serves
    /// its ranks.
    pub serves: fn(&Variables<'_>) -> bool,
}

impl RankVariables {
    pub(super) fn are_in(&self, variables: &Variables<'_>) -> bool {
        [self.rank].iter().chain(self.needs).all(|name| variables.get(name).is_some())
    }
}

/// An environment. Variables that are empty or no valid text count as not set.
#[derive(Debug)]
pub(crate) struct Variables<'a>(pub(super) &'a [(&'a OsStr, &'a OsStr)]);

impl Variables<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| *known == name)?;
        value.to_str().filter(|value| !value.is_empty())
    }

    /// # Errors
    /// The variable is set and is not a number.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u32>, NoRank> {
        let parsed = self.get(name).map(str::parse).transpose();
        parsed.map_err(|_| self.nonsense(name, "not a 32-bit number"))
    }

    pub(crate) fn nonsense(&self, name: &'static str, wanted: &'static str) -> NoRank {
        NoRank::Nonsense { name, value: self.get(name).unwrap_or_default().to_owned(), wanted }
    }
}
