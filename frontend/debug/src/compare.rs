//! Compares two sets of ranks and finds the pairs with different values.

use std::collections::BTreeMap;
use std::fmt;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::Serialize;

/// The value of each rank, as text.
pub type Values = BTreeMap<Rank, String>;

/// Why sets cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{one} ranks and {other} ranks cannot be paired: compare as many with as many, or one with some")]
pub struct Unpaired {
    /// The size of the first set.
    pub one: u64,
    /// The size of the second set.
    pub other: u64,
}

/// Pairs of ranks with the same two values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// The ranks of the first set, or its single rank.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub one: RankSet,
    /// The ranks of the second set.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub other: RankSet,
    /// The value of the ranks in the first set.
    pub one_value: String,
    /// The value of the ranks in the second set.
    pub other_value: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The number of pairs with equal values.
    pub same: u64,
    /// The pairs with different values.
    pub differing: Vec<Differing>,
    /// Ranks without a value.
    #[serde(serialize_with = "crate::sets::as_text")]
    pub without: RankSet,
}

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {} | [{}] {}", self.one, self.one_value, self.other, self.other_value)
    }
}

/// Compares two sets pair by pair. A set with a single rank is compared with every rank of the other set.
///
/// # Errors
/// The sets have different sizes.
pub fn compare(one: &RankSet, other: &RankSet, values: &Values) -> Result<Comparison, Unpaired> {
    let pairs: Vec<(Rank, Rank)> = match (one.len(), other.len()) {
        (1, _) => beside(one, other),
        (_, 1) => beside(other, one).into_iter().map(|(right, left)| (left, right)).collect(),
        (a, b) if a == b => one.iter().zip(other.iter()).collect(),
        (one, other) => return Err(Unpaired { one, other }),
    };
    let mut found = Comparison { same: 0, differing: Vec::new(), without: RankSet::new() };
    let mut differing: BTreeMap<(&str, &str), (RankSet, RankSet)> = BTreeMap::new();
    for (left, right) in pairs {
        match (values.get(&left), values.get(&right)) {
            (Some(a), Some(b)) if a == b => found.same += 1,
            (Some(a), Some(b)) => {
                let (lefts, rights) = differing.entry((a, b)).or_default();
                lefts.insert(left);
                rights.insert(right);
            }
            (a, b) => {
                let missing = [(a, left), (b, right)].into_iter().filter(|(value, _)| value.is_none());
                found.without.extend(missing.map(|(_, rank)| rank));
            }
        }
    }
    found.differing = differing
        .into_iter()
        .map(|((one_value, other_value), (one, other))| Differing {
            one,
            other,
            one_value: one_value.to_owned(),
            other_value: other_value.to_owned(),
        })
        .collect();
    found.differing.sort_by_key(|it| (it.other.len(), it.one.first(), it.other.first()));
    Ok(found)
}

/// Pairs one rank with each rank of a set.
fn beside(one: &RankSet, others: &RankSet) -> Vec<(Rank, Rank)> {
    one.first().map(|one| others.iter().map(|other| (one, other)).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_rank_is_found() {
        let values: Values = [(0, "5"), (1, "5"), (2, "7"), (3, "5")]
            .into_iter()
            .map(|(r, v)| (Rank(r), v.to_owned()))
            .collect();
        let check = |one: &str, other: &str, same, differing: &[&str], without: &str| {
            let found = compare(&one.parse().unwrap(), &other.parse().unwrap(), &values).unwrap();
            let texts: Vec<String> = found.differing.iter().map(Differing::to_string).collect();
            assert_eq!(
                (found.same, texts, found.without.to_string()),
                (same, differing.iter().map(|it| (*it).to_owned()).collect(), without.to_owned())
            );
        };
        check("0", "1-3", 2, &["[0] 5 | [2] 7"], "");
        check("1-3", "0", 2, &["[2] 7 | [0] 5"], "");
        check("0-1", "2-3", 1, &["[0] 5 | [2] 7"], "");
        check("0", "1,9", 1, &[], "9");
        let unpaired = compare(&"0-1".parse().unwrap(), &"0-2".parse().unwrap(), &values);
        assert_eq!(unpaired, Err(Unpaired { one: 2, other: 3 }));
    }
}
