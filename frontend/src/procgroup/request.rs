//! Requests to a process manager, independent of their format.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_types::error::Failure;
use gantry_types::id::AppId;
use gantry_types::signal::Signal;
use serde::{Deserialize, Serialize};

use super::group::Groups;
use super::matching::Found;
use super::query::{Numbers, Query};

/// A message to the process manager.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Start a group.
    Create(CreateGroup),
    /// Report groups.
    Get(Query),
    /// Send a signal to all processes of groups.
    Signal {
        /// The groups.
        query: Query,
        /// The signal.
        signal: Signal,
    },
    /// End groups and clean up after them.
    Kill(Query),
    /// Forget groups that have ended.
    Forget(Query),
    /// Wait for the end of groups.
    Wait {
        /// The groups.
        query: Query,
        /// The timeout; none: no limit.
        limit: Option<Duration>,
    },
    /// Save groups for a restart. Not supported.
    Checkpoint(Query),
}

/// A group to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGroup {
    /// The submitter; none: the user.
    pub submitter: Option<String>,
    /// The number of processes; none: as many as the ranges of its specifications.
    pub totalprocs: Option<u32>,
    /// The file to which its output is appended; none: its output is dropped.
    pub output: Option<String>,
    /// The workload manager that starts it; none: the detected one.
    pub wlm: Option<String>,
    /// The programs of its processes.
    pub specs: Vec<ProcessSpec>,
    /// A host for every process, in order, or fewer hosts, which are used in turn. Empty: the workload manager chooses.
    pub hosts: Vec<String>,
}

/// The program of some processes of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Which processes, counted from 1; none: all.
    pub range: Option<Numbers>,
    /// The program: a path, or a name.
    pub exec: String,
    /// The search path for a bare name. It becomes the processes' PATH.
    pub path: Option<String>,
    /// The directory in which they start.
    pub cwd: Option<String>,
    /// The user that they run as.
    pub user: Option<String>,
    /// A tool daemon beside them: its program and arguments.
    pub co_process: Option<String>,
    /// Their arguments.
    pub args: Vec<String>,
    /// Changes of their environment.
    pub env: Vec<(String, String)>,
}

/// The answer of a process manager.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// A group was started.
    Created {
        /// Its number.
        pgid: u32,
    },
    /// The matching groups, or the groups of an action with their state from before.
    Groups(Told),
    /// The request was not carried out.
    Refused {
        /// The line of the message with the error, from 1, if the message is wrong.
        line: Option<u64>,
        /// Why.
        failure: Failure,
    },
}

/// The groups in an answer.
#[derive(Debug, Default)]
pub struct Told {
    /// All groups that were examined.
    pub groups: Groups,
    /// The matching ones, and the attributes to report for each.
    pub found: Vec<Found>,
    /// The numbers of groups on which an action failed, with the reason. They are not among `found`.
    pub troubles: Vec<(u32, Failure)>,
    /// Apps whose frontend did not answer, so that it is unknown whether they match.
    pub silent: Vec<AppId>,
    /// The numbers of ended groups.
    pub kept: BTreeSet<u32>,
}
