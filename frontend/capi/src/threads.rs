//! The runtime and its threads.

use std::io;
use std::mem::MaybeUninit;

use tokio::runtime::{Builder, Runtime};

/// Few are enough: they wait most of the time, and blocking work has its own threads.
const WORKERS: usize = 2;

/// A runtime whose threads and their children block every signal, so that the host program's threads get its signals.
pub(crate) fn start_runtime() -> io::Result<Runtime> {
    // A new thread inherits the signal mask of its creator.
    let before = block_signals()?;
    let made = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("gantry").enable_all().build();
    restore_signals(&before)?;
    made
}

fn block_signals() -> io::Result<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: it is filled by the call, which cannot fail with a valid address.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: filled above.
    let all = unsafe { all.assume_init() };
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are ours.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: the call has succeeded, so it is initialized.
    Ok(unsafe { before.assume_init() })
}

fn restore_signals(before: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `before` is a set that the system has written.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}
