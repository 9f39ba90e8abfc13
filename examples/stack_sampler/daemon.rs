//! The daemon, on a node: reads the stacks of the ranks there whenever it is told to, and contributes one tree of them.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gantry_backend::types::filter::PrefixTree;
use gantry_backend::types::rank_set::RankSet;
use gantry_backend::{Backend, Error as BackendError, LocalRank, RankState};

use crate::stacks::read_stack;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument of this program where it is the daemon.
pub(crate) const ROLE: &str = "daemon";

/// The tag of orders on the channel, and of the trees that answer them.
pub(crate) const ORDERS: u32 = 1;
pub(crate) const STACKS: u32 = 2;

/// How many stacks are read at once, at most: readers mostly wait for the disk and for the kernel.
const MOST_READERS: usize = 8;

/// Everything that may wait takes a timeout. This one is for what comes at once, or when somebody presses Enter.
const HOUR: Duration = Duration::from_secs(3600);

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) struct Orders {
    /// How often each stack is read.
    pub(crate) samples: u32,
    /// From one sample to the next.
    pub(crate) every: Duration,
    /// The most functions of a path, from the outermost on.
    pub(crate) depth: u32,
}

impl Orders {
    /// The orders as a message.
    pub(crate) fn to_message(&self) -> String {
        format!("{} {} {}", self.samples, self.every.as_millis(), self.depth)
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(message).ok()?.split(' ');
        let samples = words.next()?.parse().ok()?;
        let every = Duration::from_millis(words.next()?.parse().ok()?);
        Some(Self { samples, every, depth: words.next()?.parse().ok()? })
    }
}

/// Follows orders until the session ends.
pub(crate) fn run() -> Result<()> {
    let backend = Backend::connect()?;
    let channel = backend.channel()?;
    loop {
        let message = match channel.receive(ORDERS, HOUR) {
            Ok(message) => message,
            Err(BackendError::TimedOut { .. }) => continue,
            Err(BackendError::Lost(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let orders = Orders::parse(&message).ok_or("orders are three numbers")?;
        let mut tree = PrefixTree::new();
        let started = Instant::now();
        for sample in 0..orders.samples {
            let next = started + orders.every * sample;
            #[expect(
                clippy::disallowed_methods,
                reason = "samples are to be some time apart: what is waited for is the time"
            )]
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            take_sample(&backend.ranks()?, orders.depth, &mut tree)?;
        }
        channel.contribute(STACKS, &tree.encode()?, HOUR)?;
    }
}

/// Reads each rank's stack once.
fn take_sample(ranks: &[LocalRank], depth: u32, tree: &mut PrefixTree) -> Result<()> {
    let live: Vec<&LocalRank> =
        ranks.iter().filter(|rank| matches!(rank.state, RankState::Held | RankState::Running)).collect();
    let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..live.len().min(MOST_READERS) {
            scope.spawn(|| {
                while let Some(rank) = live.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut path =
                        read_stack(rank.pid.get()).unwrap_or_else(|reason| vec![format!("({reason})")]);
                    path.truncate(depth as usize);
                    read.lock().map(|mut read| read.push((rank.rank, path))).ok();
                }
            });
        }
    });
    for (rank, path) in read.into_inner()? {
        tree.add(path.iter().map(String::as_str), &RankSet::from_range(rank..=rank))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let orders = Orders { samples: 3, every: Duration::from_millis(250), depth: 40 };
        assert_eq!(Orders::parse(orders.to_message().as_bytes()), Some(orders));
        for message in ["", "1 2", "1 x 3", "-1 2 3"] {
            assert_eq!(Orders::parse(message.as_bytes()), None, "{message:?}");
        }
    }
}
