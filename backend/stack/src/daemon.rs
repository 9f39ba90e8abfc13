//! The daemon: reads the stacks of its node's ranks on request, and contributes one tree of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use gantry_backend::types::error::Failure;
use gantry_backend::types::filter::{PrefixTree, key_ranks};
use gantry_backend::types::rank_set::RankSet;
use gantry_backend::{Backend, Channel, Error as BackendError, LocalRank, Rank, RankState};
use gantry_stack::frame::{Frame, Mark};
use gantry_stack::orders::{Orders, sample_number};
use gantry_stack::tags;

use crate::aside::NOT_IN_TIME;
use crate::load::{self, Loads};
use crate::look_up::LookUp;
use crate::motion::Motions;
use crate::reader::{Reader, Stack};

/// A timeout for waits that end only when the tool sends the next order.
const NEVER: Duration = Duration::MAX;

/// Why the daemon ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The orders are not valid.
    #[error("{0}")]
    Orders(&'static str),
    /// The agent is gone, or does not answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The tree exceeds its limits.
    #[error(transparent)]
    Tree(#[from] Failure),
    /// The system refused.
    #[error(transparent)]
    System(std::io::Error),
}

/// Executes the first orders, and then all that follow, until the session ends.
///
/// # Errors
/// gantry did not start this process, or its agent disappeared before it answered.
pub fn run(first: &str) -> Result<(), Error> {
    let mut reader = Reader::new().map_err(Error::System)?;
    let backend = Backend::connect()?;
    let channel = backend.channel()?;
    let (mut motions, mut loads, mut names) = (Motions::default(), Loads::default(), LookUp::new());
    follow(&backend, &channel, &mut reader, first, false)?;
    let mut requests = Requests::default();
    loop {
        let (tag, request, is_outdated) = match requests.next(&channel) {
            Ok(next) => next,
            Err(BackendError::Lost(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let request = String::from_utf8_lossy(&request);
        match tag {
            tags::ORDERS => {
                names.begin_order();
                follow(&backend, &channel, &mut reader, &request, is_outdated)?;
            }
            tags::LOOK_UP => {
                let pids: Vec<i32> = backend.ranks()?.iter().map(|rank| rank.pid.get()).collect();
                let request = if is_outdated { "" } else { &*request };
                let found = names.find(request, reader.modules(), &pids, &node_of(&backend))?;
                channel.contribute(tags::FOUND, &found.encode()?, NEVER)?;
            }
            tags::MOTION_ASKED => {
                let ranks = backend.ranks()?;
                let moved = if is_outdated { BTreeMap::new() } else { motions.ask(&ranks, &mut reader) };
                channel.contribute(tags::MOTION, &key_ranks::encode(&moved)?, NEVER)?;
            }
            tags::LOAD_ASKED => {
                let (ranks, digits) = (backend.ranks()?, request.parse().unwrap_or(1));
                let of_ranks = if is_outdated { BTreeMap::new() } else { loads.ask(&ranks, digits) };
                channel.contribute(tags::LOAD, &key_ranks::encode(&of_ranks)?, NEVER)?;
                channel.contribute(tags::HOSTS, &key_ranks::encode(&load::of_host(&ranks))?, NEVER)?;
            }
            _ => {}
        }
    }
}

/// The requests that have come. A node that hung for hours gets many of them at once.
#[derive(Debug, Default)]
struct Requests(VecDeque<(u32, Vec<u8>)>);

impl Requests {
    /// Waits for the next request. Returns its tag, its content and whether it is outdated.
    fn next(&mut self, channel: &Channel) -> Result<(u32, Vec<u8>, bool), BackendError> {
        loop {
            let timeout = if self.0.is_empty() { NEVER } else { Duration::ZERO };
            match channel.receive_any(timeout) {
                Ok(request) => self.0.push_back(request),
                Err(BackendError::TimedOut { .. }) => {
                    if let Some(next) = self.take() {
                        return Ok(next);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The tool sends the next request of a kind when it does not wait for the answer to the last one any more. Each
    /// answer belongs to one request, so outdated ones get answers too, without work.
    fn take(&mut self) -> Option<(u32, Vec<u8>, bool)> {
        let (tag, request) = self.0.pop_front()?;
        let is_outdated = self.0.iter().any(|(later, _)| *later == tag);
        Some((tag, request, is_outdated))
    }
}

/// Executes orders, and contributes the result. Outdated ones need no sample.
fn follow(
    backend: &Backend,
    channel: &Channel,
    reader: &mut Reader,
    orders: &str,
    is_outdated: bool,
) -> Result<(), Error> {
    let orders: Orders = orders.parse().map_err(Error::Orders)?;
    reader.begin_order();
    let mut tree = PrefixTree::new();
    let started = Instant::now();
    for sample in 0..if is_outdated { 0 } else { orders.samples } {
        #[expect(
            clippy::disallowed_methods,
            reason = "samples are to be some time apart: what is waited for is the time"
        )]
        std::thread::sleep(orders.every.saturating_mul(sample).saturating_sub(started.elapsed()));
        let ranks = backend.ranks()?;
        let wanted =
            ranks.iter().filter(|rank| orders.ranks.as_ref().is_none_or(|it| it.contains(rank.rank)));
        add_sample(&mut tree, reader, wanted, &orders, sample)?;
    }
    channel.contribute(tags::STACKS, &tree.encode()?, NEVER)?;
    let node = node_of(backend);
    let mut modules = PrefixTree::new();
    for module in reader.modules() {
        modules.add([module.to_text().as_str()], &node)?;
    }
    for path in reader.late_files() {
        modules.add([path, NOT_IN_TIME], &node)?;
    }
    Ok(channel.contribute(tags::MODULES, &modules.encode()?, NEVER)?)
}

/// What stands for this node in a tree without ranks.
fn node_of(backend: &Backend) -> RankSet {
    [Rank(backend.node().0)].into_iter().collect()
}

/// Reads each rank once, and merges ranks with the same path.
fn add_sample<'r>(
    tree: &mut PrefixTree,
    reader: &mut Reader,
    ranks: impl Iterator<Item = &'r LocalRank>,
    orders: &Orders,
    sample: u32,
) -> Result<(), Error> {
    let mut paths: BTreeMap<Stack, RankSet> = BTreeMap::new();
    let (live, gone): (Vec<&LocalRank>, Vec<&LocalRank>) =
        ranks.partition(|rank| matches!(rank.state, RankState::Held | RankState::Running));
    let pids: Vec<i32> = live.iter().map(|rank| rank.pid.get()).collect();
    let read = reader.read(&pids, orders.threads);
    let ended = gone.into_iter().map(|rank| (rank, vec![vec![Frame::Mark(Mark::Ended)]]));
    for (rank, stacks) in live.into_iter().zip(read).chain(ended) {
        let Some(number) = sample_number(rank.rank, orders.samples, sample) else { continue };
        for mut path in stacks {
            if rank.state == RankState::Held {
                let stopped = path.iter_mut().filter(|frame| **frame == Frame::Mark(Mark::Stopped));
                stopped.for_each(|frame| *frame = Frame::Mark(Mark::Held));
            }
            paths.entry(path).or_default().insert(number);
        }
    }
    for (path, numbers) in paths {
        let names: Vec<String> = path.iter().map(ToString::to_string).collect();
        tree.add(names.iter().map(String::as_str), &numbers)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_of_many_requests_of_a_kind_is_not_outdated() {
        let look = [tags::ORDERS, tags::MOTION_ASKED];
        let mut requests =
            Requests([look, look, look].concat().into_iter().map(|tag| (tag, vec![])).collect());
        let is_outdated: Vec<bool> = std::iter::from_fn(|| Some(requests.take()?.2)).collect();
        assert_eq!(is_outdated, [true, true, true, true, false, false]);
    }
}
