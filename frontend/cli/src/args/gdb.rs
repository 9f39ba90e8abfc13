//! The options of the parallel gdb.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gantry_types::rank_set::RankSet;

use super::{Hosts, parse_seconds};

/// Debug all ranks with gdb, in one window. What ranks answer alike is shown once.
///
/// Each rank that a command is for gets a gdb on its own node. Commands go to the current set of ranks, which stands in the prompt. Numbers in which the
/// ranks differ are shown as ranges. 'help' at the prompt lists what gantry adds to gdb's own commands. Ctrl-C stops the ranks
/// that a command has let go.
///
/// Ranks that are launched for it are held before their first instruction, and end when you leave. Ranks that ran before go on when you leave, and those
/// that were held stay held, unless you have let them go on. So they do when gantry is killed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry gdb -- -n 4 ./app input.dat
      Launch four ranks, held before their first instruction: set breakpoints, and type 'continue'.
  gantry gdb 1234.0
      A step of a job that runs. 1234 is the newest step of that job.
  gantry gdb --ranks 0,8-15 3kx9
      These ranks of an app of 'gantry ps'.
  gantry gdb --batch --ex 'bt' 4711
      Where the ranks of that launcher are; they go on.
  gantry gdb --batch --ex 'break solve if n == 0' --ex continue --ex 'print residual' -- -n 64 ./app
      Which ranks come to solve with no elements.
  gantry gdb --json --batch -x look.gdb 1234
      The commands of a file; each answer is an object on a line of its own.")]
pub(crate) struct Gdb {
    /// A job of the workload manager (JOB, JOB.STEP), a launcher's process id, the ranks' process ids with commas between, or an app: its id, or 'pid:1234' with the process id of its gantry command. Without it, what
    /// follows '--' is launched.
    #[arg(required_unless_present = "rest")]
    pub(crate) target: Option<String>,
    /// The first current set, such as 0-3,7. Default: all ranks.
    #[arg(long, value_name = "RANKS")]
    pub(crate) ranks: Option<RankSet>,
    /// The debugger on the nodes: a name or a path. It must understand gdb's machine interface, as cuda-gdb and rocgdb do.
    #[arg(long, value_name = "PROGRAM", default_value = "gdb")]
    pub(crate) gdb: OsString,
    /// Read commands from a file first. May be repeated.
    #[arg(short = 'x', long = "command", value_name = "SCRIPT")]
    pub(crate) scripts: Vec<PathBuf>,
    /// Carry out a command, after those of -x. May be repeated; -ex does the same.
    #[arg(long = "ex", value_name = "COMMAND")]
    pub(crate) commands: Vec<String>,
    /// Leave when the commands of -x and --ex are done.
    #[arg(long)]
    pub(crate) batch: bool,
    /// When some ranks stand and no other has come to stand for this long, the others are shown as running.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = parse_seconds)]
    pub(crate) patience: Duration,
    /// The workload manager to use. 'gantry wlm' lists them. Default: the one that is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    /// How long the launch may wait for nodes. That time does not count towards --timeout. Default: as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "target")]
    pub(crate) queue_timeout: Option<Duration>,
    /// How long the start, and each answer of the nodes, may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// Without a target, what you would give the launcher; else options for how nodes are reached, as for 'gantry attach'.
    #[arg(last = true, value_name = "LAUNCHER ARGUMENTS")]
    pub(crate) rest: Vec<OsString>,
}
