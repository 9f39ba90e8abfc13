//! Sessions, their files and their daemons.

use std::ffi::OsString;
use std::path::PathBuf;

use gantry_frontend::event::Ending;
use gantry_frontend::{self as library, AppHandle, DaemonRequest, Manifest};
use gantry_shared_python::{build_error, to_timeout};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::output::DaemonOutput;
use pyo3::prelude::*;

use crate::channel::Channel;
use crate::convert::{duplicate, parse_signal, to_json};
use crate::owned::Owned;
use crate::streams::Output;
use crate::waiting::{wait, wait_at_most};

/// A session.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Session {
    app: AppHandle,
    session: Owned<library::Session>,
}

/// Files of a session as a dictionary has them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Files {
    programs: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    dependencies: bool,
    allow_missing: bool,
}

impl Files {
    fn add_to(self, manifest: &mut Manifest) -> library::Result<()> {
        if !self.dependencies {
            manifest.without_dependencies();
        }
        if self.allow_missing {
            manifest.allow_missing();
        }
        self.programs.iter().try_for_each(|it| manifest.add_binary(it))?;
        self.libraries.iter().try_for_each(|it| manifest.add_library(it))?;
        self.directories.iter().try_for_each(|it| manifest.add_lib_dir(it))?;
        self.files.iter().try_for_each(|it| manifest.add_file(it))
    }
}

/// A daemon as a dictionary has it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Start {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    hosts: Option<Vec<String>>,
    /// Two descriptors, or none for a stream.
    output: Option<(i32, i32)>,
    stream: bool,
    log_dir: Option<OsString>,
    container: Option<OsString>,
}

impl Start {
    fn into_request(self, app: &AppHandle) -> library::Result<DaemonRequest> {
        let output = match self.log_dir {
            Some(log_dir) => DaemonOutput::Log(log_dir),
            None if self.stream || self.output.is_some() => DaemonOutput::Forward,
            None => DaemonOutput::Drop,
        };
        let mut request = DaemonRequest::new(self.program).args(self.args).output(output);
        if let Some(hosts) = self.hosts {
            request = request.nodes(app.nodes_by_hosts(&hosts)?);
        }
        if let Some(container) = self.container {
            request = request.container(container);
        }
        Ok(self.env.into_iter().fold(request, |request, (name, value)| request.env(name, value)))
    }
}

impl Session {
    pub(crate) fn new(app: AppHandle, session: library::Session) -> Self {
        Self { app, session: Owned::new("the session", session) }
    }
}

#[pymethods]
impl Session {
    fn id(&self) -> PyResult<u32> {
        self.session.with(|session| session.id().0)
    }

    /// Its directories: root, bin, lib, tmp.
    fn dirs(&self) -> PyResult<[PathBuf; 4]> {
        let nodes = 0..self.app.node_count();
        let dirs = self.session.with(|session| {
            let dirs = nodes.map(NodeId).find_map(|node| session.dirs(node))?;
            Some([&dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp].map(Clone::clone))
        })?;
        dirs.ok_or_else(|| build_error(Kind::Gone, "the session has no node".to_owned(), None, Vec::new()))
    }

    fn left_out(&self) -> PyResult<Vec<String>> {
        self.session.with(|session| session.left_out().to_vec())
    }

    /// Sends files: their number, how many were sent, bytes, number of nodes.
    fn send(&self, py: Python<'_>, files: Files, timeout: Option<f64>) -> PyResult<(usize, usize, u64, u64)> {
        let timeout = to_timeout(timeout)?;
        let mut manifest = self.session.with(library::Session::manifest)?;
        let staged = wait(py, async move {
            files.add_to(&mut manifest)?;
            manifest.send(timeout).await
        })?;
        Ok((staged.files, staged.files_sent, staged.bytes_sent, staged.nodes_sent.len()))
    }

    fn start_daemon(
        &self,
        py: Python<'_>,
        start: Start,
        files: Files,
        timeout: Option<f64>,
    ) -> PyResult<Daemon> {
        let timeout = to_timeout(timeout)?;
        let mut manifest = self.session.with(library::Session::manifest)?;
        let app = &self.app;
        let output =
            start.output.map(|(stdout, stderr)| Ok::<_, PyErr>((duplicate(stdout)?, duplicate(stderr)?)));
        let output = output.transpose()?;
        let daemon = wait(py, async move {
            files.add_to(&mut manifest)?;
            let daemon = manifest.exec_daemon(start.into_request(app)?, timeout).await?;
            if let Some((stdout, stderr)) = output {
                daemon.write_output_to(stdout, stderr)?;
            }
            Ok(daemon)
        })?;
        Ok(Daemon { app: self.app.clone(), daemon: Owned::new("the daemon", daemon.into()) })
    }

    fn channel(&self) -> PyResult<Channel> {
        Ok(Channel::new(self.session.with(library::Session::channel)?))
    }

    fn destroy(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        let session = self.session.take()?;
        wait(py, session.destroy(timeout))
    }
}

/// A daemon on its nodes.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Daemon {
    app: AppHandle,
    daemon: Owned<std::sync::Arc<library::Daemon>>,
}

impl Daemon {
    fn host(&self, node: NodeId) -> String {
        self.app.placement().host(node).unwrap_or_default().to_owned()
    }
}

#[pymethods]
impl Daemon {
    fn id(&self) -> PyResult<u32> {
        self.daemon.with(|daemon| daemon.id().0)
    }

    /// Its processes, by host.
    fn processes(&self) -> PyResult<Vec<(String, i32)>> {
        let daemon = self.daemon.with(Clone::clone)?;
        Ok(daemon.processes().iter().map(|(node, pid)| (self.host(*node), pid.get())).collect())
    }

    fn output(&self) -> PyResult<Option<Output>> {
        Ok(self.daemon.with(|daemon| daemon.take_output())?.map(Output::new))
    }

    fn signal(&self, py: Python<'_>, signal: &str, timeout: Option<f64>) -> PyResult<()> {
        let (signal, timeout) = (parse_signal(signal)?, to_timeout(timeout)?);
        let daemon = self.daemon.with(Clone::clone)?;
        wait(py, async move { daemon.signal(signal, timeout).await })
    }

    /// How it ended, by host; none when it has not ended within the timeout.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Vec<(String, String)>>> {
        let timeout = to_timeout(timeout)?;
        let daemon = self.daemon.with(Clone::clone)?;
        let Some(ends) = wait_at_most(py, timeout, async move { daemon.wait().await })? else {
            return Ok(None);
        };
        let end = |(node, status)| Ok((self.host(node), to_json(&Ending::from(status))?));
        ends.into_iter().map(end).collect::<PyResult<_>>().map(Some)
    }
}
