//! An app.

use std::time::Duration;

use gantry_frontend::{self as library, AppHandle};
use gantry_shared_python::to_timeout;
use pyo3::prelude::*;

use crate::convert::{parse_signal, to_error, to_json, to_ranks};
use crate::owned::Owned;
use crate::session::Session;
use crate::streams::{Events, Output};
use crate::waiting::{wait, wait_at_most};

/// How long output may still come when the ranks have ended: their children may keep it open.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);

/// The owner of an app.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct App {
    owner: Owned<library::App>,
    handle: Owned<AppHandle>,
}

impl App {
    pub(crate) fn new(app: library::App) -> Self {
        let handle = Owned::new("the app", AppHandle::clone(&app));
        Self { owner: Owned::new("the app", app), handle }
    }

    fn handle(&self) -> PyResult<AppHandle> {
        self.handle.with(Clone::clone)
    }
}

#[pymethods]
impl App {
    fn id(&self) -> PyResult<String> {
        Ok(self.handle()?.id().to_string())
    }

    fn state(&self) -> PyResult<&'static str> {
        Ok(self.handle()?.state().as_str())
    }

    fn info(&self) -> PyResult<String> {
        to_json(&self.handle()?.info())
    }

    fn hosts(&self) -> PyResult<Vec<String>> {
        Ok(self.handle()?.placement().hosts().map(str::to_owned).collect())
    }

    fn release(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (handle, timeout) = (self.handle()?, to_timeout(timeout)?);
        wait(py, async move { handle.release(timeout).await })
    }

    fn signal(
        &self,
        py: Python<'_>,
        signal: &str,
        ranks: Option<Vec<u32>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (handle, timeout, signal) = (self.handle()?, to_timeout(timeout)?, parse_signal(signal)?);
        let ranks = ranks.map(to_ranks);
        wait(py, async move { handle.signal(signal, ranks.as_ref(), timeout).await })
    }

    fn kill(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        let (handle, timeout) = (self.handle()?, to_timeout(timeout)?);
        to_json(&wait(py, async move { handle.kill(timeout).await })?)
    }

    /// The exit; none when it has not ended within the timeout.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let (handle, timeout) = (self.handle()?, to_timeout(timeout)?);
        let Some(exit) = wait_at_most(py, timeout, handle.wait())? else { return Ok(None) };
        let exit = to_json(&exit.map_err(|error| to_error(&error))?)?;
        wait_at_most(py, OUTPUT_GRACE, handle.output_written())?;
        Ok(Some(exit))
    }

    fn events(&self) -> PyResult<Events> {
        let handle = self.handle()?;
        Ok(Events::new(handle.events()))
    }

    /// The ranks' output, if it is a stream that has not been taken.
    fn output(&self) -> PyResult<Option<Output>> {
        Ok(self.handle()?.take_output().map(Output::new))
    }

    fn session(&self, py: Python<'_>, where_answered: bool, timeout: Option<f64>) -> PyResult<Session> {
        let (handle, timeout) = (self.handle()?, to_timeout(timeout)?);
        let of = handle.clone();
        let session = wait(py, async move {
            match where_answered {
                true => handle.session_where_answered(timeout).await,
                false => handle.session(timeout).await,
            }
        })?;
        Ok(Session::new(of, session))
    }

    fn detach(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        let owner = self.owner.take()?;
        wait(py, owner.detach(timeout))
    }

    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        let owner = self.owner.take()?;
        wait(py, owner.close(timeout))
    }
}
