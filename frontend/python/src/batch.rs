//! Batch jobs, until they are attached to.

use gantry_frontend as library;
use gantry_shared_python::to_timeout;
use pyo3::prelude::*;

use crate::app::App;
use crate::news::News;
use crate::owned::Owned;
use crate::waiting::{wait, wait_with_news};

/// A job that was submitted.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Batch(Owned<library::Batch>);

impl Batch {
    pub(crate) fn new(batch: library::Batch) -> Self {
        Self(Owned::new("the job", batch))
    }
}

#[pymethods]
impl Batch {
    fn job(&self) -> PyResult<String> {
        self.0.with(|batch| batch.job().to_owned())
    }

    fn wlm(&self) -> PyResult<&'static str> {
        self.0.with(library::Batch::wlm)
    }

    fn attach(
        &self,
        py: Python<'_>,
        queue_timeout: Option<f64>,
        on_wait: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<App> {
        let timeout = to_timeout(timeout)?;
        let queue_timeout = queue_timeout.map(|seconds| to_timeout(Some(seconds))).transpose()?;
        let mut batch = self.0.take()?;
        if let Some(queue_timeout) = queue_timeout {
            batch = batch.queue_timeout(queue_timeout);
        }
        let attached = match on_wait {
            None => wait(py, batch.attach(timeout, |_| {})),
            Some(on_wait) => {
                let (news, job) = (News::default(), batch.job().to_owned());
                let add = |message: &str| news.add(&job, message);
                wait_with_news(py, batch.attach(timeout, add), |py| news.tell(py, &on_wait))
            }
        };
        attached.map(App::new)
    }

    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.0.take()?.detach())
    }

    fn cancel(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        wait(py, self.0.take()?.cancel(timeout))
    }
}
