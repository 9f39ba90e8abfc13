//! Apps that run, of any tool of this user.

use std::path::PathBuf;
use std::sync::Arc;

use gantry_frontend::control::{Client, Registry, RemoteEvents as LibraryEvents, list};
use gantry_shared_python::to_timeout;
use gantry_types::id::AppId;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::convert::{parse_signal, to_error, to_json, to_ranks};
use crate::owned::Owned;
use crate::streams::{Turns, next};
use crate::waiting::{wait, wait_at_most};

/// An app of whichever tool. Each call connects to that tool, so this belongs to no process.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct RemoteApp {
    registry: Registry,
    app: AppId,
}

/// All apps of this user that run here, by id: those whose tools answer, and those whose tools do not.
#[pyfunction]
pub(crate) fn list_apps(
    py: Python<'_>,
    runtime_dir: Option<PathBuf>,
    timeout: Option<f64>,
) -> PyResult<Vec<RemoteApp>> {
    let timeout = to_timeout(timeout)?;
    let registry = Registry::open(runtime_dir.as_deref()).map_err(|error| to_error(&error))?;
    let listing = wait(py, list(&registry, timeout))?;
    let mut apps: Vec<AppId> = listing.apps.iter().map(|info| info.app).chain(listing.silent).collect();
    apps.sort_unstable();
    Ok(apps.into_iter().map(|app| RemoteApp { registry: registry.clone(), app }).collect())
}

/// The app with this name: an id, its beginning, or `pid:1234`. None: the only one.
#[pyfunction]
pub(crate) fn find_app(
    py: Python<'_>,
    name: Option<String>,
    runtime_dir: Option<PathBuf>,
) -> PyResult<RemoteApp> {
    let registry = Registry::open(runtime_dir.as_deref()).map_err(|error| to_error(&error))?;
    let app = wait(py, async { Ok(Client::find(&registry, name.as_deref()).await?.app()) })?;
    Ok(RemoteApp { registry, app })
}

#[pymethods]
impl RemoteApp {
    fn id(&self) -> String {
        self.app.to_string()
    }

    fn info(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        let timeout = to_timeout(timeout)?;
        to_json(&wait(py, async { self.connect().await?.info(timeout).await })?)
    }

    fn release(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        wait(py, async { self.connect().await?.release(timeout).await })
    }

    fn signal(
        &self,
        py: Python<'_>,
        signal: &str,
        ranks: Option<Vec<u32>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (timeout, signal) = (to_timeout(timeout)?, parse_signal(signal)?);
        let ranks = ranks.map(to_ranks);
        wait(py, async { self.connect().await?.signal(signal, ranks.as_ref(), timeout).await })
    }

    fn kill(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        let timeout = to_timeout(timeout)?;
        to_json(&wait(py, async { self.connect().await?.kill(timeout).await })?)
    }

    /// The exit; none when it has not ended within the timeout.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let timeout = to_timeout(timeout)?;
        let ended = wait_at_most(py, timeout, async { self.connect().await?.wait().await })?;
        ended.map(|exit| to_json(&exit.map_err(|error| to_error(&error))?)).transpose()
    }

    fn events(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<RemoteEvents> {
        let timeout = to_timeout(timeout)?;
        let events = wait(py, async { self.connect().await?.events(timeout).await })?;
        Ok(RemoteEvents(Owned::new("the stream of events", Arc::new(Mutex::new(events)))))
    }
}

impl RemoteApp {
    async fn connect(&self) -> gantry_frontend::Result<Client> {
        Client::connect(&self.registry, self.app).await
    }
}

/// The events of such an app.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct RemoteEvents(Turns<LibraryEvents>);

#[pymethods]
impl RemoteEvents {
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let event = next!(py, "event", self.0, timeout).transpose().map_err(|error| to_error(&error))?;
        event.map(|event| to_json(&event)).transpose()
    }
}
