//! Resource use of ranks since the last request, and the load of their machine.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use gantry_backend::types::rank_set::RankSet;
use gantry_backend::{LocalRank, RankState};
use gantry_stack::load::{Doing, Load};

use crate::usage::{self, TICKS_PER_SECOND, Usage};

/// The processor time of each process, and when it was read.
#[derive(Debug, Default)]
pub(crate) struct Loads(HashMap<i32, (Instant, u64)>);

impl Loads {
    /// All ranks, grouped by their load, in figures of `digits` digits.
    pub(crate) fn ask(&mut self, ranks: &[LocalRank], digits: u32) -> BTreeMap<Vec<u8>, RankSet> {
        let mut found: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        let mut counted = HashMap::new();
        for rank in ranks {
            let pid = rank.pid.get();
            let load = match (rank.state, Usage::of_process(pid)) {
                (state @ (RankState::Held | RankState::Running), Some(usage)) => {
                    let now = (Instant::now(), usage.ticks);
                    let cpu_percent = self.0.get(&pid).and_then(|before| percent(*before, now));
                    counted.insert(pid, now);
                    let doing = if state == RankState::Held { Doing::Held } else { usage.doing };
                    Load { doing, cpu_percent, memory_kib: usage.memory_kib, threads: usage.threads }
                }
                _ => Load::nothing(Doing::Ended),
            };
            found.entry(load.rounded(digits).to_string().into_bytes()).or_default().insert(rank.rank);
        }
        self.0 = counted;
        found
    }
}

/// Processor use in hundredths between two moments. None: too little time has passed.
fn percent(before: (Instant, u64), now: (Instant, u64)) -> Option<u64> {
    let passed = now.0.saturating_duration_since(before.0).as_millis();
    let passed = u64::try_from(passed).ok().filter(|passed| *passed > 0)?;
    let ticks = now.1.saturating_sub(before.1);
    Some((ticks.saturating_mul(100_000 / TICKS_PER_SECOND).saturating_add(passed / 2)) / passed)
}

/// The first rank of this node, with the load of the machine.
pub(crate) fn of_host(ranks: &[LocalRank]) -> BTreeMap<Vec<u8>, RankSet> {
    let first = ranks.iter().map(|rank| rank.rank).min();
    first
        .map(|first| (usage::of_host().to_string().into_bytes(), [first].into_iter().collect()))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn processor_time_becomes_hundredths() {
        let then = Instant::now();
        let check = |millis, ticks: u64, expected| {
            assert_eq!(percent((then, 50), (then + Duration::from_millis(millis), 50 + ticks)), expected);
        };
        check(1000, 100, Some(100));
        check(2000, 100, Some(50));
        check(500, 200, Some(400));
        check(1000, 0, Some(0));
        check(0, 3, None);
    }
}
