//! Jobs that are described by what they need, not by a launcher's options: what a co-allocator hands to each workload manager.

use std::ffi::OsString;

use crate::{Error, Result};

/// A job in the words of the Globus Toolkit's job managers. [`Wlm::build_args`](crate::Wlm::build_args) makes a launcher's arguments of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The part of the WLM's machines that is meant, in the WLM's own words: a partition, a queue, hosts.
    pub place: Option<String>,
    /// Number of processes; for [`JobType::Single`] of processors.
    pub count: u32,
    /// On how many nodes.
    pub host_count: Option<u32>,
    /// What `count` counts.
    pub job_type: JobType,
    /// The queue.
    pub queue: Option<String>,
    /// Whom it is accounted to.
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

/// What a job's `count` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobType {
    /// Processes that know nothing of each other.
    #[default]
    Multiple,
    /// Processors of one process.
    Single,
    /// Processes of one MPI program.
    Mpi,
}

impl Wanted {
    /// Refuses what a WLM cannot honour: names of attributes, each with whether it was asked for.
    ///
    /// # Errors
    /// The first that was.
    pub(crate) fn refuse(&self, wlm: &str, attributes: &[(&str, bool)]) -> Result<()> {
        match attributes.iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((attribute, _)) => {
                Err(Error::invalid_with(format!("{wlm} cannot honour {attribute}"), "leave it out"))
            }
        }
    }
}
