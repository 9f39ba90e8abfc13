//! What can be typed.

mod groups;
mod marker;
mod quick;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gantry_wlm::{HostsPolicy, SendAgent};

pub(crate) use self::groups::{Hit, Kill, Pm, Ps, SendSignal};
use crate::exit;
use crate::view::Talk;

/// Launch parallel applications behind a startup barrier and start tools next to their ranks.
#[derive(Debug, Parser)]
#[command(name = "gantry", version, after_help = exit::HELP, disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Say what is being done, on standard error; twice: everything. GANTRY_LOG chooses more finely.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print JSON on standard output: one event per line; listings are one object or array. Errors are events too.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// This is the frontend process that `--background` starts; standard input is a socket to who started it.
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) background_in: Option<PathBuf>,

    /// This is the frontend process that a process group is started with; standard input is a socket to who started it.
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) group_owner: bool,

    /// What a shell can complete this word of a query to, a line each, from what runs now.
    #[arg(long, hide = true, exclusive = true, value_name = "WORD")]
    pub(crate) complete_query: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// What was typed.
    ///
    /// # Errors
    /// It cannot be understood, or help was asked for.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let line: Vec<OsString> = std::env::args_os().collect();
        quick::parse_quickly(&line).map_or_else(|| Self::read(&line), Ok)
    }

    fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(line).or_else(|error| match marker::put_marker(line, &error) {
            Some(marked) => Self::try_parse_from(marked),
            None => Err(error),
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Launch(Launch),
    Attach(Attach),
    Submit(Submit),
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

/// Launch an app, hold it if asked, start tool daemons beside its ranks, and stay until it ends.
///
/// Ctrl-C tells how many ranks run; once more ends them all. Input goes to rank 0. Ranks' output is passed through; each line of a
/// daemon's output begins with '[daemon NUMBER HOST] '. On a terminal a table below the output shows where the ranks are and what they do;
/// NO_COLOR or TERM=dumb has it printed once instead.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry launch -- -n 4 ./app input.dat
      Run four ranks and exit with the app's code.
  gantry launch --hold -- -n 4 ./app
      Stop every rank before its first instruction, show where they are, wait for Enter or 'gantry release'.
  gantry launch --daemon './my-tool --all' --file tool.conf -- -n 4 ./app
      Start a tool daemon on every node before the app begins.
  gantry launch --hold-for-daemons --daemon 'ps -o pid,stat,args -C app' -- -n 4 ./app
      Let a daemon look at the held ranks, and release them when it has ended.
  gantry launch --hold -- --hosts n[1-4]:2 ./app
      On these hosts, two ranks on each; they are logged in to as your remote shell does it. --hostfile FILE reads them from a file.
  id=$(gantry launch --hold --background -- -n 4 ./app); gantry release $id; gantry wait $id
      Leave it in the background.")]
pub(crate) struct Launch {
    /// Hold every rank before its first instruction, until Enter or 'gantry release'.
    #[arg(long)]
    pub(crate) hold: bool,

    /// Hold all ranks until every daemon of --daemon has ended, then release them.
    #[arg(long, requires = "daemon", conflicts_with = "hold")]
    pub(crate) hold_for_daemons: bool,
    /// Stay after the ranks' end, with daemons and sessions, until the last daemon has ended; they are then neither asked to end nor killed.
    #[arg(long)]
    pub(crate) linger: bool,
    /// The workload manager to use. 'gantry wlm' lists them. Default: what is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    /// Set a variable in the ranks' environment.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Hold not the program that the launcher starts but the first one behind it whose path fits this pattern, such as '*/app':
    /// for programs behind a script, env or a container's starter.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) hold_at: Option<String>,
    /// The launcher to use, such as mpiexec: a name or a path. Default: the workload manager's own way, or what GANTRY_LAUNCHER or
    /// CTI_LAUNCHER_NAME say.
    #[arg(long, value_name = "LAUNCHER")]
    pub(crate) launcher: Option<OsString>,
    /// How a launcher's ranks are held: 'exec' puts gantry's agent in the program's place in the launcher's command, 'mpir' changes nothing there
    /// and has the launcher hold them as for a debugger, 'mpir-stop' does that and has the launcher stand still, too, until they are released.
    /// Default: exec where the launcher's options are understood; 'gantry wlm' says which.
    #[arg(long, value_name = "METHOD", value_parser = ["exec", "mpir", "mpir-stop"])]
    pub(crate) hold_method: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    /// Directory in which ranks start. Default: this one.
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// What rank 0 reads. Default: standard input; in the background nothing.
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
    /// Exactly what one would give the launcher: its options, the program, the program's arguments. '--' may be left out: the first word that is
    /// not gantry's own begins them.
    #[arg(last = true, required = true, value_name = "LAUNCHER ARGUMENTS")]
    pub(crate) launcher_args: Vec<OsString>,
}

/// Attach to something that runs already, and stay until it ends.
///
/// The processes are not stopped. Ctrl-C lets go of them: tool daemons end, the processes are left as they were found.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry attach 4711
      Look after the ranks of the launcher with that pid.
  gantry attach WLM:n1:4711
      The same of a launcher on the host n1, with a WLM that reaches hosts by their names.
  gantry attach WLM:n1:4711 -- --window 8 --connect-timeout 5
      Eight connections at a time, each within five seconds.
  gantry attach 4711,4712 --daemon './my-tool'
      These processes are the ranks; start a tool daemon beside them.")]
pub(crate) struct Attach {
    /// A job or process in the words of the workload manager, such as JOB, JOB.STEP, a launcher's pid, or ranks' pids with commas between.
    pub(crate) target: String,
    /// Wait for a job that has not started yet, as long as --timeout says.
    #[arg(long)]
    pub(crate) wait: bool,
    /// The workload manager to use. 'gantry wlm' lists them. Default: what is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    #[command(flatten)]
    pub(crate) stay: Stay,
    /// How nodes are reached: the options of a launch by the same workload manager that say so, such as --login, --window and --transport.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) reach_args: Vec<OsString>,
}

/// Hosts that cannot be reached, or do not have gantry.
#[derive(Debug, Args)]
pub(crate) struct Hosts {
    /// Whether gantry's agent is sent to the nodes: 'auto', to those that do not have it at its path where that can be found out, 'always', or 'never'. Without
    /// a value: always. Default: what GANTRY_SEND_AGENT says, else auto. Hosts that gantry reaches one by one are sent it in any case, if they need it.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) send_agent: Option<SendAgent>,
    /// How many hosts must be reached, where they are reached one by one: 'all', 'quorum=N', 'quorum=P%', 'best-effort'. Hosts that are named beyond those that the
    /// ranks need take the place of others; then it goes on without those, says which and why, and places ranks on those that were reached.
    #[arg(long, value_name = "POLICY", default_value_t, hide_default_value = true)]
    pub(crate) hosts_policy: HostsPolicy,
}

/// Submit a batch job, wait until its first ranks run, attach to them, and stay until they end.
///
/// Nothing of gantry need be on the nodes, and nothing is changed in the job: its ranks are not held, and run until they are attached to, a moment after their
/// launcher has started them. What the job waits for is shown meanwhile. Until then the job belongs to this command: Ctrl-C, --timeout, or its being killed
/// cancel it. Afterwards Ctrl-C lets go of the ranks and leaves the job alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry submit -- -N 2 job.sh input.dat
      Submit job.sh, look after the ranks of what it launches.
  gantry submit --timeout 3600 --daemon './my-tool' -- job.sh
      Wait an hour at most; start a tool daemon beside the ranks.")]
pub(crate) struct Submit {
    /// The workload manager to use. 'gantry wlm' lists them. Default: what is detected.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
    #[command(flatten)]
    pub(crate) daemons: Daemons,
    #[command(flatten)]
    pub(crate) stay: Stay,
    /// Exactly what one would give the workload manager's own command for batch jobs: its options, the script, the script's arguments.
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
    /// Bring programs and libraries alone, without the libraries that they need: the nodes have those.
    #[arg(long)]
    pub(crate) no_deps: bool,
    /// Go on when a library that something needs is not here.
    #[arg(long, conflicts_with = "no_deps")]
    pub(crate) allow_missing: bool,
}

impl Files {
    /// How what is added is to be taken.
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
    /// Directory on the nodes for what daemons need, the same on all of them. Default: GANTRY_STAGE_DIR, TMPDIR, /tmp, /var/tmp, the first that will do
    /// on every node.
    #[arg(long, value_name = "DIR")]
    pub(crate) stage_dir: Option<PathBuf>,
    /// How long starting may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// Print the app's id and return; a frontend process stays with the app until it ends.
    #[arg(long)]
    pub(crate) background: bool,
    /// Show no table and no notes; failures are told.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Where output, and what --verbose says, goes when in the background; added to what is there. Default: nowhere.
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) output: Option<PathBuf>,
}

impl Stay {
    /// What is shown besides output.
    pub(crate) fn talk(&self, json: bool) -> Talk {
        match (json, self.quiet) {
            (true, _) => Talk::Json,
            (false, true) => Talk::Quiet,
            (false, false) => Talk::All,
        }
    }
}

/// Let the ranks of a held app go.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry release 3kx9
      The beginning of an id is enough.
  gantry release
      When there is only one app.")]
pub(crate) struct Release {
    /// The app: its id, or enough of the beginning. May be left out when there is only one.
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

/// Wait for an app's end and exit with its code.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry wait 3kx9
  gantry wait
      When there is only one app.")]
pub(crate) struct Wait {
    /// The app: its id, or enough of the beginning. May be left out when there is only one.
    pub(crate) app: Option<String>,
}

/// Start a tool daemon beside the ranks of a live app, and stay until it has ended on all nodes.
///
/// Each line of its output begins with '[daemon NUMBER HOST] '. Ctrl-C ends the daemon. The exit code is the highest of its processes'.
/// While files are sent to nodes that lack them, a bar on a terminal shows how far that is; --json prints events ('staging', 'staged') instead.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry daemon 3kx9 -- ./my-tool --all
  gantry daemon 3kx9 --file tool.conf --nodes 'n[1-4]' -- ./my-tool
  gantry daemon 3kx9 --background -- ./my-tool
      Goes on without this command, until it ends or the app does.")]
pub(crate) struct Daemon {
    /// The app: its id, or enough of the beginning.
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

/// Run one job whose parts are on several workload managers: started all or not at all, and let go together.
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
    /// Show where the parts stand and ask what to do.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Say nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Pass on here what the parts write and send nowhere else. Implies --quiet.
    #[arg(short, long)]
    pub(crate) synchronous: bool,
    /// Read the specification from a file; '-' is standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "spec", required_unless_present = "spec")]
    pub(crate) file: Option<PathBuf>,
    /// Print the ids of the parts' apps when all were let go, and return; a process stays with the job until it ends.
    #[arg(long, conflicts_with_all = ["interactive", "synchronous"])]
    pub(crate) background: bool,
    /// Where output goes in the background that no part sends elsewhere; added to what is there. Default: nowhere.
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) output: Option<PathBuf>,
    /// How long the parts may take to be there.
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// The specification.
    pub(crate) spec: Option<String>,
}

/// Show which libraries a program, library or script needs, where each is found and who needs it. Nothing is run.
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
    /// Show under each library what it needs itself.
    #[arg(long)]
    pub(crate) tree: bool,
    /// List too what may be loaded later and can be done without, as far as files tell (.note.dlopen).
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

/// Show which workload manager is used and why, and what was found of the others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry wlm
  GANTRY_WLM=NAME gantry wlm
      The variable decides before anything that is detected.")]
pub(crate) struct Wlm {
    /// Choose this one.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
}

/// Check whether this machine lets gantry work, and name the knob to turn where it does not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry doctor
  gantry doctor --json
      An array of checks; the exit code is 1 when one of them fails.")]
pub(crate) struct Doctor {
    /// Directory to check for what daemons need. Default: as 'gantry launch' chooses.
    #[arg(long, value_name = "DIR")]
    pub(crate) stage_dir: Option<PathBuf>,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry completions bash > ~/.local/share/bash-completion/completions/gantry")]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// Write the manual pages.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry man | man -l -
      The overview.
  gantry man /usr/local/share/man/man1
      All pages, one per command.")]
pub(crate) struct Man {
    /// Where to write all pages. Default: print the overview.
    pub(crate) dir: Option<PathBuf>,
}

/// The longest time that can be asked for: more than anybody waits, and small enough to be added to any clock.
const MAX_SECONDS: f64 = 10_000_000.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 => Ok(Duration::from_secs_f64(seconds.min(MAX_SECONDS))),
        _ => Err("not a number of seconds greater than 0".to_owned()),
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
    fn every_command_has_examples_and_none_names_a_workload_manager() {
        let names: Vec<String> = gantry_wlm::WLMS.iter().map(|wlm| wlm.name().to_lowercase()).collect();
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(
                help.contains("Examples:\n  gantry ") || help.contains("Examples:\n  id=$(gantry"),
                "{help}"
            );
            let named = names.iter().find(|name| help.to_lowercase().contains(*name));
            assert_eq!(named, None, "{help}");
        }
    }

    #[test]
    fn what_follows_the_dashes_is_untouched() {
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
        ] {
            let line = ["gantry"].into_iter().chain(line.split_whitespace());
            assert!(Cli::try_parse_from(line.clone()).is_err(), "{:?}", line.collect::<Vec<_>>());
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
