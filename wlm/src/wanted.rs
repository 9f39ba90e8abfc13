//! Jobs that are described by what they need, not by a launcher's options: what a co-allocator or a process manager hands to each workload manager.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use crate::error::{Error, Result};

/// A job in the words of the Globus Toolkit's job managers. [`DescribedJobs::build_args`](crate::caps::described::DescribedJobs::build_args) makes a launcher's arguments of it.
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

/// A job whose ranks need not all be the same, on hosts that may be chosen for it: what a process manager starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mixed {
    /// What the ranks are; every rank is in one part.
    pub parts: Vec<MixedPart>,
    /// The host of every rank, in the order of ranks; empty: the WLM chooses.
    pub hosts: Vec<String>,
}

/// Ranks of a [`Mixed`] job that are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MixedPart {
    /// Which.
    pub ranks: RankSet,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What is changed in their environment.
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

    /// The hosts, each once, and the ranks of each; none when the WLM is to choose.
    pub(crate) fn layout(&self) -> Option<(Vec<String>, Vec<RankSet>)> {
        let mut hosts: Vec<String> = Vec::new();
        let mut layout: Vec<RankSet> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (rank, host) in (0..).zip(&self.hosts) {
            let place = *places.entry(host).or_insert_with(|| {
                hosts.push(host.clone());
                layout.push(RankSet::new());
                hosts.len() - 1
            });
            layout[place].insert(Rank(rank));
        }
        (!hosts.is_empty()).then_some((hosts, layout))
    }
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
    /// The arguments `-n PROCESSES [-N NODES] -- PROGRAM ARGS` of the WLM named `wlm`, which has nodes and nothing else: no queues, no
    /// accounts, no limits, no launcher.
    ///
    /// # Errors
    /// Names an attribute that was asked for and cannot be honoured.
    pub(crate) fn build_plain_args(&self, wlm: &str) -> Result<Vec<OsString>> {
        let attributes = [
            ("queue", self.queue.is_some()),
            ("project", self.project.is_some()),
            ("maxWallTime", self.max_minutes.is_some()),
            ("minMemory", self.min_memory_mb.is_some()),
            ("maxMemory", self.max_memory_mb.is_some()),
        ];
        if let Some((attribute, _)) = attributes.iter().find(|(_, asked)| *asked) {
            return Err(Error::invalid_with(format!("{wlm} cannot honour {attribute}"), "leave it out"));
        }
        let processes = match self.job_type {
            JobType::Multiple => self.count,
            JobType::Single => 1,
            JobType::Mpi => {
                let message =
                    format!("{wlm} starts processes without an MPI launcher, and cannot honour jobType=mpi");
                let hint = "use jobType=multiple, or have the program start its launcher itself";
                return Err(Error::invalid_with(message, hint));
            }
        };
        let mut args: Vec<OsString> = vec!["-n".into(), processes.to_string().into()];
        if let Some(hosts) = self.host_count {
            args.extend(["-N".into(), hosts.to_string().into()]);
        }
        args.push("--".into());
        args.push(self.program.clone());
        args.extend(self.args.iter().cloned());
        Ok(args)
    }
}
