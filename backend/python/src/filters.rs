//! The encodings of the built-in filters, between bytes and objects of Python.

use std::collections::BTreeMap;

use gantry_backend::filter::numbers::Numbers;
use gantry_backend::filter::prefix_tree::Frame;
use gantry_backend::filter::{Filter, PrefixTree, concatenate, key_ranks, ranks};
use gantry_backend::{Failure, Rank};
use gantry_shared_python::{of_failure, to_bytes, to_pair};
use gantry_types::rank_set::RankSet;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList};

/// The bytes of a contribution to a reduction by the filter of that name.
///
/// ``sum``, ``min``, ``max``: a list of numbers. ``ranks``: ranks. ``keys``: a dictionary from keys, which are bytes, to
/// ranks. ``stacks``: pairs of a call path, outermost function first, and its ranks. ``concatenate`` and filters of the
/// tool's own: bytes.
///
/// # Errors
/// The value does not fit the filter: ``TypeError``, or an error of gantry.
#[pyfunction]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    filter: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = match Filter::by_name(filter) {
        Filter::Sum | Filter::Min | Filter::Max => to_numbers(value)?.encode(),
        Filter::RankSetUnion => ranks::encode(&to_ranks(value)?),
        Filter::KeyRanks => {
            let pairs: Vec<(Vec<u8>, Bound<'_, PyAny>)> = value.cast::<PyDict>()?.items().extract()?;
            let keys: PyResult<BTreeMap<_, _>> =
                pairs.into_iter().map(|(key, ranks)| Ok((key, to_ranks(&ranks)?))).collect();
            key_ranks::encode(&keys?)
        }
        Filter::PrefixTree => to_tree(value)?.encode(),
        Filter::Concatenate | Filter::Custom(_) => Ok(to_bytes(value)?),
    };
    bytes.map(|bytes| PyBytes::new(py, &bytes)).map_err(|failure| of_failure(&failure))
}

/// The value in the result of a reduction by the filter of that name: in the form that ``encode`` takes.
///
/// But ``stacks`` gives ``(depth, function, ranks)`` of each frame, callers first, and ``concatenate`` pairs of node and
/// daemon, and bytes.
///
/// # Errors
/// It is no result of this filter.
#[pyfunction]
pub(crate) fn decode<'py>(py: Python<'py>, filter: &str, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let failed = |failure: Failure| of_failure(&failure);
    match Filter::by_name(filter) {
        Filter::Sum | Filter::Min | Filter::Max => match Numbers::decode(bytes).map_err(failed)? {
            None => Ok(PyList::empty(py).into_any()),
            Some(Numbers::Integers(values)) => values.into_pyobject(py),
            Some(Numbers::Floats(values)) => values.into_pyobject(py),
        },
        Filter::RankSetUnion => of_ranks(py, &ranks::decode(bytes).map_err(failed)?),
        Filter::KeyRanks => {
            let keys = PyDict::new(py);
            for (key, ranks) in key_ranks::decode(bytes).map_err(failed)? {
                keys.set_item(PyBytes::new(py, &key), of_ranks(py, &ranks)?)?;
            }
            Ok(keys.into_any())
        }
        Filter::PrefixTree => of_tree(py, &PrefixTree::decode(bytes).map_err(failed)?),
        Filter::Concatenate => {
            let parts = concatenate::decode(bytes).map_err(failed)?;
            let parts = parts.iter().map(|part| (to_pair(part.member), PyBytes::new(py, &part.bytes)));
            Ok(PyList::new(py, parts.collect::<Vec<_>>())?.into_any())
        }
        Filter::Custom(_) => Ok(PyBytes::new(py, bytes).into_any()),
    }
}

/// Whole numbers, or floating point numbers if one of them is.
fn to_numbers(value: &Bound<'_, PyAny>) -> PyResult<Numbers> {
    let values: Vec<Bound<'_, PyAny>> = value.try_iter()?.collect::<PyResult<_>>()?;
    if values.iter().any(|value| value.is_instance_of::<PyFloat>()) {
        return values.iter().map(|value| value.extract()).collect::<PyResult<_>>().map(Numbers::Floats);
    }
    values.iter().map(|value| value.extract()).collect::<PyResult<_>>().map(Numbers::Integers)
}

fn to_ranks(value: &Bound<'_, PyAny>) -> PyResult<RankSet> {
    value.try_iter()?.map(|rank| Ok(Rank(rank?.extract()?))).collect()
}

fn of_ranks<'py>(py: Python<'py>, ranks: &RankSet) -> PyResult<Bound<'py, PyAny>> {
    ranks.iter().map(|rank| rank.0).collect::<Vec<_>>().into_pyobject(py)
}

/// Pairs of a call path, outermost function first, and the ranks that are in it.
fn to_tree(value: &Bound<'_, PyAny>) -> PyResult<PrefixTree> {
    let mut tree = PrefixTree::new();
    for entry in value.try_iter()? {
        let (path, ranks): (Vec<String>, Bound<'_, PyAny>) = entry?.extract()?;
        let path = path.iter().map(String::as_str);
        tree.add(path, &to_ranks(&ranks)?).map_err(|failure| of_failure(&failure))?;
    }
    Ok(tree)
}

/// All frames, each before those that it calls: depth, name, ranks.
fn of_tree<'py>(py: Python<'py>, tree: &PrefixTree) -> PyResult<Bound<'py, PyAny>> {
    let frames = PyList::empty(py);
    let mut left: Vec<(usize, Frame<'_>)> = tree.outermost().map(|frame| (0, frame)).collect();
    left.reverse();
    while let Some((depth, frame)) = left.pop() {
        frames.append((depth, frame.name(), of_ranks(py, frame.ranks())?))?;
        let first = left.len();
        left.extend(frame.calls().map(|call| (depth + 1, call)));
        left[first..].reverse();
    }
    Ok(frames.into_any())
}

/// The ranks as text, such as `0-3,7`.
///
/// # Errors
/// They are no numbers of ranks.
#[pyfunction]
pub(crate) fn fold_ranks(ranks: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(to_ranks(ranks)?.to_string())
}
