//! What can be typed about the debug adapter.

use clap::Args;

use super::Hosts;

/// Debug all ranks from an editor: an adapter of the Debug Adapter Protocol (DAP).
///
/// VS Code, Neovim, Emacs and Zed start it and say in a configuration what is launched or attached to. Ranks that stand at the same place are one thread
/// of the editor. Each rank that is debugged gets a gdb on its own node.
///
/// Without --listen it speaks on standard input and output. With it, one session comes by a socket of this machine, and shows the token in its
/// configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gantry dap
      What an editor starts. The guide has configurations for each.
  gantry dap --listen
      Print an address and a token, and wait there for an editor.")]
pub(crate) struct Dap {
    /// Wait for an editor at a port of this machine, and print the address and the token. Without a PORT, or with 0, a free one is taken.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) listen: Option<u16>,
    #[command(flatten)]
    pub(crate) hosts: Hosts,
}
