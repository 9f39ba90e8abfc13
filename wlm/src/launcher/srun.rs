//! Slurm's srun, versions 20.11 to 26.05. Source: the option tables of those releases, srun(1), `srun --help`.
//!
//! Plugins add options of their own (SPANK). With an attached value they do no harm; without, `--` is needed before the program.

use super::dialect::{Dialect, Environment, Given, Grammar, Launcher, Takes};

pub(super) static DIALECT: Dialect = Dialect {
    launcher: Launcher::Srun,
    name: "srun",
    grammar: Grammar::Getopt,
    options: &[(Takes::Nothing, NOTHING), (Takes::Attached, ATTACHED), (Takes::Value, VALUE)],
    runs_nothing: &["help", "usage", "version", "test-only", "autocomplete"],
    file_options: &[],
    file_is_program: true,
    reads_file,
    knows_marker: true,
};

/// `--multi-prog`, also by its variable.
fn reads_file(given: &[Given], environment: &Environment) -> bool {
    given.iter().any(|given| given.name == "multi-prog")
        || environment.iter().any(|(name, _)| name == "SLURM_SRUN_MULTI")
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
