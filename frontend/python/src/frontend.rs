//! Settings, launch and attach.

use std::ffi::OsString;
use std::path::PathBuf;

use gantry_frontend::{
    self as library, Config, HostsPolicy, Input, LaunchRequest, OutputTo, QueueNews, SendAgent,
};
use gantry_shared_python::{of_failure, to_timeout};
use pyo3::prelude::*;

use crate::app::App;
use crate::batch::Batch;
use crate::convert::{duplicate, to_error};
use crate::news::News;
use crate::waiting::{wait, wait_with_news};

/// Settings of a tool.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Frontend(library::Frontend);

/// The settings as a dictionary has them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    wlm: Option<String>,
    stage_dir: Option<PathBuf>,
    send_agent: Option<String>,
    hosts_policy: Option<String>,
    reach_args: Vec<OsString>,
    rank_wrapper: Option<String>,
    runtime_dir: Option<PathBuf>,
}

/// A launch as a dictionary has it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Launch {
    args: Vec<OsString>,
    hold: bool,
    hold_at: Option<String>,
    linger: bool,
    launcher: Option<OsString>,
    launcher_wrapper: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    stdin: Option<i32>,
    /// Two descriptors, or none for a stream.
    output: Option<(i32, i32)>,
    stream: bool,
    queue_timeout: Option<f64>,
}

/// Has gantry's programs looked for in these directories, too.
#[pyfunction]
pub(crate) fn look_for_programs_in(dirs: Vec<PathBuf>) {
    library::Frontend::look_for_programs_in(dirs);
}

impl Launch {
    fn into_request(self) -> PyResult<LaunchRequest> {
        let mut request = LaunchRequest::new(self.args).hold(self.hold).linger(self.linger);
        if let Some(pattern) = self.hold_at {
            request = request.hold_at(pattern);
        }
        if let Some(launcher) = self.launcher {
            request = request.launcher(launcher);
        }
        if !self.launcher_wrapper.is_empty() {
            request = request.launcher_wrapper(self.launcher_wrapper);
        }
        if let Some(cwd) = self.cwd {
            request = request.cwd(cwd);
        }
        if let Some(seconds) = self.queue_timeout {
            request = request.queue_timeout(to_timeout(Some(seconds))?);
        }
        if let Some(stdin) = self.stdin {
            request = request.stdin(Input::Fd(duplicate(stdin)?));
        }
        if let Some((stdout, stderr)) = self.output {
            request =
                request.output(OutputTo::Fds { stdout: duplicate(stdout)?, stderr: duplicate(stderr)? });
        } else if self.stream {
            request = request.output(OutputTo::Stream);
        }
        Ok(self.env.into_iter().fold(request, |request, (name, value)| request.env(name, value)))
    }
}

#[pymethods]
impl Frontend {
    #[new]
    fn new(settings: Settings) -> PyResult<Self> {
        let mut config = Config {
            wlm: settings.wlm,
            stage_base: settings.stage_dir,
            reach_args: settings.reach_args,
            rank_wrapper: settings.rank_wrapper,
            runtime_dir: settings.runtime_dir,
            ..Config::default()
        };
        if let Some(send) = settings.send_agent {
            config.send_agent = Some(send.parse::<SendAgent>().map_err(|failure| of_failure(&failure))?);
        }
        if let Some(policy) = settings.hosts_policy {
            config.hosts_policy = policy.parse::<HostsPolicy>().map_err(|failure| of_failure(&failure))?;
        }
        Ok(Self(library::Frontend::new(config)))
    }

    /// The workload manager that is used, and why.
    fn choice(&self) -> PyResult<(&'static str, String, Option<String>)> {
        let choice = self.0.choice().map_err(|error| to_error(&error))?;
        Ok((choice.wlm, choice.why, choice.doubt))
    }

    fn launch(
        &self,
        py: Python<'_>,
        launch: Launch,
        on_wait: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<App> {
        let timeout = to_timeout(timeout)?;
        let request = launch.into_request()?;
        let launched = match on_wait {
            None => wait(py, self.0.launch(request, timeout)),
            Some(on_wait) => {
                let news = News::default();
                let add = |told: &QueueNews| news.add(&told.job, &told.message);
                wait_with_news(py, self.0.launch_with_news(request, add, timeout), |py| {
                    news.tell(py, &on_wait)
                })
            }
        };
        launched.map(App::new)
    }

    fn attach(
        &self,
        py: Python<'_>,
        target: &str,
        on_wait: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<App> {
        let timeout = to_timeout(timeout)?;
        let attached = match on_wait {
            None => wait(py, self.0.attach(target, timeout)),
            Some(on_wait) => {
                let news = News::default();
                let add = |message: &str| news.add(target, message);
                wait_with_news(py, self.0.attach_with_news(target, add, timeout), |py| {
                    news.tell(py, &on_wait)
                })
            }
        };
        attached.map(App::new)
    }

    fn submit(&self, py: Python<'_>, args: Vec<OsString>, timeout: Option<f64>) -> PyResult<Batch> {
        let timeout = to_timeout(timeout)?;
        wait(py, self.0.submit(args, timeout)).map(Batch::new)
    }
}
