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

/// The most busy threads of a process that are sampled. A process with more of them counts as working.
const MOST_SAMPLED: usize = 256;

/// The remembered state of each process.
#[derive(Debug, Default)]
pub(crate) struct Motions(HashMap<i32, Counted>);

#[derive(Debug, Clone)]
struct Counted {
    at: Instant,
    first_thread: u64,
    /// Also of threads that have ended.
    all_threads: u64,
    /// Of each thread beside the first one.
    others: HashMap<i32, u64>,
    bytes: u64,
}

impl Motions {
    /// The live ranks, grouped by their changes.
    pub(crate) fn ask(&mut self, ranks: &[LocalRank], reader: &mut Reader) -> BTreeMap<Vec<u8>, RankSet> {
        let mut found: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        let mut counted = HashMap::new();
        for rank in ranks.iter().filter(|rank| matches!(rank.state, RankState::Held | RankState::Running)) {
            let pid = rank.pid.get();
            let same = reader.ask_steady(pid);
            let Some(now) = Counted::of(pid) else { continue };
            let before = self.0.get(&pid);
            let busy = now.busy_threads(before);
            let polling = busy.iter().filter(|(thread, _)| reader.ask_polls(pid, *thread));
            let polling = polling.map(|(_, ticks)| ticks).sum();
            reader.watch(pid, &busy.iter().map(|(thread, _)| *thread).collect::<Vec<i32>>());
            let motion = before.map_or(Motion::UNKNOWN, |before| Motion {
                steady: same.map(|same| u32::try_from(same.frames).unwrap_or(u32::MAX)),
                has_other_variables: same.is_some_and(|same| !same.variables),
                ..now.since(before, polling)
            });
            counted.insert(pid, now);
            found.entry(motion.to_string().into_bytes()).or_default().insert(rank.rank);
        }
        self.0 = counted;
        found
    }
}

impl Counted {
    fn of(pid: i32) -> Option<Self> {
        let all = Usage::of_process(pid)?;
        let others = if all.threads > 1 {
            Usage::of_other_threads(pid).map(|(thread, usage)| (thread, usage.ticks)).collect()
        } else {
            HashMap::new()
        };
        Some(Self {
            at: Instant::now(),
            first_thread: Usage::of_first_thread(pid)?.ticks,
            all_threads: all.ticks,
            others,
            // Without the permission to know it, the other figures decide.
            bytes: bytes_moved(pid).unwrap_or_default(),
        })
    }

    /// What has changed, if the threads beside the first one have used so many ticks for nothing but polling.
    fn since(&self, before: &Self, polling: u64) -> Motion {
        let first = self.first_thread.saturating_sub(before.first_thread);
        let all = self.all_threads.saturating_sub(before.all_threads);
        let others = all.saturating_sub(first).saturating_sub(polling);
        Motion {
            steady: None,
            has_other_variables: false,
            is_busy: self.is_busy(Some(before), first),
            is_busy_elsewhere: self.is_busy(Some(before), others),
            has_read_or_written: self.bytes != before.bytes,
        }
    }

    /// The busiest threads beside the first one, with their ticks. All others together are not busy.
    fn busy_threads(&self, before: Option<&Self>) -> Vec<(i32, u64)> {
        let used = |(thread, ticks): (&i32, &u64)| {
            let known = before.and_then(|before| before.others.get(thread)).copied();
            (*thread, ticks.saturating_sub(known.unwrap_or_default()))
        };
        let mut threads: Vec<(i32, u64)> = self.others.iter().map(used).collect();
        threads.sort_unstable_by_key(|(thread, ticks)| (std::cmp::Reverse(*ticks), *thread));
        let mut left: u64 = threads.iter().map(|(_, ticks)| ticks).sum();
        let is_needed = |(_, ticks): &(i32, u64)| {
            let is_needed = self.is_busy(before, left);
            left = left.saturating_sub(*ticks);
            is_needed
        };
        threads.into_iter().take(MOST_SAMPLED).take_while(is_needed).collect()
    }

    fn is_busy(&self, before: Option<&Self>, ticks: u64) -> bool {
        let passed = before.map_or(0, |before| self.at.saturating_duration_since(before.at).as_millis());
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(TICKS_PER_SECOND) / 1000;
        ticks >= FEWEST_TICKS && ticks.saturating_mul(100) >= passed.saturating_mul(IDLE_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn counted(at: Instant, first: u64, all: u64, bytes: u64) -> Counted {
        Counted { at, first_thread: first, all_threads: all, others: HashMap::new(), bytes }
    }

    #[test]
    fn work_is_more_than_waking_up_and_polling() {
        let at = Instant::now();
        let before = counted(at, 100, 100, 7);
        let check = |seconds, first: u64, all: u64, polling, bytes, expected: &str| {
            let now = counted(at + Duration::from_secs(seconds), 100 + first, 100 + all, bytes);
            assert_eq!(now.since(&before, polling).to_string(), format!("- {expected}"), "{now:?}");
        };
        check(10, 0, 0, 0, 7, "");
        check(10, 19, 19, 0, 7, "");
        check(10, 20, 20, 0, 7, "c");
        check(10, 0, 20, 0, 7, "t");
        check(10, 0, 500, 481, 7, "");
        check(10, 0, 500, 480, 7, "t");
        check(10, 20, 40, 0, 9, "cti");
        // One tick may pass even in a very short time.
        check(0, 1, 1, 0, 7, "");
    }

    #[test]
    fn so_many_threads_are_sampled_that_the_others_are_idle() {
        let at = Instant::now();
        let before = Counted { others: [(2, 900), (3, 50)].into(), ..counted(at, 0, 950, 0) };
        let check = |others: &[(i32, u64)], before, expected: &[(i32, u64)]| {
            let others = others.iter().copied().collect();
            let now = Counted { others, ..counted(at + Duration::from_secs(10), 0, 0, 0) };
            assert_eq!(now.busy_threads(before), expected);
        };
        check(&[(2, 905), (3, 64)], Some(&before), &[]);
        check(&[(2, 910), (3, 64)], Some(&before), &[(3, 14)]);
        check(&[(2, 910), (3, 64), (4, 80)], Some(&before), &[(4, 80), (3, 14)]);
        // At first, all that threads have used since they began counts.
        check(&[(2, 0), (3, 1), (4, 7)], None, &[(4, 7)]);
    }
}
