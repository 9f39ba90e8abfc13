//! Finds the ranks of launchers by MPIR, the interface of debuggers since 1999.
//!
//! A launcher that finds `MPIR_being_debugged` set fills a table of its ranks, calls `MPIR_Breakpoint`, and releases
//! the ranks when that function has run. This module runs a launcher up to that call, or reads its table while it
//! runs. It needs only ptrace and access to the launcher's memory: no debugger, no debug information, no change of
//! its command line.
//!
//! | module | what is there |
//! | --- | --- |
//! | `drive` | [`Driver`]: a launcher from its start to its end, on threads of its own |
//! | `launcher` | runs it to the breakpoint: through wrappers, past the loader, past forks |
//! | `attach` | [`read_running`], [`RunningTable`]: the table of a running launcher |
//! | `told` | the table of a launcher on another machine, as gantry's agent there reports it |
//! | `proctable` | the table: read in bulk, checked |
//! | `symbols`, `image` | the symbols' addresses in files, and the files' addresses in memory |
//! | `tracee`, `breakpoint` | from stop to stop |
//! | `detour` | the function that untraced threads run in the breakpoint's place |
//! | `memory`, `words`, `sys` | another process's memory, a launcher's last output, system calls |

mod attach;
mod breakpoint;
mod detour;
mod drive;
mod error;
mod image;
mod launcher;
mod memory;
mod proctable;
mod symbols;
mod sys;
mod told;
mod tracee;
mod words;

use gantry_types::placement::Placement;

pub use attach::{RunningTable, read_job, read_running};
pub use breakpoint::Breakpoints;
pub use drive::{Driver, Event, LauncherCommand};
pub use error::MpirError;
pub use launcher::AtBreakpoint;
pub use proctable::TableError;
pub(crate) use told::{Heard, Telling, find_ranks};
pub use told::{tell_below, tell_ranks};
pub use tracee::Order;

/// The table of a launcher's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Where the ranks are. Host names and executables are as the launcher wrote them.
    pub placement: Placement,
    /// The WLM's job, if the launcher shows it.
    pub job: Option<String>,
    /// The step of that job, if the launcher shows it.
    pub step: Option<String>,
    /// The launcher reports that ranks of a debugged start are stopped before their first instruction. Otherwise they
    /// run up to their first MPI call.
    pub stops_before_main: bool,
}
