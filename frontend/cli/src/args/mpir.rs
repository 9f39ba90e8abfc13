//! The options of the command for debuggers that know MPIR.

use clap::Args;

use super::Launch;

/// Be the starter of MPIR for debuggers that know only that interface: TotalView, DDT, LaunchMON, STAT.
///
/// As 'gantry launch', or with a TARGET as 'gantry attach'. Under a debugger, the ranks are held until it has read the table and lets this command go on from
/// MPIR_Breakpoint. Ranks that the debugger has attached to stay with it. A debugger can also attach later, by the process id of this command.
///
/// This command becomes gantry-mpir, which lies beside gantry and has the symbols. Debuggers that follow no exec start that one.
/// With --hold or --hold-for-daemons, the debugger's word releases nothing.
#[derive(Debug, Args)]
#[command(
    mut_arg("launcher_args", |arg| arg.required(false)),
    after_help = "\
Examples:
  gantry mpir -- -n 4 ./app
      Without a debugger: run four ranks, and exit with the app's code.
  totalview -args gantry-mpir -n 4 ./app
      Hold four ranks until TotalView lets them go.
  gantry-mpir --launcher mpirun -- -np 4 ./app
      The ranks of another launcher.
  gantry mpir 1234.0
      A job, a step or a launcher that runs already, for a debugger that attaches to this command.
  gdb -ex 'break MPIR_Breakpoint' -ex 'start' -ex 'set var MPIR_being_debugged=1' --args gantry-mpir -n 4 ./app
      By hand: 'continue' twice."
)]
pub(crate) struct Mpir {
    /// What is to be attached to, as for 'gantry attach': a job, or process ids. A word with a slash is a program to launch. '--' behind it begins options for how
    /// nodes are reached.
    #[arg(conflicts_with_all = [
        "hold", "hold_for_daemons", "linger", "env", "hold_at", "launcher", "hold_method", "cwd", "input", "label", "queue_timeout",
    ])]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) launch: Launch,
    /// The descriptor on which gantry-mpir listens. gantry-mpir passes it.
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    pub(crate) starter: Option<i32>,
    /// A debugger was there at the start.
    #[arg(long, hide = true, requires = "starter")]
    pub(crate) debugged: bool,
}
