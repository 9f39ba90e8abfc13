//! `testbed`: a Slurm cluster made of namespaces on this machine, for manual use. The hosts of every bed also run this
//! program as their init.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gantry_tests::testbed::config::{Proctrack, address};
use gantry_tests::testbed::{Config, Machine, Result, Testbed, play, usable};
use gantry_tests::testbed::{flux, pbs};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  testbed up 4                                  four nodes, n001 to n004, that see what this machine has
  testbed exec --user login srun -N4 hostname   a program on the login node, as the ordinary user
  testbed exec n002 ps ax                       a program on a node, as root
  testbed exec --user login                     a shell on the login node
  testbed up 4 --hide $PWD                      nodes without a file system in common
  testbed up 2 --proctrack cgroup --set KillWait=30
  testbed up 3 --pbs                            nodes that PBS manages
  testbed up 4 --flux                           nodes that Flux manages
  GANTRY_SLURM=/opt/slurm testbed up 2          with the Slurm that is installed there
  testbed status --json
  testbed down

It needs root, and the Debian packages slurm-wlm, munge, openssh-server, openssh-client and iproute2; --pbs needs an OpenPBS
in place of the first two, --flux a flux-core. This machine's
network, /etc and /run stay as they are: all of a bed is in namespaces that go with it.";

/// A cluster on this machine: a real Slurm and sshd on nodes made of namespaces.
#[derive(Debug, Parser)]
#[command(name = "testbed", after_help = EXAMPLES)]
struct Args {
    /// The bed's name; beds of different names do not disturb each other.
    #[arg(long, global = true, default_value = "bed")]
    name: String,
    /// The folder where beds are kept.
    #[arg(long, global = true, default_value = "/run/gantry-testbed", value_name = "FOLDER")]
    base: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Makes a bed. A running bed with this configuration is kept; one with another configuration is replaced.
    Up {
        /// How many nodes.
        #[arg(default_value_t = 2)]
        nodes: u16,
        /// A folder that nodes do not see; they have no file system in common then.
        #[arg(long, value_name = "FOLDER")]
        hide: Vec<PathBuf>,
        /// A folder in /tmp that nodes see all the same.
        #[arg(long, value_name = "FOLDER")]
        share: Vec<PathBuf>,
        /// How Slurm finds the processes of a step.
        #[arg(long, value_enum, default_value_t)]
        proctrack: Proctrack,
        /// PBS instead of Slurm, from /opt/pbs or the path in PBS_EXEC.
        #[arg(long)]
        pbs: bool,
        /// Flux in place of Slurm, from /opt/flux or where FLUX_PREFIX says.
        #[arg(long, conflicts_with = "pbs")]
        flux: bool,
        /// CPUs that each node reports.
        #[arg(long, default_value_t = Config::default().cpus)]
        cpus: u16,
        /// A parameter of slurm.conf.
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
    },
    /// Ends the bed, and removes all remains of it.
    Down,
    /// Shows the state.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs a program on a host, as root. Without a program it runs a shell.
    Exec {
        /// As the ordinary user.
        #[arg(long)]
        user: bool,
        /// login, n001, n002, ...
        host: String,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// For the testbed itself.
    #[command(hide = true)]
    Inside {
        #[arg(required = true)]
        part: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Ignore a closed stderr.
            drop(writeln!(std::io::stderr(), "testbed: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    match &args.what {
        What::Inside { part } => play(part),
        What::Up { nodes, hide, share, proctrack, pbs, flux, cpus, set } => {
            let config = Config {
                nodes: *nodes,
                cpus: *cpus,
                hide: absolute(hide)?,
                share: absolute(share)?,
                proctrack: *proctrack,
                pbs: pbs.then(pbs::installation).transpose()?,
                kept_by_slurm: 0,
                flux: flux.then(flux::installation).transpose()?,
                kept_by_flux: if *flux { *nodes } else { 0 },
                other_slurm: None,
                slurm: set.iter().map(|pair| parse_pair(pair)).collect::<Result<_>>()?,
            };
            up(args, &config.with_slurm_of_the_environment(), &program)
        }
        What::Down => {
            let was = Testbed::sweep(&args.base, &args.name)?;
            say(if was { "down" } else { "nothing was up" })
        }
        What::Status { json } => status(args, *json, &program),
        What::Exec { user, host, command } => {
            let bed = find(args, &program)?;
            let host = bed.host(host).ok_or_else(|| format!("this bed has no host {host}"))?;
            exec(&host, *user, command)
        }
    }
}

fn up(args: &Args, config: &Config, program: &Path) -> Result<()> {
    usable(config)?;
    let start = std::time::Instant::now();
    let (bed, fresh) = Testbed::stand(&args.base, &args.name, config, program)?;
    let nodes = bed.config().nodes;
    if fresh {
        say(&format!("{nodes} nodes are up after {:.1} s", start.elapsed().as_secs_f64()))
    } else {
        say(&format!("{nodes} nodes are up already"))
    }
}

fn find(args: &Args, program: &Path) -> Result<Testbed> {
    Testbed::find(&args.base, &args.name, program)
        .ok_or_else(|| format!("no bed named {} is up; start one with: testbed up", args.name))
}

fn status(args: &Args, as_json: bool, program: &Path) -> Result<()> {
    let bed = find(args, program)?;
    let states = bed.node_states().unwrap_or_default();
    let state = |name: &str| {
        let mut lines = states.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(node, _)| *node == name).map(|(_, state)| state.to_owned())
    };
    let hosts = bed.hosts();
    if as_json {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|host| json!({"name": host.name(), "address": address(host.name()), "init": host.init().ok(), "slurm": state(host.name())}))
            .collect();
        return say(
            &json!({"name": args.name, "dir": bed.dir(), "hall": bed.hall(), "hosts": hosts}).to_string()
        );
    }
    say(&format!("{} in {}, hall {}", args.name, bed.dir().display(), bed.hall()))?;
    for host in hosts {
        let address = address(host.name()).map_or_else(String::new, |address| address.to_string());
        let init = host.init().map_or_else(|_| "off".to_owned(), |pid| pid.to_string());
        say(&format!("{:6} {address:12} {init:8} {}", host.name(), state(host.name()).unwrap_or_default()))?;
    }
    Ok(())
}

/// Becomes the program.
fn exec(host: &Machine<'_>, user: bool, words: &[String]) -> Result<()> {
    let (program, args) =
        words.split_first().map_or(("bash", &[][..]), |(program, args)| (program.as_str(), args));
    let mut command = if user { host.command(program)? } else { host.root_command(program)? };
    // The program needs the type of the terminal.
    for name in ["TERM", "COLORTERM"] {
        command.envs(variable(name).map(|value| (name, value)));
    }
    Err(format!("nsenter: {}", command.args(args).exec()))
}

#[expect(clippy::disallowed_methods, reason = "this program is for people at terminals, and TERM says which")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let resolve =
        |path: &PathBuf| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    paths.iter().map(resolve).collect()
}

fn parse_pair(pair: &str) -> Result<(String, String)> {
    let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| format!("stdout: {error}"))
}
