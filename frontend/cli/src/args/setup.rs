//! Options of the commands that show and set up the environment of gantry.

use std::path::PathBuf;

use clap::Args;

/// Show which workload manager and launcher gantry uses, and why.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry wlm
  GANTRY_WLM=NAME gantry wlm
      The variable takes precedence over detection.")]
pub(crate) struct Wlm {
    /// Choose this one.
    #[arg(long, value_name = "WLM")]
    pub(crate) wlm: Option<String>,
}

/// Check whether gantry can work on this machine, and name the setting to change where it cannot.
///
/// The last check launches '/bin/true' and holds it. Outside an allocation that is a job of one rank, in your default account. It waits for a node 15 seconds
/// at most, then it is cancelled.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry doctor
  gantry doctor --json
      An array of checks; the exit code is 1 when one of them fails.")]
pub(crate) struct Doctor {
    /// Directory for the files of daemons, to be checked. Default: the one that 'gantry launch' chooses.
    #[arg(long, value_name = "DIR")]
    pub(crate) stage_dir: Option<PathBuf>,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
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
