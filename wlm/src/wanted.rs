//! Jobs described by their requirements, not by a launcher's options. A co-allocator or a process manager passes them
//! to each workload manager.

use std::collections::HashMap;
use std::ffi::OsString;

use gantry_types::id::Rank;
use gantry_types::launch::{JobType, Mixed, Wanted};
use gantry_types::rank_set::RankSet;

use crate::error::{Error, Result};

/// The arguments `-n PROCESSES [-N NODES] -- PROGRAM ARGS` for the WLM named `wlm`. That WLM has only nodes: no queues,
/// no accounts, no limits, no launcher.
///
/// # Errors
/// Names a requested attribute that the WLM does not support.
pub(crate) fn build_plain_args(wanted: &Wanted, wlm: &str) -> Result<Vec<OsString>> {
    let attributes = [
        ("queue", wanted.queue.is_some()),
        ("project", wanted.project.is_some()),
        ("maxWallTime", wanted.max_minutes.is_some()),
        ("minMemory", wanted.min_memory_mb.is_some()),
        ("maxMemory", wanted.max_memory_mb.is_some()),
    ];
    if let Some((attribute, _)) = attributes.iter().find(|(_, asked)| *asked) {
        return Err(Error::invalid_with(format!("{wlm} cannot honour {attribute}"), "leave it out"));
    }
    let processes = match wanted.job_type {
        // Agents serve all ranks that they start as MPI programs.
        JobType::Multiple | JobType::Mpi => wanted.count,
        JobType::Single => 1,
    };
    let mut args: Vec<OsString> = vec!["-n".into(), processes.to_string().into()];
    if let Some(hosts) = wanted.host_count {
        args.extend(["-N".into(), hosts.to_string().into()]);
    }
    args.push("--".into());
    args.push(wanted.program.clone());
    args.extend(wanted.args.iter().cloned());
    Ok(args)
}

/// The hosts of a job, each once, and the ranks of each. `None`: the WLM chooses them.
pub(crate) fn lay_out(mixed: &Mixed) -> Option<(Vec<String>, Vec<RankSet>)> {
    let mut hosts: Vec<String> = Vec::new();
    let mut layout: Vec<RankSet> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (rank, host) in (0..).zip(&mixed.hosts) {
        let place = *places.entry(host).or_insert_with(|| {
            hosts.push(host.clone());
            layout.push(RankSet::new());
            hosts.len() - 1
        });
        layout[place].insert(Rank(rank));
    }
    (!hosts.is_empty()).then_some((hosts, layout))
}
