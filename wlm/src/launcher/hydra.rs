//! Hydra's mpiexec: MPICH 3.2 to 5.0, and Intel MPI's, which is made from it. Source: the match tables of those releases, `mpiexec --help`;
//! for Intel's own options its developer reference.

use super::dialect::{Dialect, Grammar, Launcher, Takes, reads_no_file};

pub(super) static DIALECT: Dialect = Dialect {
    launcher: Launcher::Hydra,
    name: "mpiexec.hydra",
    grammar: Grammar::AnyDashes,
    options: &[(Takes::Nothing, NOTHING), (Takes::Value, VALUE), (Takes::Assignment, ASSIGNMENT)],
    runs_nothing: &["help", "info"],
    file_options: &["configfile"],
    file_is_program: false,
    reads_file: reads_no_file,
    knows_marker: false,
};

#[rustfmt::skip]
const NOTHING: &[&str] = &[
    "disable-auto-cleanup enable-auto-cleanup dac", "disable-hostname-propagation enable-hostname-propagation",
    "enable-x disable-x", "envall", "envnone", "genvall", "genvnone", "help h", "hybrid-hosts", "info version",
    "pmi-port", "pmi_args", "prepend-rank l", "print-all-exitcodes", "profile", "report-bindings", "skip-launch-node",
    "verbose v debug", // Intel's
    "aps", "mps", "nolocal", "ordered-output", "prepend-timestamp", "print-rank-map", "prot", "rr", "silent-abort",
];

#[rustfmt::skip]
const VALUE: &[&str] = &[
    "bind-to binding", "ckpoint-interval", "ckpoint-num", "ckpoint-prefix", "ckpointlib", "configfile", "demux", "envlist",
    "errfile-pattern errfile", "f hostfile machinefile", "genvlist", "gpu-subdevs-per-proc", "gpus-per-proc g",
    "hosts host hostlist machine machines machinelist", "iface", "launcher bootstrap", "launcher-exec bootstrap-exec",
    "localhost", "map-by", "membind", "memory-alloc-kinds", "n np", "nameserver", "order-nodes", "outfile-pattern outfile",
    "output-from", "ppn perhost grr", "prepend-pattern", "rankmap", "rmk", "topolib", "usize", "wdir", // Intel's
    "cpu-bind", "envexcl", "genvexcl", "gtool", "gtoolfile", "hosts-group", "path", "s", "umask",
];

const ASSIGNMENT: &[&str] = &["env", "genv"];
