//! The channel between tool and daemons.

use std::sync::Arc;

use gantry_frontend::filter::{Filter, reduce_at_once};
use gantry_frontend::{self as library, Policy};
use gantry_shared_python::{MemberPair, MissingDaemon, to_bytes, to_member, to_pair, to_timeout};
use gantry_types::error::{Failure, Kind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::to_missing;
use crate::owned::Owned;
use crate::streams::Messages;
use crate::waiting::wait;

/// A session's channel.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Channel(Owned<library::Channel>);

/// What members contributed, and the missing ones.
type Gathered<'py> = (Vec<(MemberPair, Bound<'py, PyBytes>)>, Vec<MissingDaemon>);

impl Channel {
    pub(crate) fn new(channel: library::Channel) -> Self {
        Self(Owned::new("the channel", channel))
    }

    fn get(&self) -> PyResult<library::Channel> {
        self.0.with(Clone::clone)
    }
}

/// None: all. 0: any number.
fn to_policy(quorum: Option<u64>) -> Policy {
    match quorum {
        None => Policy::All,
        Some(0) => Policy::BestEffort,
        Some(quorum) => Policy::Quorum(quorum),
    }
}

fn to_list(missing: &[library::Missing]) -> Vec<MissingDaemon> {
    missing.iter().map(to_missing).collect()
}

#[pymethods]
impl Channel {
    fn members(&self) -> PyResult<Vec<MemberPair>> {
        Ok(self.get()?.members().into_iter().map(to_pair).collect())
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        tag: u32,
        message: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<Vec<MissingDaemon>> {
        let (channel, timeout) = (self.get()?, to_timeout(timeout)?);
        wait(py, async move { channel.broadcast(tag, message, timeout).await })
            .map(|missing| to_list(&missing))
    }

    fn scatter(
        &self,
        py: Python<'_>,
        tag: u32,
        messages: Vec<(MemberPair, Vec<u8>)>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<MissingDaemon>> {
        let (channel, timeout) = (self.get()?, to_timeout(timeout)?);
        let messages: Vec<_> =
            messages.into_iter().map(|(member, bytes)| (to_member(member), bytes)).collect();
        wait(py, async move { channel.scatter(tag, messages, timeout).await })
            .map(|missing| to_list(&missing))
    }

    fn send(
        &self,
        py: Python<'_>,
        member: MemberPair,
        tag: u32,
        message: &[u8],
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let (channel, timeout) = (self.get()?, to_timeout(timeout)?);
        wait(py, async move { channel.send(to_member(member), tag, message, timeout).await })
    }

    fn gather<'py>(
        &self,
        py: Python<'py>,
        tag: u32,
        quorum: Option<u64>,
        timeout: Option<f64>,
    ) -> PyResult<Gathered<'py>> {
        let (channel, timeout) = (self.get()?, to_timeout(timeout)?);
        let gathered = wait(py, async move { channel.gather(tag, to_policy(quorum), timeout).await })?;
        let parts = gathered.parts.iter().map(|(member, bytes)| (to_pair(*member), PyBytes::new(py, bytes)));
        Ok((parts.collect(), to_list(&gathered.missing)))
    }

    /// The result as bytes, the number of members in it, the missing ones.
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        tag: u32,
        filter: &str,
        quorum: Option<u64>,
        timeout: Option<f64>,
    ) -> PyResult<(Bound<'py, PyBytes>, u64, Vec<MissingDaemon>)> {
        let (channel, timeout, filter) = (self.get()?, to_timeout(timeout)?, Filter::by_name(filter));
        let reduced = wait(py, async move { channel.reduce(tag, filter, to_policy(quorum), timeout).await })?;
        Ok((PyBytes::new(py, &reduced.bytes), reduced.contributed, to_list(&reduced.missing)))
    }

    fn register_filter(&self, name: &str, merge: Py<PyAny>) -> PyResult<()> {
        if !matches!(Filter::by_name(name), Filter::Custom(_)) {
            return Err(PyValueError::new_err(format!("'{name}' is the name of a built-in filter")));
        }
        // The library starts it under a lock, so that must not wait for Python's.
        let merge = Arc::new(merge);
        let start = move || {
            let merge = Arc::clone(&merge);
            reduce_at_once(move |parts| merge_by(&merge, parts))
        };
        self.get()?.register_filter(name, Box::new(start));
        Ok(())
    }

    fn messages(&self, tag: u32) -> PyResult<Messages> {
        Ok(Messages::new(self.get()?.messages(tag)))
    }
}

/// Has a function of the tool's merge parts.
fn merge_by(merge: &Py<PyAny>, parts: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
    Python::attach(|py| {
        let parts: Vec<_> = parts.iter().map(|part| PyBytes::new(py, part)).collect();
        let merged = merge.call1(py, (parts,)).and_then(|merged| to_bytes(merged.bind(py)));
        merged.map_err(|error| {
            Failure::new(Kind::Invalid, format!("merge contributions by the tool's own filter: {error}"))
        })
    })
}
