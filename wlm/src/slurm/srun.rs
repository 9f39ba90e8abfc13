//! Slurm's srun, versions 20.11 to 26.05. Source: the option tables of those releases, srun(1), `srun --help`.
//!
//! Plugins (SPANK) add options. With an attached value they do no harm. Otherwise the user must put `--` before the
//! program.

use super::multi_prog;
use crate::launcher::{
    Dialect, Environment, Given, Grammar, NoRank, ProgramFiles, RankSide, RankVariables, Takes, Variables,
};

/// Slurm's srun.
pub(crate) static SRUN: Dialect = Dialect {
    name: "srun",
    file_names: &["srun"],
    versions: &["\nslurm"],
    stops_ranks: true,
    verbs: &[],
    grammar: Grammar::Getopt,
    options: &[(Takes::Nothing, NOTHING), (Takes::Attached, ATTACHED), (Takes::Value, VALUE)],
    runs_nothing: &["help", "usage", "version", "test-only", "autocomplete"],
    files: ProgramFiles::InPlace {
        is_given: reads_file,
        rewrite_line: multi_prog::rewrite_line,
        max_bytes: multi_prog::MAX_BYTES,
    },
    knows_marker: true,
    forward_option: None,
    adjust: None,
    ranks: &SRUN_RANKS,
};

/// The environment of its ranks.
pub(crate) static SRUN_RANKS: RankSide = RankSide {
    word: "srun",
    // A batch script also has SLURM_PROCID=0 and SLURM_NTASKS, but it is not a step of srun.
    variables: &[RankVariables {
        outward: 3,
        needs: &["SLURM_STEP_ID"],
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_size,
        // Slurm's PMIx server names its steps this way.
        serves: |variables| variables.get("PMIX_NAMESPACE").is_none_or(|name| name.starts_with("slurm.")),
    }],
    hides: &[],
    node_name: Some("SLURMD_NODENAME"),
    kills_leftovers: is_of_step,
};

/// `--multi-prog`, also by its variable.
fn reads_file(given: &[Given], environment: &Environment) -> bool {
    given.iter().any(|given| given.name == "multi-prog")
        || environment.iter().any(|(name, _)| name == "SLURM_SRUN_MULTI")
}

/// Whether a process is in a control group of a step.
fn is_of_step(cgroup: &str) -> bool {
    cgroup.lines().any(|line| line.contains("/slurm") && line.contains("/step_"))
}

/// The number of tasks on the node. These variables count over all parts of a heterogeneous step.
fn local_size(variables: &Variables<'_>) -> Result<Option<u32>, NoRank> {
    const TASKS: &str = "SLURM_STEP_TASKS_PER_NODE";
    let (Some(text), Some(node)) = (variables.get(TASKS), variables.number("SLURM_NODEID")?) else {
        return Ok(None);
    };
    let nonsense = || variables.nonsense(TASKS, "no list of tasks per node");
    parse_tasks_on(text, node).map(Some).ok_or_else(nonsense)
}

/// The number of tasks in `2(x3),1` for the node with that number.
fn parse_tasks_on(text: &str, node: u32) -> Option<u32> {
    let mut first = 0_u32;
    for item in text.split(',') {
        let (tasks, nodes) = match item.split_once("(x") {
            Some((tasks, rest)) => (tasks, rest.strip_suffix(')')?.parse().ok()?),
            None => (item, 1_u32),
        };
        first = first.checked_add(nodes)?;
        if node < first {
            return tasks.parse().ok();
        }
    }
    None
}

#[rustfmt::skip]
const NOTHING: &[&str] = &[
    "async", "consolidate-segments", "contiguous", "debugger-test", "disable-status X", "exact", "help h", "hold H",
    "interactive", "label l", "multi-prog", "no-allocate Z", "overcommit O", "oversubscribe s", "parsable",
    "preserve-env E", "quiet Q", "quit-on-interrupt", "reboot", "spread-job", "spread-segments", "stepmgr",
    "test-only", "unbuffered u", "usage", "use-min-nodes", "verbose v", "version V", "wait-for-children", "whole",
];

#[rustfmt::skip]
const ATTACHED: &[&str] = &[
    "bcast", "compress", "exclusive", "external-launcher", "immediate I", "kill-on-bad-exit K", "nice", "no-kill k",
    "oom-kill-step", "overlap", "propagate", "pty", "resv-ports", "send-libs", "x11",
];

#[rustfmt::skip]
const VALUE: &[&str] = &[
    "accel-bind", "account A", "acctg-freq", "autocomplete", "bb", "bbf", "bcast-exclude", "begin b", "chdir D", "cluster",
    "cluster-constraint", "clusters M", "comment", "constraint C", "container", "container-id", "container-type",
    "context", "core-spec S", "cores-per-socket", "cpu-bind cpu_bind", "cpu-freq", "cpus-per-gpu", "cpus-per-task c",
    "deadline", "delay-boot", "dependency d", "distribution m", "epilog", "error e", "exclude x", "export", "extra",
    "extra-node-info B", "gid", "gpu-bind", "gpu-freq", "gpus G", "gpus-per-node", "gpus-per-socket", "gpus-per-task",
    "gres", "gres-flags", "het-group pack-group", "hint", "ignore-signals", "input i", "job-name J", "jobid", "licenses L",
    "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mem-update", "mincpus", "mpi",
    "msg-timeout", "network", "nodefile F", "nodelist w", "nodes N", "ntasks n", "ntasks-per-core", "ntasks-per-gpu",
    "ntasks-per-node tasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "open-mode", "output o", "partition p",
    "power", "prefer", "priority", "profile", "prolog", "qos q", "relative r", "reservation", "resources", "segment",
    "signal", "slurmd-debug", "sockets-per-node", "switches", "task-epilog", "task-prolog", "thread-spec", "threads T",
    "threads-per-core", "time t", "time-min", "tmp", "treewidth", "tres-bind", "tres-per-task", "uid", "wait W", "wckey",
];

#[cfg(test)]
mod tests;
