//! What a daemon is to read, and how often.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

/// The most samples of one answer.
pub const MAX_SAMPLES: u32 = 10_000;

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    /// How often each stack is read.
    pub samples: u32,
    /// From one sample to the next.
    pub every: Duration,
    /// All threads of each rank, not only the first one.
    pub threads: bool,
    /// Only these ranks; none: all.
    pub ranks: Option<RankSet>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { samples: 1, every: Duration::from_millis(100), threads: false, ranks: None }
    }
}

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = if self.threads { "threads" } else { "ranks" };
        write!(f, "{} {} {scope}", self.samples, self.every.as_millis())?;
        self.ranks.as_ref().map_or(Ok(()), |ranks| write!(f, " {ranks}"))
    }
}

impl FromStr for Orders {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "orders are: SAMPLES MILLISECONDS ranks|threads [RANKS]";
        let mut words = text.split(' ');
        let samples: u32 = words.next().and_then(|word| word.parse().ok()).ok_or(FORM)?;
        let every = words.next().and_then(|word| word.parse().ok()).ok_or(FORM)?;
        let threads = match words.next() {
            Some("threads") => true,
            Some("ranks") => false,
            _ => return Err(FORM),
        };
        let ranks = words.next().map(|word| word.parse().map_err(|_| FORM)).transpose()?;
        match (1..=MAX_SAMPLES).contains(&samples) && words.next().is_none() {
            true => Ok(Self { samples, every: Duration::from_millis(every), threads, ranks }),
            false => Err(FORM),
        }
    }
}

/// One sample of a rank, as a set of a prefix tree has it: sets have no counts, so each sample has a number of its own.
/// None: there are more than a set has numbers for.
#[must_use]
pub fn sample_number(rank: Rank, samples: u32, sample: u32) -> Option<Rank> {
    rank.0.checked_mul(samples)?.checked_add(sample).map(Rank)
}

/// The ranks that a set of samples has.
#[must_use]
pub fn ranks_of(numbers: &RankSet, samples: u32) -> RankSet {
    let samples = samples.max(1);
    let mut ranks = RankSet::new();
    for range in numbers.ranges() {
        ranks.insert_range(Rank(range.start().0 / samples)..=Rank(range.end().0 / samples));
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let all = Orders::default();
        assert_eq!(all.to_string().parse(), Ok(all));
        let some = Orders {
            samples: 3,
            every: Duration::from_millis(250),
            threads: true,
            ranks: Some("0-3,7".parse().unwrap()),
        };
        assert_eq!(some.to_string(), "3 250 threads 0-3,7");
        assert_eq!(some.to_string().parse(), Ok(some));
        for bad in ["", "1 2", "1 x ranks", "0 1 ranks", "1 1 ranks 3-1", "1 1 ranks 0 0", "20000 1 ranks"] {
            assert!(bad.parse::<Orders>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn samples_have_the_rank_in_their_number() {
        let numbers: RankSet = [(0, 0), (0, 2), (5, 1), (6, 0)]
            .into_iter()
            .map(|(rank, sample)| sample_number(Rank(rank), 3, sample).unwrap())
            .collect();
        assert_eq!(ranks_of(&numbers, 3), "0,5-6".parse().unwrap());
        assert_eq!(numbers.len(), 4);
        assert_eq!(sample_number(Rank(u32::MAX), 2, 0), None);
    }
}
