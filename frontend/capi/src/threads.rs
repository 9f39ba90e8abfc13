//! The runtime and its threads.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow};
use tokio::runtime::{Builder, Runtime};

/// Few are enough: they wait most of the time, and blocking work has its own threads.
const WORKERS: usize = 2;

/// A runtime whose threads and their children block every signal, so that the host program's threads get its signals.
pub(crate) fn start_runtime() -> io::Result<Runtime> {
    // A new thread inherits the signal mask of its creator.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let made = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("gantry").enable_all().build();
    before.thread_set_mask()?;
    made
}
