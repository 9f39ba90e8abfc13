//! Waits for the library: on a runtime of its own, without Python's lock, and until Ctrl-C.

use std::io;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use gantry_shared::per_process::PerProcess;
use gantry_shared_python::{TICK, build_error, handles_signals};
use gantry_types::error::Kind;
use nix::sys::signal::SigSet;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::convert::to_error;

/// Few are enough: they wait most of the time, and blocking work has its own threads.
const WORKERS: usize = 2;

/// The runtime of this process. A forked child makes its own: it has none of the threads.
static RUNTIME: PerProcess<OnceLock<Runtime>> = PerProcess::new();

fn runtime() -> PyResult<&'static Runtime> {
    let slot = RUNTIME.get();
    if let Some(runtime) = slot.get() {
        return Ok(runtime);
    }
    let made = start().map_err(|error| {
        build_error(Kind::System, format!("cannot start threads: {error}"), None, Vec::new())
    })?;
    // Another thread may have been faster.
    Ok(slot.get_or_init(|| made))
}

/// The runtime's threads block every signal, so that Python's own threads get them.
fn start() -> io::Result<Runtime> {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(WORKERS).thread_name("gantry").on_thread_start(|| {
        // It can fail only for an invalid argument.
        SigSet::all().thread_block().ok();
    });
    runtime.enable_all().build()
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
    let mut check = |py: Python<'_>| py.check_signals();
    wait_between(py, what, if handles_signals() { Some(&mut check) } else { None })
}

/// As [`wait`]. The main thread handles signals, and every thread calls `news`, about twenty times a second. These may
/// use gantry: the thread has left the runtime then.
pub(crate) fn wait_with_news<T: Send>(
    py: Python<'_>,
    what: impl Future<Output = gantry_frontend::Result<T>> + Send,
    mut news: impl FnMut(Python<'_>) -> PyResult<()> + Send,
) -> PyResult<T> {
    let mut both = |py: Python<'_>| py.check_signals().and_then(|()| news(py));
    wait_between(py, what, Some(&mut both))?.map_err(|error| to_error(&error))
}

/// What is done with Python in the midst of a wait.
type Between<'a> = Option<&'a mut (dyn FnMut(Python<'_>) -> PyResult<()> + Send)>;

fn wait_between<T: Send>(
    py: Python<'_>,
    what: impl Future<Output = T> + Send,
    mut between: Between<'_>,
) -> PyResult<T> {
    let runtime = runtime()?;
    py.detach(move || {
        let mut what = pin!(what);
        let Some(between) = &mut between else { return Ok(runtime.block_on(what)) };
        loop {
            let slice = async { tokio::time::timeout(TICK, what.as_mut()).await };
            match runtime.block_on(slice) {
                Ok(done) => return Ok(done),
                Err(_) => Python::attach(&mut *between)?,
            }
        }
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
