//! Random faults as data: a number determines a schedule, so that a failure can be reproduced.

use std::time::Duration;

/// The life of one app, and its faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The number from which the schedule is generated.
    pub seed: u64,
    /// Nodes, one to three.
    pub nodes: u32,
    /// Ranks per node, one or two.
    pub ranks_per_node: u32,
    /// Whether ranks are held first.
    pub hold: bool,
    /// Whether a session is opened and a daemon started.
    pub daemon: bool,
    /// Whether ranks end at once and leave children.
    pub leave: bool,
    /// In the order of their moments.
    pub strikes: Vec<Strike>,
    /// How the app ends, if the run gets that far.
    pub end: End,
}

/// How an app's tool ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order.
    Close,
    /// It returns from main without a word.
    Return,
    /// It is killed.
    Killed,
}

/// From when a strike's delay counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The launch was ordered.
    Launching,
    /// It has returned.
    Launched,
    /// A session and a daemon were ordered.
    Daemon,
    /// The release was ordered.
    Released,
    /// The end was ordered.
    Ending,
}

/// One fault of some processes at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// The moment from which `after` counts.
    pub moment: Moment,
    /// The delay.
    pub after: Duration,
    /// The targets; missing ones are skipped.
    pub victims: Vec<Victim>,
    /// The fault.
    pub blow: Blow,
}

/// Some of an app's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// The kind of process.
    pub kind: Kind,
    /// The index among these; it wraps around after the last one. None: all of them.
    pub which: Option<u64>,
}

/// The kind of an app's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The tool.
    Tool,
    /// Its guard.
    Guard,
    /// The process above a guard or an agent.
    Keeper,
    /// A node's agent.
    Agent,
    /// The process of a rank before it becomes its program.
    Shim,
    /// srun, with its helpers.
    Launcher,
    /// A daemon, or one of its children.
    Daemon,
    /// A rank, or one of its children.
    Rank,
}

/// All of them.
pub const KINDS: [Kind; 8] = [
    Kind::Tool,
    Kind::Guard,
    Kind::Keeper,
    Kind::Agent,
    Kind::Shim,
    Kind::Launcher,
    Kind::Daemon,
    Kind::Rank,
];

/// A fault of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT so much later.
    Stop(Duration),
}

const MOMENTS: [Moment; 5] =
    [Moment::Launching, Moment::Launched, Moment::Daemon, Moment::Released, Moment::Ending];

/// A generator of random numbers: splitmix64, by Sebastiano Vigna, who put it into the public domain.
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..below`.
    fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(all.len().try_into().unwrap_or(1));
        all[usize::try_from(index).unwrap_or(0)]
    }
}

impl Schedule {
    /// Generates the schedule of this number.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let nodes = 1 + u32::try_from(numbers.below(3)).unwrap_or(0);
        let ranks_per_node = 1 + u32::try_from(numbers.below(2)).unwrap_or(0);
        let (hold, daemon, leave) = (numbers.one_in(2), numbers.one_in(2), numbers.one_in(4));
        let count = 1 + numbers.below(3);
        let mut strikes: Vec<Strike> = (0..count).map(|_| Strike::random(&mut numbers)).collect();
        strikes.sort_by_key(|strike| (strike.moment, strike.after));
        let end = numbers.one_of(&[End::Close, End::Close, End::Return, End::Killed]);
        Self { seed, nodes, ranks_per_node, hold, daemon, leave, strikes, end }
    }

    /// Whether any process of this kind may be killed.
    #[must_use]
    pub fn kills(&self, kind: Kind) -> bool {
        let hits = |strike: &Strike| strike.victims.iter().any(|victim| victim.kind == kind);
        self.strikes.iter().any(|strike| strike.blow == Blow::Kill && hits(strike))
    }
}

impl Strike {
    fn random(numbers: &mut Numbers) -> Self {
        let moment = numbers.one_of(&MOMENTS);
        // Most events happen within milliseconds.
        let most_us = numbers.one_of(&[2_000, 20_000, 100_000, 400_000]);
        let after = Duration::from_micros(numbers.below(most_us));
        let blow = match numbers.one_in(3) {
            true => Blow::Stop(Duration::from_millis(20 + numbers.below(1500))),
            false => Blow::Kill,
        };
        let count = 1 + numbers.below(4);
        let victims = (0..count).map(|_| Victim {
            kind: numbers.one_of(&KINDS),
            which: if numbers.one_in(2) { None } else { Some(numbers.below(16)) },
        });
        Self { moment, after, victims: victims.collect(), blow }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_number_gives_the_same_schedule_and_others_give_others() {
        assert_eq!(Schedule::from_seed(7), Schedule::from_seed(7));
        let all: BTreeSet<String> = (0..1000)
            .map(|seed| format!("{:?}", Schedule { seed: 0, ..Schedule::from_seed(seed) }))
            .collect();
        assert!(all.len() > 990, "{}", all.len());
    }

    #[test]
    fn every_kind_is_killed_and_stopped_at_every_moment_in_some_schedule() {
        let mut seen = BTreeSet::new();
        for strike in (0..3000).flat_map(|seed| Schedule::from_seed(seed).strikes) {
            for victim in &strike.victims {
                seen.insert((victim.kind, strike.moment, strike.blow == Blow::Kill));
            }
        }
        assert_eq!(seen.len(), KINDS.len() * MOMENTS.len() * 2);
    }
}
