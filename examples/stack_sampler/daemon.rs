//! The daemon, on a node: reads the stacks of the ranks there, as often as it is told, and gives one tree of them.

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gantry_backend::{Backend, LocalRank, RankState};
use gantry_shared::filter::PrefixTree;
use gantry_shared::rank_set::RankSet;

use crate::stacks::read_stack;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The first argument of this program where it is the daemon.
pub(crate) const ROLE: &str = "daemon";

/// How many stacks are read at once, at most: readers mostly wait for the disk and for the kernel.
const MOST_READERS: usize = 8;

/// What to do.
pub(crate) struct Orders {
    /// How often each stack is read.
    pub(crate) samples: u32,
    /// From one sample to the next.
    pub(crate) every: Duration,
    /// The most functions of a path, from the outermost on.
    pub(crate) depth: u32,
}

impl Orders {
    /// The orders as the daemon's arguments.
    pub(crate) fn to_args(&self) -> [String; 4] {
        let every = self.every.as_millis().to_string();
        [ROLE.to_owned(), self.samples.to_string(), every, self.depth.to_string()]
    }

    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse().ok();
        Some(Self { samples: number()?, every: Duration::from_millis(number()?.into()), depth: number()? })
    }
}

/// What the daemon does with the arguments after its role.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> Result<()> {
    let orders = Orders::parse(args).ok_or("the daemon is started by the tool")?;
    let backend = Backend::connect()?;
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
    Ok(std::io::stdout().write_all(&tree.encode()?)?)
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
