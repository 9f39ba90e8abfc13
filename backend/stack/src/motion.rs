//! Which ranks have moved since the last request.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use gantry_backend::types::rank_set::RankSet;
use gantry_backend::{LocalRank, RankState};
use gantry_stack::motion::Motion;

use crate::reader::Reader;
use crate::usage::{TICKS_PER_SECOND, Usage, bytes_moved};

/// Processor use below this many hundredths does not count as work: a look and occasional wakeups cost as much.
const IDLE_PERCENT: u64 = 2;

/// Fewer ticks than this are within the measuring error.
const FEWEST_TICKS: u64 = 2;

/// The remembered state of each process.
#[derive(Debug, Default)]
pub(crate) struct Motions(HashMap<i32, Counted>);

#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    first_thread: u64,
    all_threads: u64,
    bytes: u64,
}

impl Motions {
    /// The live ranks, grouped by their changes.
    pub(crate) fn ask(&mut self, ranks: &[LocalRank], reader: &mut Reader) -> BTreeMap<Vec<u8>, RankSet> {
        let mut found: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        let mut counted = HashMap::new();
        for rank in ranks.iter().filter(|rank| matches!(rank.state, RankState::Held | RankState::Running)) {
            let pid = rank.pid.get();
            let steady = reader.ask_steady(pid).map(|steady| u32::try_from(steady).unwrap_or(u32::MAX));
            let Some(now) = Counted::of(pid) else { continue };
            let motion = match self.0.get(&pid) {
                Some(before) => Motion { steady, ..now.since(before) },
                None => Motion::UNKNOWN,
            };
            counted.insert(pid, now);
            found.entry(motion.to_string().into_bytes()).or_default().insert(rank.rank);
        }
        self.0 = counted;
        found
    }
}

impl Counted {
    fn of(pid: i32) -> Option<Self> {
        Some(Self {
            at: Instant::now(),
            first_thread: Usage::of_first_thread(pid)?.ticks,
            all_threads: Usage::of_process(pid)?.ticks,
            // Without the permission to know it, the other figures decide.
            bytes: bytes_moved(pid).unwrap_or_default(),
        })
    }

    fn since(&self, before: &Self) -> Motion {
        let passed = self.at.saturating_duration_since(before.at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(TICKS_PER_SECOND) / 1000;
        let is_busy = |ticks: u64| {
            ticks >= FEWEST_TICKS && ticks.saturating_mul(100) >= passed.saturating_mul(IDLE_PERCENT)
        };
        let first = self.first_thread.saturating_sub(before.first_thread);
        let all = self.all_threads.saturating_sub(before.all_threads);
        Motion {
            steady: None,
            is_busy: is_busy(first),
            is_busy_elsewhere: is_busy(all.saturating_sub(first)),
            has_read_or_written: self.bytes != before.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_is_more_than_waking_up() {
        let at = Instant::now();
        let before = Counted { at, first_thread: 100, all_threads: 100, bytes: 7 };
        let check = |seconds, first: u64, all: u64, bytes, expected: &str| {
            let at = at + Duration::from_secs(seconds);
            let now = Counted { at, first_thread: 100 + first, all_threads: 100 + all, bytes };
            assert_eq!(now.since(&before).to_string(), format!("- {expected}"), "{now:?}");
        };
        check(10, 0, 0, 7, "");
        check(10, 19, 19, 7, "");
        check(10, 20, 20, 7, "c");
        check(10, 0, 20, 7, "t");
        check(10, 20, 40, 9, "cti");
        // One tick may pass even in a very short time.
        check(0, 1, 1, 7, "");
    }
}
