//! The commands and options of the command line.

mod dap;
mod gdb;
mod groups;
mod marker;
mod mpir;
mod setup;
mod stack;
mod typed;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gantry_frontend::Config;
use gantry_types::launch::{HostsPolicy, SendAgent};

pub(crate) use self::dap::Dap;
pub(crate) use self::gdb::Gdb;
pub(crate) use self::groups::{Hit, Kill, Pm, Ps, SendSignal};
pub(crate) use self::mpir::Mpir;
pub(crate) use self::setup::{Completions, Doctor, Man, Wlm};
pub(crate) use self::stack::{Look, Stack, Top, Why};
use crate::exit;
use crate::view::Talk;

/// Launch parallel applications behind a startup barrier and start tools next to their ranks.
#[derive(Debug, Parser)]
#[command(name = "gantry", version, after_help = exit::HELP, disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Log on standard error what gantry does. Twice: everything. GANTRY_LOG selects by level and target.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
    pub(crate) verbose: u8,

    /// Print JSON: one event a line, or one object or array for a listing. Errors are events too.
    #[arg(long, global = true, display_order = 901)]
    pub(crate) json: bool,

    /// Marks the frontend process that `--background` starts. Its standard input is a socket to the process that
    /// started it.
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) background_in: Option<PathBuf>,

    /// Marks the frontend process of a process group. Its standard input is a socket to the process that started it.
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) group_owner: bool,

    /// Prints the completions of this word of a query, one per line, from the apps that run now.
    #[arg(long, hide = true, exclusive = true, value_name = "WORD")]
    pub(crate) complete_query: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Launch(Launch),
    Attach(Attach),
    Submit(Submit),
    Gdb(Box<Gdb>),
    Dap(Dap),
    Why(Box<Why>),
    Stack(Box<Stack>),
    Top(Box<Top>),
    Mpir(Box<Mpir>),
    Ps(Ps),
    Release(Release),
    Kill(Kill),
    Signal(SendSignal),
    Pm(Pm),
    Wait(Wait),
    Daemon(Daemon),
    Coalloc(Coalloc),
    Deps(Deps),
    Wlm(Wlm),
    Doctor(Doctor),
    Completions(Completions),
    Man(Man),
}

/// Launch a program, hold its ranks if asked, start tool daemons beside them, and stay until it ends.
///
/// The first Ctrl-C shows how many ranks run, the second one ends them. Standard input goes to rank 0. The output of ranks is passed through. Each line of a
/// daemon's output begins with '[daemon NUMBER HOST] '. On a terminal, a table shows where the ranks are and what they do. With NO_COLOR or
/// TERM=dumb it is printed once.
///
/// Where gantry starts the ranks itself, programs of MPICH, Intel MPI and Open MPI are one MPI_COMM_WORLD. Scripts that load Open MPI need --mpi pmix
/// before the script.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry launch -- -n 4 ./app input.dat
      Run four ranks and exit with the app's code.
  gantry launch --hold -- -n 4 ./app
      Stop every rank before its first instruction and show where it is. Enter or 'gantry release' lets the ranks go.
  gantry launch --daemon './my-tool --all' --file tool.conf -- -n 4 ./app
      Start a tool daemon on every node before the app begins.
  gantry launch --hold-for-daemons --daemon 'ps -o pid,stat,args -C app' -- -n 4 ./app
      Let a daemon look at the held ranks, and release them when it has ended.
  gantry launch --hold -- --hosts n[1-4]:2 ./app
      Two ranks on each of these hosts, by ssh. --hostfile FILE reads the hosts from a file.
  id=$(gantry launch --hold --background -- -n 4 ./app); gantry release $id; gantry wait $id
      The same in the background.")]
pub(crate) struct Launch {
    /// Hold every rank before its first instruction, until Enter or 'gantry release'.
    #[arg(long)]
    pub(crate) hold: bool,

    /// Hold all ranks until every daemon of --daemon has ended, then release them.
    #[arg(long, requires = "daemon", conflicts_with = "hold")]
    pub(crate) hold_for_daemons: bool,
    /// Keep daemons and sessions after the end of the ranks, until the last daemon has ended.
    #[arg(long)]
    pub(crate) linger: bool,
    /// The workload manager to use. 'gantry wlm' lists them. Default: the one that is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    /// Set a variable in the ranks' environment.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Hold the first program whose path fits this pattern, such as '*/app', instead of the one that the launcher starts. For programs
    /// behind a script, env or a container.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) hold_at: Option<String>,
    /// The launcher to use, such as mpiexec: a name or a path. Default: GANTRY_LAUNCHER, then
    /// CTI_LAUNCHER_NAME, then the workload manager's own.
    #[arg(long, value_name = "LAUNCHER")]
    pub(crate) launcher: Option<OsString>,
    /// How a launcher's ranks are held. 'exec': the launcher starts gantry's agent, which starts the program. 'mpir': the launcher holds them as for a debugger.
    /// 'mpir-stop': the same, and the launcher is stopped, too, until the release. Default: exec where gantry understands the launcher's options;
    /// see 'gantry wlm'.
    #[arg(long, value_name = "METHOD", value_parser = ["exec", "mpir", "mpir-stop"])]
    pub(crate) hold_method: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    /// Directory in which ranks start. Default: the current one.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Standard input of rank 0. Default: gantry's own; in the background, nothing.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Begin each line of a rank's output with 'RANK: '.
    #[arg(long)]
    pub(crate) label: bool,
    /// How long the launch may wait for nodes. That time does not count towards --timeout. Default: as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) queue_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) stay: Stay,
    /// What you would give the launcher itself: its options, the program, the program's arguments. '--' may be left out: the first word that is
    /// not gantry's own begins them.
    #[arg(last = true, required = true, value_name = "LAUNCHER ARGUMENTS")]
    pub(crate) launcher_args: Vec<OsString>,
}

/// Attach to a running program, and stay until it ends.
///
/// The ranks are not stopped. Ctrl-C detaches: tool daemons end, and the ranks stay as they were.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry attach 4711
      The ranks of the launcher with that process id.
  gantry attach 1234.0
      A step of Slurm. 1234 is the newest step of that job.
  gantry attach ssh:n1:4711
      A launcher on the host n1.
  gantry attach ssh:n1:4711 -- --window 8 --connect-timeout 5
      Eight connections at a time, each within five seconds.
  gantry attach 4711,4712 --daemon './my-tool'
      These processes are the ranks; start a tool daemon beside them.")]
pub(crate) struct Attach {
    /// A job of the workload manager (JOB, JOB.STEP), a launcher's process id, or the ranks' process ids with commas between.
    pub(crate) target: String,
    /// Wait for a job that has not started yet, as long as --timeout says.
    #[arg(long)]
    pub(crate) wait: bool,
    /// The workload manager to use. 'gantry wlm' lists them. Default: the one that is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    #[command(flatten)]
    pub(crate) stay: Stay,
    /// Options for how nodes are reached, as of a launch: --login, --window, --transport and others.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) reach_args: Vec<OsString>,
}

/// Hosts that cannot be reached, or do not have gantry.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hosts {
    /// Whether gantry's agent is sent to the nodes: 'auto' sends it to nodes that lack it, 'always' to all, 'never' to none. Without a value: always.
    /// Default: GANTRY_SEND_AGENT, else auto. Over ssh, hosts that need it get it in any case.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) send_agent: Option<SendAgent>,
    /// How many hosts must be reached over ssh: 'all', 'quorum=N', 'quorum=P%' or 'best-effort'. Hosts beyond those that the ranks need take the place of
    /// hosts that cannot be reached. gantry names the missing hosts, with the reason of each.
    #[arg(long, value_name = "POLICY", default_value_t, hide_default_value = true)]
    pub(crate) hosts_policy: HostsPolicy,
}

impl Hosts {
    /// A frontend's configuration that reaches nodes so.
    pub(crate) fn config(&self, wlm: Option<&String>, reach_args: Vec<OsString>) -> Config {
        let Self { hosts_policy, send_agent } = *self;
        Config { wlm: wlm.cloned(), hosts_policy, send_agent, reach_args, ..Config::default() }
    }
}

/// Submit a batch job, wait until its first ranks run, attach to them, and stay until they end.
///
/// The command shows what the job waits for. Nothing is changed in the job: its ranks run for a moment before they are attached to. Before that moment, Ctrl-C,
/// --queue-timeout, --timeout and the command's own end cancel the job. Afterwards Ctrl-C detaches, and the job goes on.
/// A job that cannot be attached to for another reason is left as it is, and the error says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry submit -- -N 2 job.sh input.dat
      Submit job.sh, look after the ranks of what it launches.
  gantry submit --queue-timeout 3600 --daemon './my-tool' -- job.sh
      Wait in the queue for an hour at most; start a tool daemon beside the ranks.")]
pub(crate) struct Submit {
    /// The workload manager to use. 'gantry wlm' lists them. Default: the one that is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    /// How long the job may wait for nodes. That time does not count towards --timeout. Default: as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) queue_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) stay: Stay,
    /// What you would give the workload manager's own command for batch jobs: its options, the script, the script's arguments.
    #[arg(last = true, required = true, value_name = "BATCH ARGUMENTS")]
    pub(crate) batch_args: Vec<OsString>,
}

/// Tool daemons that start with the app, all in one session.
#[derive(Debug, Args)]
pub(crate) struct Daemons {
    /// A tool daemon to start on every node. Split into words as a shell does; nothing is expanded. May be repeated.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) daemon: Vec<OsString>,
    #[command(flatten)]
    pub(crate) files: Files,
}

/// What is made available to daemons.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// A file for the daemons' session directory. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// A program for the session's bin, which is first in PATH. May be repeated.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bin: Vec<PathBuf>,
    /// A library for the session's lib, which is first in LD_LIBRARY_PATH; a name without a slash is searched for as the loader does. May be repeated.
    #[arg(long, value_name = "LIBRARY")]
    pub(crate) lib: Vec<PathBuf>,
    /// A directory for the session's lib, with all that is in it. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Vec<PathBuf>,
    /// Send programs and libraries without their dependencies. The nodes have these already.
    #[arg(long)]
    pub(crate) no_deps: bool,
    /// Continue when a needed library is missing on this machine.
    #[arg(long, conflicts_with = "no_deps")]
    pub(crate) allow_missing: bool,
}

impl Files {
    /// Sets how the manifest resolves dependencies.
    pub(crate) fn set_options(&self, manifest: &mut gantry_frontend::Manifest) {
        if self.no_deps {
            manifest.without_dependencies();
        }
        if self.allow_missing {
            manifest.allow_missing();
        }
    }
}

/// How the frontend lives.
#[derive(Debug, Args)]
pub(crate) struct Stay {
    /// Directory on the nodes for the files of daemons, the same on all of them. Default: GANTRY_STAGE_DIR, TMPDIR, /tmp, /var/tmp, the first that works
    /// on every node.
    #[arg(long, value_name = "DIR")]
    pub(crate) stage_dir: Option<PathBuf>,
    /// How long the start may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// Print the app's id and return. A process stays with the app until it ends.
    #[arg(long)]
    pub(crate) background: bool,
    /// Show no table and no notes, only errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// File to which a background app appends its output and its log. Default: none.
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) output: Option<PathBuf>,
}

impl Stay {
    /// What the command prints besides output.
    pub(crate) fn talk(&self, json: bool) -> Talk {
        match (json, self.quiet) {
            (true, _) => Talk::Json,
            (false, true) => Talk::Quiet,
            (false, false) => Talk::All,
        }
    }
}

/// Release the ranks of a held app.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry release 3kx9
      The beginning of an id is enough.
  gantry release
      When there is only one app.
  gantry release pid:$!
      The app of the gantry command that the shell started last.")]
pub(crate) struct Release {
    /// The app: its id, or enough of the beginning; or 'pid:1234' with the process id of its gantry command. May be left out when there is only one.
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

/// Wait until an app ends, and exit with its code.
///
/// The end of an app in the background is remembered for an hour: it can be named after its end, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry wait 3kx9
  gantry wait
      When there is only one app.")]
pub(crate) struct Wait {
    /// The app: its id, or enough of the beginning; or 'pid:1234' with the process id of its gantry command. May be left out when there is only one.
    pub(crate) app: Option<String>,
}

/// Start a tool daemon beside the ranks of a live app, and stay until it has ended on all nodes.
///
/// Each line of its output begins with '[daemon NUMBER HOST] '. Ctrl-C ends the daemon. The exit code is the highest of its processes'.
/// While files are sent to nodes that lack them, a bar on a terminal shows the progress; --json prints events ('staging', 'staged') instead.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry daemon 3kx9 -- ./my-tool --all
  gantry daemon 3kx9 --file tool.conf --nodes 'n[1-4]' -- ./my-tool
  gantry daemon 3kx9 --background -- ./my-tool
      Goes on without this command, until it ends or the app does.")]
pub(crate) struct Daemon {
    /// The app: its id, or enough of the beginning; or 'pid:1234' with the process id of its gantry command.
    pub(crate) app: String,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Set a variable in the daemon's environment.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Only on these nodes of the app, such as 'n[1-4],login'.
    #[arg(long, value_name = "HOSTS")]
    pub(crate) nodes: Option<String>,
    /// Print the daemon's number and return; its output is dropped.
    #[arg(long)]
    pub(crate) background: bool,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// The daemon's program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Run one job with parts on several workload managers. All parts start, or none; gantry releases them together.
///
/// SPEC is a multi-request in RSL. Attributes of a part: resourceManagerContact (a workload manager, NAME://PLACE, or a name of the file of contacts),
/// executable, arguments, directory, environment, count, hostCount, jobType, stdin, stdout, stderr, queue, project, maxWallTime, minMemory, maxMemory;
/// label, and subjobStartType: strict-barrier (if it ends before the others are there, the job is killed), loose-barrier (the others go on without it),
/// no-barrier (it does not wait); barrierPoint: runtime (where the program calls the barrier; the default of programs that need gantry's backend library) or
/// exec (before its first instruction; the default of all others); subjobCommsType: blocking-join, or independent (no messages of other parts). A job has at most 1024 parts: each is a launch of its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry coalloc '
  +(&(resourceManagerContact=cluster)(count=2)(executable=./a))
   (&(resourceManagerContact=laptop)(executable=./b))'
      Hold both parts before their first instruction, let them go together, and exit with the first code that is not 0.
  gantry coalloc -s -f job.rsl
      The same from a file; what the parts write comes here, unless they name files.
  gantry coalloc -i -f job.rsl
      Ask what to do: C lets go, DLABEL takes a part out, ASPEC adds one, K kills, Q leaves at once.
  for id in $(gantry coalloc --background -f job.rsl); do gantry wait $id; done
      Leave it in the background once it was let go; each part is an app of its own to the other commands.")]
pub(crate) struct Coalloc {
    /// Show the state of the parts and ask what to do.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print here the output that parts send nowhere else. Implies --quiet.
    #[arg(short, long)]
    pub(crate) synchronous: bool,
    /// Read the specification from a file; '-' is standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "spec", required_unless_present = "spec")]
    pub(crate) file: Option<PathBuf>,
    /// When all parts are released, print the ids of their apps and return. A process stays with the job until it ends.
    #[arg(long, conflicts_with_all = ["interactive", "synchronous"])]
    pub(crate) background: bool,
    /// In the background, append to this file the output that parts send nowhere else. Default: none.
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) output: Option<PathBuf>,
    /// How long each part may take to start.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// How long each part may wait for nodes. That time does not count towards --timeout. Default: as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) queue_timeout: Option<Duration>,
    /// The specification.
    pub(crate) spec: Option<String>,
}

/// Show the libraries that a program, library or script needs, where each is found and which file needs it. Nothing is run.
///
/// They are found as the loader would find them. HOW is one of rpath, runpath, ld_library_path, cache, default, absolute, and path for
/// the program that 'env' starts in a script. What is missing is named on standard error, and the exit code is then 65.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry deps gdb
  gantry deps --tree ./my-tool
  gantry deps --json ./my-tool
      An array of {name, path, needed_by, how}; what is missing has no path and the reason as 'missing'.
  gantry deps --sysroot /images/node /usr/bin/app
      As it would be in there, for any machine; /usr/bin/app is a path in there.")]
pub(crate) struct Deps {
    /// The file, or the name of a program in PATH.
    pub(crate) binary: PathBuf,
    /// Show under each library the libraries that it needs.
    #[arg(long)]
    pub(crate) tree: bool,
    /// List also optional libraries that may be loaded later, as far as files tell (.note.dlopen).
    #[arg(long)]
    pub(crate) optional: bool,
    /// Resolve every path, links and all, inside this directory, as if it were the root.
    #[arg(long, value_name = "DIR")]
    pub(crate) sysroot: Option<PathBuf>,
}

/// How long a request may take.
#[derive(Debug, Args)]
pub(crate) struct Patience {
    /// How long it may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// The longest timeout that an option takes. It is small enough to be added to any clock.
const MAX_SECONDS: f64 = 10_000_000.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 => Ok(Duration::from_secs_f64(seconds.min(MAX_SECONDS))),
        _ => Err("not a number of seconds greater than 0".to_owned()),
    }
}

/// A number of seconds that may be 0.
fn parse_pause(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Ok(Duration::from_secs_f64(seconds.min(MAX_SECONDS))),
        _ => Err("not a number of seconds".to_owned()),
    }
}

/// A time with its unit: seconds, minutes or hours.
fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(time) if time > 0.0 => Ok(Duration::from_secs_f64((time * unit).min(MAX_SECONDS))),
        _ => Err("not a time, such as 90, 90s, 5m or 2h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            let examples = help.split_once("Examples:\n").map(|(_, examples)| examples);
            assert!(examples.is_some_and(|examples| examples.contains("gantry ")), "{help}");
        }
    }

    #[test]
    fn words_after_the_dashes_are_untouched() {
        let cli = Cli::try_parse_from([
            "gantry", "launch", "--hold", "--", "-n", "4", "./app", "--hold", "--", "-v",
        ]);
        let Some(Command::Launch(launch)) = cli.unwrap().command else { panic!("not a launch") };
        assert_eq!(launch.launcher_args, ["-n", "4", "./app", "--hold", "--", "-v"]);
    }

    #[test]
    fn usage_mistakes_are_refused() {
        for line in [
            "",
            "launch",
            "kill",
            "kill x -s NONE",
            "kill x --ranks 3-1",
            "signal",
            "signal USR1",
            "signal NONE x",
            "ps --xml",
            "launch --timeout 0 -- a",
            "stack --launch --wait -- a",
            "why x --exit",
            "why x --watch=0",
            "why x --wait=0",
            "why x --watch --signal NONE",
            "mpir --label 4711 -- -n 4",
            "mpir --debugged 4711",
        ] {
            let line = ["gantry"].into_iter().chain(line.split_whitespace());
            assert!(Cli::try_parse_from(line.clone()).is_err(), "{:?}", line.collect::<Vec<_>>());
        }
    }

    #[test]
    fn waiting_for_a_job_has_a_time_of_its_own() {
        let check = |line: &str, expected: Option<u64>| {
            let cli = Cli::try_parse_from(["gantry", "why", "x"].into_iter().chain(line.split_whitespace()));
            let Some(Command::Why(why)) = cli.unwrap().command else { panic!("not a why") };
            assert_eq!(why.look.waiting(), expected.map(Duration::from_secs), "{line}");
        };
        check("", None);
        check("--wait", Some(60));
        check("--wait --timeout 5", Some(5));
        check("--timeout 5 --wait=2h", Some(7200));
    }

    #[test]
    fn times_have_units() {
        let check = |text, expected: Option<u64>| {
            assert_eq!(parse_span(text).ok().map(|it| it.as_millis()), expected.map(u128::from), "{text}")
        };
        check("90", Some(90_000));
        check("1.5s", Some(1500));
        check("5m", Some(300_000));
        check("2h", Some(7_200_000));
        for bad in ["", "m", "0s", "-1m", "5d", "NaN", "5mm"] {
            check(bad, None);
        }
    }

    #[test]
    fn seconds() {
        let check = |text, expected: Option<u64>| {
            assert_eq!(parse_seconds(text).ok().map(|it| it.as_millis()), expected.map(u128::from))
        };
        check("1.5", Some(1500));
        check("inf", Some(10_000_000_000));
        for bad in ["0", "-1", "NaN", "x", ""] {
            check(bad, None);
        }
    }
}
