//! Hydra's mpiexec: MPICH 3.2 to 5.0, and Intel MPI's, which is made from it. Source: the match tables of those
//! releases, `mpiexec --help`; for Intel's own options its developer reference.

use super::dialect::{Dialect, Grammar, ProgramFiles, Takes};
use super::variables::{RankSide, RankVariables};

pub(super) static HYDRA: Dialect = Dialect {
    name: "mpiexec.hydra",
    file_names: &["mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"],
    versions: &["hydra", "intel(r) mpi"],
    stops_ranks: false,
    verbs: &[],
    grammar: Grammar::AnyDashes,
    options: &[(Takes::Nothing, NOTHING), (Takes::Value, VALUE), (Takes::Assignment, ASSIGNMENT)],
    runs_nothing: &["help", "info"],
    files: ProgramFiles::Option { names: &["configfile"], comments: &["#"] },
    knows_marker: false,
    forward_option: None,
    adjust: None,
    ranks: &RANKS,
};

pub(super) static RANKS: RankSide = RankSide {
    word: "hydra",
    variables: &[RankVariables {
        outward: 1,
        needs: &[],
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_size: |variables| variables.number("MPI_LOCALNRANKS"),
        serves: |_| false,
    }],
    hides: &[],
    node_name: None,
    kills_leftovers: |_| false,
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
