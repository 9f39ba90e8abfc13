//! The options of the commands for process groups and apps.

use std::path::PathBuf;

use clap::Args;
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::Patience;

/// List your live apps, of all tools. With a query: the process groups that match.
///
/// A query has terms NAME=VALUE, which must all match; 'or' begins another pattern. Of a group: submitter, pgid, totalprocs, state, wlm, app, session, exit-code.
/// Of one process of it: pid, exec (a path, or its last part), host, rank, pstate; 'and' begins the terms of another process. Numbers are 1-10,15, hosts
/// ccn-%d:64-73 or names with commas. NAME=* asks for a column; a column of processes lists all of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry ps
  gantry ps --json
      An array; every app with its state, ranks and daemons.
  gantry ps 'exec=b.out host=ccn-%d:20-21'
      The groups that have a process of b.out on one of two hosts.
  gantry ps 'submitter=lusk state=* pid=* host=* or pgid=7'
      Of lusk's groups the state and where each process is; and group 7.")]
pub(crate) struct Ps {
    /// Which process groups. Default: all live apps, as apps.
    #[arg(value_name = "QUERY")]
    pub(crate) query: Vec<String>,
    /// Answer in XML, as 'gantry pm' does, whatever --json says.
    #[arg(long, requires = "query")]
    pub(crate) xml: bool,
}

/// Send a signal to ranks. Default: SIGKILL to all of them, and wait for their end.
///
/// A held rank takes no signal but SIGKILL. With a query (see 'gantry ps --help'), all process groups that match get the signal. On a terminal the command
/// asks before it signals more than one. '--yes', '--json' and '--xml' ask nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry kill 3kx9
  gantry kill 3kx9 -s USR1 --ranks 0-3,7
  gantry kill --dry-run 'exec=b.out host=ccn-%d:20-21'
      Show what would be killed.
  gantry kill --yes submitter=lusk")]
pub(crate) struct Kill {
    /// The app: its id, or enough of the beginning; or 'pid:1234' with the process id of its gantry command; or a query.
    #[arg(required = true, value_name = "APP|QUERY")]
    pub(crate) target: Vec<String>,
    /// The signal, by name or number.
    #[arg(short, long, default_value = "KILL")]
    pub(crate) signal: Signal,
    #[command(flatten)]
    pub(crate) hit: Hit,
}

/// Send a signal to all ranks of an app, or of all process groups that match a query.
///
/// As 'gantry kill -s SIGNAL'; see there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry signal USR1 3kx9
  gantry signal 3 submitter=lusk
  gantry signal --dry-run TERM 'exec=b.out and exec=c.out'
      Show what would get it: groups that have both.")]
pub(crate) struct SendSignal {
    /// The signal, by name or number.
    pub(crate) signal: Signal,
    /// The app: its id, or enough of the beginning; or 'pid:1234' with the process id of its gantry command; or a query.
    #[arg(required = true, value_name = "APP|QUERY")]
    pub(crate) target: Vec<String>,
    #[command(flatten)]
    pub(crate) hit: Hit,
}

/// How something is done to ranks.
#[derive(Debug, Args)]
pub(crate) struct Hit {
    /// Only these ranks, such as 0-3,7. Of one app.
    #[arg(long, value_name = "RANKS")]
    pub(crate) ranks: Option<RankSet>,
    /// Signal nothing. Show the groups that the query matches.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Ask nothing.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Answer in XML, as 'gantry pm' does, whatever --json says. With a query.
    #[arg(long)]
    pub(crate) xml: bool,
    #[command(flatten)]
    pub(crate) patience: Patience,
}

/// Answer XML messages about your process groups, as a process manager for other programs.
///
/// Messages are those of the process manager of the Scalable Systems Software project, as published and as drafted: create-process-group, get-process-group
/// (and -info), signal-process-group, kill-process-group, del-process-group-info, wait-process-group. A query is as in the example; values are those of 'gantry ps --help'.
/// Each message ends with a zero byte, or with the end of the input. The answers are XML, whatever --json says. The exit code is 0 if a message was
/// answered, even with an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry pm <<END
  <signal-process-group signal='3'>
    <process-group submitter='lusk' pgid='*'>
      <process-group-restriction exec='b.out' host='ccn-%d:20-21' pid='*'/>
    </process-group>
  </signal-process-group>
  END
      Signal lusk's groups that have b.out on one of two hosts, and tell their numbers and all their processes.
  gantry pm <<END
  <create-process-group submitter='lusk' totalprocs='10'>
    <process-spec range='1' exec='./cpi_master' co-process='./my-tool'/>
    <process-spec range='2-10' exec='./cpi_slave'> <arg idx='1' val='-loops'/> </process-spec>
    <hostspec name='ccn-%d:64-73'/>
  </create-process-group>
  END
      Start a group in the background, with a tool daemon beside the master before any of it runs. What became of it is kept
      until del-process-group-info, or for an hour.
  mkdir -m 700 ~/pm; gantry pm --listen ~/pm/socket
      The same for programs that stay, until SIGTERM.")]
pub(crate) struct Pm {
    /// Serve a socket. Its directory must be yours, with mode 0700.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) listen: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) patience: Patience,
}
