//! Statistics of numbers from many ranks: minimum, maximum, mean, and the odd ranks.

use std::collections::HashMap;
use std::fmt;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::Serialize;

/// The maximum number of elements that are read per rank.
const MAX_ELEMENTS: usize = 1 << 20;

/// A rank is odd if its mean is this many median distances away from the median of all means.
const FAR: f64 = 8.0;

/// With fewer ranks no rank is odd.
const FEW: usize = 3;

/// An extreme value and its place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extreme {
    /// The number.
    pub value: f64,
    /// A rank with that value.
    pub rank: Rank,
    /// The index in that rank's array. `None`: the value is not an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<usize>,
}

/// A statistic of numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistic {
    /// The count of the numbers.
    pub count: u64,
    /// The minimum.
    pub min: Extreme,
    /// The maximum.
    pub max: Extreme,
    /// The mean of all numbers.
    pub mean: f64,
    /// Ranks whose numbers differ from those of the other ranks.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub odd: RankSet,
}

impl fmt::Display for Extreme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {}", self.value, self.rank)?;
        match self.element {
            Some(element) => write!(f, ", element {element})"),
            None => f.write_str(")"),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "min {}, max {}, mean {}", self.min, self.max, self.mean)?;
        if self.odd.is_empty() { Ok(()) } else { write!(f, ", odd ranks {}", self.odd) }
    }
}

/// The numbers that a rank printed.
#[derive(Debug, Clone, PartialEq)]
struct Numbers {
    values: Vec<f64>,
    is_array: bool,
}

/// Computes the statistic of `print` output, rank by rank. `None`: the output is not numeric, or it is the same on all
/// ranks.
pub fn describe<'t>(said: impl IntoIterator<Item = (&'t str, &'t RankSet)>) -> Option<Statistic> {
    // Ranks in different states come apart, also when they print the same.
    let mut kinds: Vec<(Numbers, RankSet)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (said, ranks) in said {
        let value = value_of(said)?.trim();
        let place = *places.entry(value).or_insert(kinds.len());
        match kinds.get_mut(place) {
            Some((_, all)) => *all = all.union(ranks),
            None => kinds.push((parse(value)?, ranks.clone())),
        }
    }
    let is_plain = kinds.iter().all(|(numbers, _)| !numbers.is_array);
    if kinds.is_empty() || (is_plain && kinds.len() == 1) {
        return None;
    }
    let mut least: Option<Extreme> = None;
    let mut most: Option<Extreme> = None;
    let (mut sum, mut count) = (0.0, 0_u64);
    for (numbers, ranks) in &kinds {
        let Some(rank) = ranks.first() else { continue };
        for (at, value) in numbers.values.iter().copied().enumerate() {
            let here = Extreme { value, rank, element: numbers.is_array.then_some(at) };
            if least.is_none_or(|least| value < least.value) {
                least = Some(here);
            }
            if most.is_none_or(|most| value > most.value) {
                most = Some(here);
            }
            sum += value * ranks.len() as f64;
            count += ranks.len();
        }
    }
    Some(Statistic { count, min: least?, max: most?, mean: sum / count as f64, odd: odd_ranks(&kinds) })
}

/// Returns the ranks whose numbers differ from the most frequent ones. If all ranks differ, returns the ranks whose
/// mean is far from the other means.
fn odd_ranks(kinds: &[(Numbers, RankSet)]) -> RankSet {
    let all = kinds.iter().fold(RankSet::new(), |all, (_, ranks)| all.union(ranks));
    if all.len() < FEW as u64 {
        return RankSet::new();
    }
    if let Some((_, most)) = kinds.iter().find(|(_, ranks)| ranks.len() * 2 > all.len()) {
        return all.difference(most);
    }
    let mean = |numbers: &Numbers| numbers.values.iter().sum::<f64>() / numbers.values.len().max(1) as f64;
    let means: Vec<(f64, Rank)> = kinds
        .iter()
        .flat_map(|(numbers, ranks)| {
            let mean = mean(numbers);
            ranks.iter().map(move |rank| (mean, rank))
        })
        .collect();
    let middle = median(means.iter().map(|(mean, _)| *mean));
    let spread = median(means.iter().map(|(mean, _)| (mean - middle).abs()));
    let is_far = |mean: f64| spread > 0.0 && (mean - middle).abs() > FAR * spread;
    means.iter().filter(|(mean, _)| is_far(*mean)).map(|(_, rank)| *rank).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The value that `print` shows, without its number in gdb's history. `None`: the text is something else.
#[must_use]
pub fn value_of(said: &str) -> Option<&str> {
    let (name, value) = said.trim().split_once(" = ")?;
    name.strip_prefix('$')?.bytes().all(|digit| digit.is_ascii_digit()).then_some(value)
}

/// Parses the numbers of a value. `None`: the value contains anything else.
fn parse(value: &str) -> Option<Numbers> {
    if !value.starts_with('{') {
        return Some(Numbers { values: vec![number(value)?], is_array: false });
    }
    let mut values: Vec<f64> = Vec::new();
    for element in value.split([',', '{', '}']).map(str::trim).filter(|element| !element.is_empty()) {
        // gdb elides the rest.
        let element = element.trim_end_matches('.').trim();
        if element.is_empty() {
            continue;
        }
        let (text, times) = match element.split_once(" <repeats ") {
            Some((text, times)) => (text, times.strip_suffix(" times>")?.parse().ok()?),
            None => (element, 1),
        };
        if values.len().saturating_add(times) > MAX_ELEMENTS {
            return None;
        }
        values.extend(std::iter::repeat_n(number(text)?, times));
    }
    (!values.is_empty()).then_some(Numbers { values, is_array: true })
}

fn number(text: &str) -> Option<f64> {
    let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e');
    text.bytes().all(is_number).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(said: &[(&str, &str)], expected: Option<&str>) {
        let ranks: Vec<RankSet> = said.iter().map(|(_, ranks)| ranks.parse().unwrap()).collect();
        let found = describe(said.iter().map(|(said, _)| *said).zip(&ranks));
        assert_eq!(found.map(|it| it.to_string()).as_deref(), expected, "{said:?}");
    }

    #[test]
    fn numbers_have_a_least_a_greatest_and_a_mean() {
        check(&[("$1 = 1\n", "0"), ("$1 = 3\n", "1")], Some("min 1 (rank 0), max 3 (rank 1), mean 2"));
        check(
            &[("$1 = {1, 2, 6}\n", "0")],
            Some("min 1 (rank 0, element 0), max 6 (rank 0, element 2), mean 3"),
        );
        check(
            &[("$2 = {{1, 2}, {-1 <repeats 2 times>}}", "4-5")],
            Some("min -1 (rank 4, element 2), max 2 (rank 4, element 1), mean 0.25"),
        );
        check(
            &[("$2 = {0 <repeats 200 times>...}", "0")],
            Some("min 0 (rank 0, element 0), max 0 (rank 0, element 0), mean 0"),
        );
    }

    #[test]
    fn odd_ranks_are_named() {
        check(
            &[("$1 = 5", "0-2,4-63"), ("$1 = 7", "3")],
            Some("min 5 (rank 0), max 7 (rank 3), mean 5.03125, odd ranks 3"),
        );
        let said = [("$1 = 1", "0"), ("$1 = 2", "1"), ("$1 = 3", "2"), ("$1 = 2.5", "3"), ("$1 = 900", "4")];
        check(&said, Some("min 1 (rank 0), max 900 (rank 4), mean 181.7, odd ranks 4"));
        check(&said[..4], Some("min 1 (rank 0), max 3 (rank 2), mean 2.125"));
    }

    #[test]
    fn ranks_that_print_the_same_in_different_places_are_not_odd() {
        check(&[("$1 = 5", "0,2"), ("$1 = 5", "1"), ("$2 = 5", "3")], None);
        check(
            &[("$1 = 5", "0"), ("$1 = 5", "1"), ("$1 = 7", "2")],
            Some("min 5 (rank 0), max 7 (rank 2), mean 5.666666666666667, odd ranks 2"),
        );
        check(
            &[("$1 = {5}", "0,2"), ("$1 = {5}", "1,3")],
            Some("min 5 (rank 0, element 0), max 5 (rank 0, element 0), mean 5"),
        );
    }

    #[test]
    fn what_is_no_number_has_no_statistic() {
        for said in ["$1 = 5", "$1 = \"a\"", "x", "$1 = {a = 1}", "$1 = 0x5", "$1 = {}", "$x = 1"] {
            check(&[(said, "0-3")], None);
        }
        check(&[("$1 = 1", "0"), ("$1 = <optimized out>", "1")], None);
        check(&[("$1 = {1 <repeats 99999999999 times>}", "0")], None);
        check(&[], None);
    }
}
