//! Waits for the library: on a runtime of its own, without Python's lock, and until Ctrl-C.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gantry_shared_python::build_error;
use gantry_types::error::Kind;
use nix::sys::signal::{SigSet, SigmaskHow};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::convert::to_error;

/// How often a wait lets Python handle signals.
const TICK: Duration = Duration::from_millis(50);

/// Few are enough: they wait most of the time, and blocking work has its own threads.
const WORKERS: usize = 2;

/// The runtime, and the process whose threads it has.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// The runtime of this process. A forked child gets a new one: it has none of the threads.
fn runtime() -> PyResult<Arc<Runtime>> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    if let Some((pid, runtime)) = &*slot
        && *pid == here
    {
        return Ok(Arc::clone(runtime));
    }
    let made = Arc::new(start().map_err(|error| {
        build_error(Kind::System, format!("cannot start threads: {error}"), None, Vec::new())
    })?);
    if let Some(of_parent) = slot.replace((here, Arc::clone(&made))) {
        // Its end would wait for threads that are not there.
        std::mem::forget(of_parent);
    }
    Ok(made)
}

/// The runtime's threads block every signal, so that Python's own threads get them.
fn start() -> io::Result<Runtime> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let made = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("gantry").enable_all().build();
    before.thread_set_mask()?;
    made
}

/// Waits for the result. Other threads of Python run meanwhile. A signal's handler that raises, such as that of Ctrl-C,
/// ends the wait and drops `what`.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    what: impl Future<Output = gantry_frontend::Result<T>> + Send,
) -> PyResult<T> {
    wait_for(py, what)?.map_err(|error| to_error(&error))
}

/// As [`wait`], for what cannot fail.
pub(crate) fn wait_for<T: Send>(py: Python<'_>, what: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = runtime()?;
    // Python handles signals in its main thread alone. Any other thread that attaches while Python ends is ended by it.
    let handles_signals = nix::unistd::gettid() == nix::unistd::getpid();
    py.detach(move || {
        runtime.block_on(async move {
            tokio::pin!(what);
            loop {
                tokio::select! {
                    biased;
                    done = &mut what => return Ok(done),
                    () = tokio::time::sleep(TICK), if handles_signals => Python::attach(|py| py.check_signals())?,
                }
            }
        })
    })
}

/// As [`wait_for`], at most for this time. None: it has passed.
pub(crate) fn wait_at_most<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    what: impl Future<Output = T> + Send,
) -> PyResult<Option<T>> {
    wait_for(py, async move { tokio::time::timeout(timeout, what).await.ok() })
}

/// Runs what needs the runtime and does not wait.
pub(crate) fn enter<T>(what: impl FnOnce() -> T) -> PyResult<T> {
    let runtime = runtime()?;
    let _inside = runtime.enter();
    Ok(what())
}
