//! The options of the commands for call paths.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::{Hosts, parse_pause, parse_seconds, parse_span};

/// Show where all ranks are, as one tree of their call paths. The odd rank comes first.
///
/// Ranks with the same call path are one class. Each line has functions, caller first, and the ranks that are in them. A rank stands still for some
/// milliseconds at most, and goes on as it was. The nodes need no debugger and no files with symbols: gantry sends the program that reads the stacks, and looks up
/// functions and lines where you are. Programs are shown from 'main' to the first function that waits for others, such as MPI_Wait.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry stack 1234.0
      A step of a job. 1234 is the newest step of that job.
  gantry stack 4711
      The ranks of the launcher with that process id.
  gantry stack 3kx9
      An app of 'gantry ps'.
  gantry stack --threads --ranks 0-3,7 1234
      All threads of these ranks.
  gantry stack --samples 20 --every 0.05 1234
      Twenty samples: a rank that moves is in several places.
  gantry stack --html stacks.html --svg stacks.svg 1234
      Also as a page and as a picture.
  gantry stack --json 4711,4712
      The classes as one object.
  gantry stack --launch --after 5 -- -n 4 ./app
      Launch a program and look at it after five seconds.")]
pub(crate) struct Stack {
    /// A job of the workload manager (JOB, JOB.STEP), a launcher's process id, the ranks' process ids with commas between, or an app: its id, or 'pid:1234' with the process id of its gantry command.
    #[arg(required_unless_present = "launch", conflicts_with = "launch")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Launch what follows '--', look at it, and stay until it ends.
    #[arg(long, requires = "rest", conflicts_with = "wait")]
    pub(crate) launch: bool,
    /// How long a program that is launched runs before it is looked at.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds, requires = "launch")]
    pub(crate) after: Duration,
    /// How long the launch may wait for nodes. That time does not count towards --timeout. Default: as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "launch")]
    pub(crate) queue_timeout: Option<Duration>,
    /// How often each stack is read.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) samples: u32,
    /// The time from one sample to the next.
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = parse_seconds)]
    pub(crate) every: Duration,
    /// Also write the tree as a page for a browser: it folds, and can be searched.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Also write the tree as a picture.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Also write the tree for Graphviz.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Also write folded stacks, which programs that draw flame graphs read.
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Show whole paths: also the callers of 'main', and the callees of a function that waits.
    #[arg(long)]
    pub(crate) full: bool,
    /// Options for how nodes are reached, as for 'gantry attach'; with --launch what you would give the launcher.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) rest: Vec<OsString>,
}

/// Say which ranks are at another place than the others: "rank 37 on n012 is in `solve` (heat.c:141) while 63 others wait in MPI_Allreduce".
///
/// Each rank is read several times, until two looks that follow each other are the same. A rank that moves is at the place that all of its samples have in
/// common. Functions of MPI and of the system that wait for others are known. With --threads, the threads of one name are compared too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry why 1234.0
      A step of a job. 1234 is the newest step of that job.
  gantry why 4711
      The ranks of the launcher with that process id.
  gantry why --json 3kx9
      An app of 'gantry ps'; an object with the sentences, and with the ranks at each place.
  gantry why --watch 1234
      Stay, and say so when nothing has moved for five minutes.
  gantry why --wait=2h --watch=20m --exit 1234 || [ $? -ne 75 ] || ./cancel-my-job
      End with code 75 when nothing has moved for twenty minutes, and cancel the job then. All other codes mean something else: 0 that the job has ended, 67 a timeout.
  gantry why --watch=20m --run 'mail -s hung me@site' --signal ABRT 1234
      Send what 'why' says by mail, then have all ranks write core files.")]
pub(crate) struct Why {
    /// A job of the workload manager (JOB, JOB.STEP), a launcher's process id, the ranks' process ids with commas between, or an app: its id, or 'pid:1234' with the process id of its gantry command.
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) look: Look,
    #[command(flatten)]
    pub(crate) watch: Watch,
    /// Options for how nodes are reached, as for 'gantry attach'.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) rest: Vec<OsString>,
}

/// Show what ranks and nodes do and use, and where the ranks are, on a screen that is always fresh.
///
/// Above are ranks or nodes: state, processor time, memory. Below is the tree of call paths, as 'gantry stack' has it. Keys hold ranks and let them go, send
/// signals, show the ranks of one line of the tree alone, open 'gantry gdb' on the ranks, and write the tree as a page. '?' lists the keys. Without a
/// terminal all is printed once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry top 1234.0
      A step of a job. 1234 is the newest step of that job.
  gantry top --stacks 10 3kx9
      An app of 'gantry ps'; the call paths are read each ten seconds, and when you press r.
  gantry top --stacks 0 4711
      The call paths are read at the beginning, and then only when you press r.
  gantry top --once --ranks 0-63 1234
      A table of what these ranks do, and their call paths.
  gantry top --json 4711
      The same as one object.")]
pub(crate) struct Top {
    /// A job of the workload manager (JOB, JOB.STEP), a launcher's process id, the ranks' process ids with commas between, or an app: its id, or 'pid:1234' with the process id of its gantry command.
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) look: Look,
    /// How often the figures are fresh.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) every: Duration,
    /// The time from one look at the call paths to the next. 0: only at the beginning, and when you press r.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_pause)]
    pub(crate) stacks: Duration,
    /// Print all of it once, also on a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Options for how nodes are reached, as for 'gantry attach'.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) rest: Vec<OsString>,
}

/// Staying beside a job until nothing moves.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Stay until the job ends. Print the report of 'why' each time that nothing has moved for this long: 90, 90s, 5m or 2h. Without a value: 5m. A rank that
    /// computes moves. One that waits for others does not, also while its MPI library turns. Where gantry's own daemon has ended, --run, --signal and --exit
    /// wait until another one has read the ranks.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = parse_span)]
    pub(crate) watch: Option<Duration>,
    /// From one look to the next. Default: a tenth of that time, 30 s at most.
    #[arg(long, value_name = "TIME", value_parser = parse_span, requires = "watch")]
    pub(crate) every: Option<Duration>,
    /// When nothing moves, run this command by /bin/sh, with the report of 'why' on its standard input. It finds GANTRY_WATCH_TARGET, GANTRY_WATCH_SECONDS,
    /// GANTRY_WATCH_SIZE and GANTRY_WATCH_ODD_RANKS in its environment.
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    pub(crate) run: Option<OsString>,
    /// When nothing moves, send all ranks this signal, after the command of --run.
    #[arg(long, value_name = "SIGNAL", requires = "watch")]
    pub(crate) signal: Option<Signal>,
    /// When nothing moves, end with exit code 75, after --run and --signal.
    #[arg(long, requires = "watch")]
    pub(crate) exit: bool,
}

impl Watch {
    /// From one look to the next, when ranks stand still for `limit`.
    pub(crate) fn interval(&self, limit: Duration) -> Duration {
        const LONGEST: Duration = Duration::from_secs(30);
        self.every.unwrap_or_else(|| (limit / 10).min(LONGEST))
    }
}

impl Look {
    /// How long to wait for a job that has not started yet. `None`: the job must run.
    pub(crate) fn waiting(&self) -> Option<Duration> {
        self.wait.map(|time| time.unwrap_or(self.timeout))
    }
}

/// Which ranks are looked at, and how they are reached.
#[derive(Debug, Args)]
pub(crate) struct Look {
    /// Read all threads of each rank, not only the first one.
    #[arg(long)]
    pub(crate) threads: bool,
    /// Read only these ranks, such as 0-3,7.
    #[arg(long, value_name = "RANKS")]
    pub(crate) ranks: Option<RankSet>,
    /// Wait for a job that has not started yet, and for the answer of its nodes: 90, 90s, 5m or 2h. Without a value: as long as --timeout says.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = parse_span)]
    pub(crate) wait: Option<Option<Duration>>,
    /// The workload manager to use. 'gantry wlm' lists them. Default: the one that is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    /// How long it may take, beside the time between samples.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}
