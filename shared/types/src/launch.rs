//! How a tool wants ranks to be launched: hosts, hold method, agent.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Kind};
use crate::rank_set::RankSet;

/// Whether gantry's agent is sent to the nodes of an app. A sent agent is deleted as soon as it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SendAgent {
    /// To nodes that lack it at its path, as far as that can be determined.
    #[default]
    Auto,
    /// To all nodes.
    Always,
    /// To none.
    Never,
}

impl fmt::Display for SendAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

impl FromStr for SendAgent {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let all = [Self::Auto, Self::Always, Self::Never];
        let found = all.into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| {
            let message = format!("'{text}' is not a value of --send-agent");
            Failure::new(Kind::Invalid, message).with_hint("use auto, always or never")
        })
    }
}

/// How many of the hosts must be reached. Under every policy, all hosts that are reached in time are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostsPolicy {
    /// All.
    #[default]
    All,
    /// So many.
    Quorum(u32),
    /// So many of a hundred, 1 to 100.
    Percent(u8),
    /// One, so that there is something to go on with.
    BestEffort,
}

impl HostsPolicy {
    /// Whether to continue with this many hosts of which this many are missing.
    #[must_use]
    pub fn allows(self, of: usize, missing: usize) -> bool {
        let there = of.saturating_sub(missing);
        let enough = match self {
            Self::All => missing == 0,
            Self::Quorum(wanted) => there >= wanted as usize,
            Self::Percent(percent) => there * 100 >= of * usize::from(percent),
            Self::BestEffort => true,
        };
        enough && (there > 0 || missing == 0)
    }
}

impl FromStr for HostsPolicy {
    type Err = Failure;

    /// Reads `all`, `quorum=N`, `quorum=P%`, or `best-effort`.
    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            let what = format!("'{text}' is not a policy for unreachable hosts");
            Failure::new(Kind::Invalid, what).with_hint("write all, quorum=N, quorum=P%, or best-effort")
        };
        let Some(number) = text.strip_prefix("quorum=") else {
            return match text {
                "all" => Ok(Self::All),
                "best-effort" => Ok(Self::BestEffort),
                _ => Err(wrong()),
            };
        };
        match number.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent).ok_or_else(wrong)
            }
            None => {
                let number = number.parse().ok().filter(|number| *number > 0);
                number.map(Self::Quorum).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for HostsPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Quorum(number) => write!(f, "quorum={number}"),
            Self::Percent(percent) => write!(f, "quorum={percent}%"),
            Self::BestEffort => f.write_str("best-effort"),
        }
    }
}

/// How ranks of a launcher are held and found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HoldMethod {
    /// [`HoldMethod::Exec`] if gantry understands the launcher's command line, and the launcher's agents can stay until
    /// they have cleaned up. Otherwise [`HoldMethod::Mpir`] if the program is, or may start, the WLM's own launcher.
    #[default]
    Detect,
    /// The launcher starts gantry's agent, which starts the program.
    Exec,
    /// The launcher stops its ranks itself and reports where they are, as for debuggers (MPIR). Its command line is
    /// unchanged. If possible, the launcher continues meanwhile, and serves its ranks and the WLM.
    Mpir,
    /// As [`HoldMethod::Mpir`], but the launcher's first thread stays at its breakpoint until the ranks are released,
    /// as under a debugger. Then it releases the ranks itself, even if the tool detaches while they are held. For
    /// launchers that must not continue earlier.
    MpirStop,
}

impl HoldMethod {
    /// Whether the launcher stops its ranks itself.
    pub fn is_by_launcher(self) -> bool {
        matches!(self, Self::Mpir | Self::MpirStop)
    }
}

/// How ranks would be held, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HoldChoice {
    /// `direct`: agents start the ranks. `exec`: a launcher starts the agent, which starts the program. `mpir`: a
    /// launcher stops its ranks itself. `mpir-stop`: the same, and the launcher stays at its breakpoint until they are
    /// released.
    pub method: &'static str,
    /// Reads as "because ...".
    pub why: String,
}

/// A job with the attributes of the Globus Toolkit's job managers. Each workload manager converts it to its
/// launcher's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The part of the WLM's machines, in the WLM's own terms: a partition, a queue, hosts.
    pub place: Option<String>,
    /// Number of processes; for [`JobType::Single`] of processors.
    pub count: u32,
    /// On how many nodes.
    pub host_count: Option<u32>,
    /// The meaning of `count`.
    pub job_type: JobType,
    /// The queue.
    pub queue: Option<String>,
    /// The account that is charged.
    pub project: Option<String>,
    /// How long it may run, in minutes.
    pub max_minutes: Option<u32>,
    /// Memory that it needs on every node, in megabytes.
    pub min_memory_mb: Option<u32>,
    /// Memory that it may use on every node, in megabytes.
    pub max_memory_mb: Option<u32>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// The meaning of a job's `count`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobType {
    /// Independent processes.
    #[default]
    Multiple,
    /// Processors of one process.
    Single,
    /// Processes of one MPI program.
    Mpi,
}

/// A job with ranks of different programs, possibly on chosen hosts: the form that a process manager starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mixed {
    /// The programs; every rank belongs to one part.
    pub parts: Vec<MixedPart>,
    /// The host of every rank, in the order of ranks; empty: the WLM chooses.
    pub hosts: Vec<String>,
}

/// The binding of ranks that gantry starts itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    /// No binding beyond that of gantry's agent.
    #[default]
    None,
    /// One core per rank, with all its hardware threads.
    Core,
}

/// The server by which ranks that gantry starts itself become one MPI world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mpi {
    /// That of the programs' MPI library, where it is one of their dependencies. Otherwise PMI.
    #[default]
    Detect,
    /// PMI-1 and PMI-2.
    Pmi,
    /// PMIx.
    Pmix,
}

/// Ranks of a [`Mixed`] job with the same program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MixedPart {
    /// The ranks.
    pub ranks: RankSet,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Changes of their environment.
    pub env: Vec<(OsString, OsString)>,
    /// The directory in which they start; none: the launch's own.
    pub cwd: Option<PathBuf>,
}

impl Mixed {
    /// Number of ranks.
    pub fn size(&self) -> u32 {
        let size: u64 = self.parts.iter().map(|part| part.ranks.len()).sum();
        u32::try_from(size).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_how_many_may_be_missing() {
        let most = |policy: &str| {
            let policy: HostsPolicy = policy.parse().unwrap();
            (0..=4).filter(|missing| policy.allows(4, *missing)).max()
        };
        assert_eq!(most("all"), Some(0));
        assert_eq!(most("quorum=3"), Some(1));
        assert_eq!(most("quorum=5"), None);
        assert_eq!(most("quorum=51%"), Some(1));
        assert_eq!(most("quorum=50%"), Some(2));
        assert_eq!(most("best-effort"), Some(3));
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in ["all", "quorum=3", "quorum=75%", "best-effort"] {
            assert_eq!(text.parse::<HostsPolicy>().unwrap().to_string(), text);
        }
        for wrong in ["", "some", "quorum", "quorum=0", "quorum=x", "quorum=0%", "quorum=101%", "best effort"]
        {
            assert!(wrong.parse::<HostsPolicy>().is_err(), "{wrong}");
        }
    }
}
