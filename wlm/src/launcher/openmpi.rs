//! Open MPI's mpirun: orterun of 4.x and, since 5.0, PRRTE's. Source: the option tables of those releases, `mpirun
//! --help full`.
//!
//! One table serves both. A few options take a value in only one of them. For these it is unknown whether a value
//! follows.

use super::dialect::{Dialect, Grammar, ProgramFiles, Takes};
use super::variables::{RankSide, RankVariables};

pub(super) static OPEN_MPI: Dialect = COMMON;

/// The common facts of `mpirun` and `prterun`.
pub(super) const COMMON: Dialect = Dialect {
    name: "mpirun",
    file_names: &["orterun", "mpirun.openmpi", "mpiexec.openmpi"],
    versions: &["open mpi", "openrte"],
    stops_ranks: false,
    verbs: &[],
    grammar: Grammar::OneOrTwoDashes,
    options: &[
        (Takes::Nothing, NOTHING),
        (Takes::Attached, ATTACHED),
        (Takes::Value, VALUE),
        (Takes::Two, TWO),
        (Takes::Depends, &["display-topo", "dvm"]),
    ],
    runs_nothing: &["help", "version"],
    files: ProgramFiles::Option { names: &["app"], comments: &["#", "//"] },
    knows_marker: true,
    forward_option: Some("-x"),
    adjust: None,
    ranks: &RANKS,
};

pub(super) static RANKS: RankSide = COMMON_RANKS;

/// The environment of the ranks of `mpirun` and `prterun`.
pub(super) const COMMON_RANKS: RankSide = RankSide {
    word: "openmpi",
    variables: &[
        RankVariables {
            outward: 0,
            needs: &[],
            rank: "OMPI_COMM_WORLD_RANK",
            size: &["OMPI_COMM_WORLD_SIZE"],
            local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
            local_size: |variables| variables.number("OMPI_COMM_WORLD_LOCAL_SIZE"),
            serves: |_| false,
        },
        // PMIx sets the rank, but usually not the size. Only its server tells the size, not the environment.
        RankVariables {
            outward: 2,
            needs: &[],
            rank: "PMIX_RANK",
            size: &["PMIX_SIZE"],
            local_rank: "PMIX_LOCAL_RANK",
            local_size: |variables| variables.number("PMIX_LOCAL_SIZE"),
            serves: |_| false,
        },
    ],
    hides: &[],
    node_name: None,
    kills_leftovers: |_| false,
};

#[rustfmt::skip]
const NOTHING: &[&str] = &[
    "allow-run-as-root", "bind-to-core", "bind-to-socket", "bycore", "bynode", "byslot", "continuous", "crdebug",
    "debug tv", "debug-daemons", "debug-daemons-file", "debug-devel d", "disable-recovery", "display-allocation",
    "display-comm", "display-comm-finalize", "display-devel-allocation", "display-devel-map", "display-diffable-map",
    "display-map", "do-not-launch", "do-not-resolve", "enable-instant-on-support", "enable-recovery",
    "fwd-mpirun-port", "get-stack-traces", "hetero-nodes", "index-argv-by-rank", "leave-session-attached",
    "merge-stderr-to-stdout", "no-app-prefix", "no-ready-msg", "nolocal", "nooversubscribe", "noprefix", "novm",
    "oversubscribe", "parsable parseable", "pernode", "preload-binary s", "quiet q", "report-bindings",
    "report-child-jobs-separately", "report-state-on-timeout", "set-cwd-to-session-dir", "set-sid", "show-progress",
    "stop-in-init", "stop-on-exec", "system-server", "tag-output", "timestamp-output", "use-hwthread-cpus", "use-regexp", "verbose v",
    "version V", "xml",
];

const ATTACHED: &[&str] = &["fwd-environment", "help h", "output-proctable", "stop-in-app"];

#[rustfmt::skip]
const VALUE: &[&str] = &[
    "add-host", "add-hostfile", "am amca", "app", "app-pmix-prefix", "bind-to bindto", "cartofile cf", "cpu-list", "cpu-set",
    "cpus-per-proc", "cpus-per-rank", "debugger", "default-hostfile", "display", "dvm-uri", "exec-agent",
    "forward-signals", "gpu-support", "hnp", "host H", "hostfile machinefile", "initial-errhandler", "keepalive", "launch-agent",
    "map-by mapby", "max-restarts", "max-vm-size", "memory-alloc-kinds", "n np c", "N npernode", "namespace", "npersocket",
    "num-connect-retries", "ompi-server", "output", "output-directory", "output-filename", "path", "personality", "pid",
    "pmix-prefix", "ppr", "prefix", "preload-files", "pset", "rank-by rankby", "rankfile rf",
    "report-events", "report-pid", "report-uri", "rtos runtime-options", "session-id", "set-env", "singleton", "spawn-timeout", "sstore-load",
    "stdin", "stream-buffering", "timeout", "tmpdir", "tune", "unset-env", "wait-to-connect", "wdir wd", "with-ft",
    "x", "xml-file", "xterm",
];

const TWO: &[&str] = &["mca", "gmca", "omca", "gomca", "prtemca", "gprtemca", "pmixmca", "gpmixmca"];
