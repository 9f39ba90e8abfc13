//! The daemon: reads the stacks of its node's ranks on request, and contributes one tree of them.

use std::collections::BTreeMap;
use std::fmt;
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
const HOUR: Duration = Duration::from_secs(3600);

/// Why the daemon ends early.
#[derive(Debug)]
pub enum Error {
    /// The orders are not valid.
    Orders(&'static str),
    /// The agent is gone, or does not answer.
    Backend(BackendError),
    /// The tree exceeds its limits.
    Tree(Failure),
    /// The system refused.
    System(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orders(why) => f.write_str(why),
            Self::Backend(error) => error.fmt(f),
            Self::Tree(failure) => failure.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Tree(failure)
    }
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
    follow(&backend, &channel, &mut reader, first)?;
    loop {
        match channel.receive_any(HOUR) {
            Ok((tags::ORDERS, orders)) => {
                names.begin_order();
                follow(&backend, &channel, &mut reader, &String::from_utf8_lossy(&orders))?;
            }
            Ok((tags::LOOK_UP, places)) => {
                let pids: Vec<i32> = backend.ranks()?.iter().map(|rank| rank.pid.get()).collect();
                let places = String::from_utf8_lossy(&places);
                let found = names.find(&places, reader.modules(), &pids, &node_of(&backend))?;
                channel.contribute(tags::FOUND, &found.encode()?, HOUR)?;
            }
            Ok((tags::MOTION_ASKED, _)) => {
                let moved = motions.ask(&backend.ranks()?, &mut reader);
                channel.contribute(tags::MOTION, &key_ranks::encode(&moved)?, HOUR)?;
            }
            Ok((tags::LOAD_ASKED, digits)) => {
                let digits = String::from_utf8_lossy(&digits).parse().unwrap_or(1);
                let ranks = backend.ranks()?;
                channel.contribute(tags::LOAD, &key_ranks::encode(&loads.ask(&ranks, digits))?, HOUR)?;
                channel.contribute(tags::HOSTS, &key_ranks::encode(&load::of_host(&ranks))?, HOUR)?;
            }
            Ok(_) | Err(BackendError::TimedOut { .. }) => {}
            Err(BackendError::Lost(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Executes orders, and contributes the result.
fn follow(backend: &Backend, channel: &Channel, reader: &mut Reader, orders: &str) -> Result<(), Error> {
    let orders: Orders = orders.parse().map_err(Error::Orders)?;
    reader.begin_order();
    let mut tree = PrefixTree::new();
    let started = Instant::now();
    for sample in 0..orders.samples {
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
    channel.contribute(tags::STACKS, &tree.encode()?, HOUR)?;
    let node = node_of(backend);
    let mut modules = PrefixTree::new();
    for module in reader.modules() {
        modules.add([module.to_text().as_str()], &node)?;
    }
    for path in reader.late_files() {
        modules.add([path, NOT_IN_TIME], &node)?;
    }
    Ok(channel.contribute(tags::MODULES, &modules.encode()?, HOUR)?)
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
