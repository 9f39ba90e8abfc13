//! A daemon's node, and its end of the channel.

use std::error::Error as _;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Instant;

use gantry_backend::{self as library, ExitStatus, Failure, Kind, RankState};
use gantry_shared_python::{MemberPair, TICK, build_error, handles_signals, to_bytes, to_pair, to_timeout};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A rank of this node: its number, process, program, state, and how it ended: code or signal.
type LocalRank = (u32, i32, PathBuf, &'static str, Option<i32>, Option<String>);

fn to_error(error: &library::Error) -> PyErr {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    build_error(error.kind(), message, error.hint().map(str::to_owned), Vec::new())
}

/// A connection to the agent of this node.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Backend(library::Backend);

#[pymethods]
impl Backend {
    /// Connects to the agent that started this process.
    #[new]
    fn connect(py: Python<'_>) -> PyResult<Self> {
        py.detach(library::Backend::connect).map(Self).map_err(|error| to_error(&error))
    }

    #[getter]
    fn app(&self) -> String {
        self.0.app().to_string()
    }

    #[getter]
    fn wlm(&self) -> &str {
        self.0.wlm()
    }

    #[getter]
    fn host(&self) -> &str {
        self.0.host()
    }

    #[getter]
    fn node(&self) -> u32 {
        self.0.node().0
    }

    #[getter]
    fn node_count(&self) -> u32 {
        self.0.node_count()
    }

    #[getter]
    fn rank_count(&self) -> u32 {
        self.0.rank_count()
    }

    /// The session's directories: root, bin, lib, tmp.
    #[getter]
    fn dirs(&self) -> [PathBuf; 4] {
        let dirs = self.0.dirs();
        [&dirs.root, &dirs.bin, &dirs.lib, &dirs.tmp].map(Clone::clone)
    }

    fn ranks(&self, py: Python<'_>) -> PyResult<Vec<LocalRank>> {
        let ranks = py.detach(|| self.0.ranks()).map_err(|error| to_error(&error))?;
        let convert = |rank: library::LocalRank| {
            let (code, signal) = match rank.state {
                RankState::Exited(ExitStatus::Code(code)) => (Some(code), None),
                RankState::Exited(ExitStatus::Signal(signal)) => (None, Some(signal.to_string())),
                _ => (None, None),
            };
            (rank.rank.0, rank.pid.get(), PathBuf::from(rank.exe), to_word(rank.state), code, signal)
        };
        Ok(ranks.into_iter().map(convert).collect())
    }

    fn channel(&self, py: Python<'_>) -> PyResult<Channel> {
        py.detach(|| self.0.channel()).map(Channel).map_err(|error| to_error(&error))
    }
}

/// The state of a rank, in the word that events have for it.
fn to_word(state: RankState) -> &'static str {
    match state {
        RankState::Starting => "starting",
        RankState::Held => "held",
        RankState::Running => "running",
        RankState::Exited(_) => "exited",
        RankState::Lost => "lost",
    }
}

/// This daemon's end of the channel to the tool.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Channel(library::Channel);

#[pymethods]
impl Channel {
    #[getter]
    fn member(&self) -> MemberPair {
        to_pair(self.0.member())
    }

    /// The next message with this tag, or with any: the tag and the message.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        tag: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let timeout = to_timeout(timeout)?;
        let started = Instant::now();
        let tick = if handles_signals() { TICK } else { timeout };
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let received = py.detach(|| match tag {
                Some(tag) => self.0.receive(tag, left.min(tick)).map(|bytes| (tag, bytes)),
                None => self.0.receive_any(left.min(tick)),
            });
            match received {
                Ok((tag, bytes)) => return Ok((tag, PyBytes::new(py, &bytes))),
                // What has come of a message is kept.
                Err(library::Error::TimedOut { .. }) if left > tick => py.check_signals()?,
                Err(library::Error::TimedOut { phase, .. }) => {
                    return Err(to_error(&library::Error::TimedOut { phase, after: timeout }));
                }
                Err(error) => return Err(to_error(&error)),
            }
        }
    }

    fn send(&self, py: Python<'_>, tag: u32, message: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        py.detach(|| self.0.send(tag, message, timeout)).map_err(|error| to_error(&error))
    }

    fn contribute(&self, py: Python<'_>, tag: u32, part: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let timeout = to_timeout(timeout)?;
        py.detach(|| self.0.contribute(tag, part, timeout)).map_err(|error| to_error(&error))
    }

    /// Merges for this node's agent until the session ends.
    fn serve_filter(&self, py: Python<'_>, name: &str, merge: Py<PyAny>) -> PyResult<()> {
        let merge = |parts: Vec<Vec<u8>>| {
            Python::attach(|py| {
                let merge = merge.bind(py);
                let parts: Vec<_> = parts.iter().map(|part| PyBytes::new(py, part)).collect();
                let merged = merge.call1((parts,)).and_then(|merged| to_bytes(&merged));
                merged.map_err(|error| {
                    let failure = Failure::new(Kind::Invalid, format!("merge by {name}: {error}"));
                    // The agent passes the parts on unmerged: nobody else would hear of it.
                    error.write_unraisable(py, Some(merge));
                    failure
                })
            })
        };
        py.detach(|| self.0.serve_filter(name, merge)).map_err(|error| to_error(&error))
    }

    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}
