//! What a process manager can be asked, whoever asks it and in whatever language.

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
    /// Tell of groups.
    Get(Query),
    /// Send a signal to all processes of groups.
    Signal {
        /// Which.
        query: Query,
        /// What they get.
        signal: Signal,
    },
    /// End groups and clean up after them.
    Kill(Query),
    /// Forget groups that have ended.
    Forget(Query),
    /// Wait for the end of groups.
    Wait {
        /// Which.
        query: Query,
        /// How long; none: as long as they take.
        limit: Option<Duration>,
    },
    /// Save groups so that they can be started again, which nothing here can.
    Checkpoint(Query),
}

/// A group to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGroup {
    /// Who submits it; none: the user.
    pub submitter: Option<String>,
    /// How many processes it has; none: as many as the ranges of its specifications.
    pub totalprocs: Option<u32>,
    /// Where its output goes: a file, to which it is added; none: nowhere.
    pub output: Option<String>,
    /// The workload manager that starts it; none: what is detected.
    pub wlm: Option<String>,
    /// What its processes are.
    pub specs: Vec<ProcessSpec>,
    /// A host for every process, in order, or hosts that they get in turn; empty: the workload manager chooses.
    pub hosts: Vec<String>,
}

/// What some processes of a group are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Which processes, counted from 1; none: all.
    pub range: Option<Numbers>,
    /// The program: a path, or a name.
    pub exec: String,
    /// Where a name is looked up: it becomes the processes' PATH.
    pub path: Option<String>,
    /// The directory in which they start.
    pub cwd: Option<String>,
    /// As whom they run.
    pub user: Option<String>,
    /// A tool daemon beside them: its program and arguments.
    pub co_process: Option<String>,
    /// Their arguments.
    pub args: Vec<String>,
    /// What is changed in their environment.
    pub env: Vec<(String, String)>,
}

/// What a process manager answers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// A group was started.
    Created {
        /// Its number.
        pgid: u32,
    },
    /// Groups, as they were asked for, or as they were when something was done to them.
    Groups(Told),
    /// It was not done.
    Refused {
        /// The line of the message that is wrong, from 1, if that is what is wrong.
        line: Option<u64>,
        /// Why.
        failure: Failure,
    },
}

/// Groups that are told of.
#[derive(Debug, Default)]
pub struct Told {
    /// All that were looked at.
    pub groups: Groups,
    /// Which of them are meant, and what is told of each.
    pub found: Vec<Found>,
    /// Those to which something could not be done, by their numbers, and why. They are not among those that are told.
    pub troubles: Vec<(u32, Failure)>,
    /// Apps whose frontend gave no answer: nobody knows whether they are meant.
    pub silent: Vec<AppId>,
    /// Those of all groups that have ended, by their numbers.
    pub kept: BTreeSet<u32>,
}
