//! Launchers that say where their ranks are: MPIR, the way debuggers have had since 1999.
//!
//! A launcher that finds `MPIR_being_debugged` set fills a table of its ranks, calls `MPIR_Breakpoint`, and lets the ranks go when that
//! function has run. Here a launcher is run up to that call, or its table is read while it runs, with nothing but ptrace and a look into its
//! memory: no debugger, no debug information, no word changed in its command line.
//!
//! | module | what is there |
//! | --- | --- |
//! | `drive` | [`Driver`]: a launcher from its start to its end, on threads of its own |
//! | `launcher` | the way to the breakpoint: through wrappers, past the loader, past forks |
//! | `attach` | [`read_running`], [`RunningTable`]: the table of a launcher that runs already |
//! | `told` | the table of a launcher on another machine, as our agent there tells it |
//! | `proctable` | the table: read in bulk, checked |
//! | `symbols`, `image` | where the symbols are in files, and where the files are in memory |
//! | `tracee`, `breakpoint` | from stop to stop |
//! | `detour` | what threads that nobody traces find in the breakpoint's place |
//! | `memory`, `words`, `sys` | another process's memory, a launcher's last words, system calls |

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

/// What a launcher says of its ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Where the ranks are. Hosts are named, and executables written, as the launcher does it.
    pub placement: Placement,
    /// The WLM's job, where the launcher tells it.
    pub job: Option<String>,
    /// The step of that job, where the launcher tells it.
    pub step: Option<String>,
    /// The launcher says that ranks of a debugged start are stopped before their first instruction. Without that they run up to their
    /// first MPI call.
    pub stops_before_main: bool,
}
