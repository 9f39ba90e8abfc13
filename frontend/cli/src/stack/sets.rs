//! Union of many sets of ranks.

use gantry_types::rank_set::RankSet;

/// The union of all sets, pairwise in halves: each rank is copied about log2(sets) times, not once per set.
pub(crate) fn unite<'s>(sets: impl Iterator<Item = &'s RankSet>) -> RankSet {
    let mut sets: Vec<RankSet> = sets.cloned().collect();
    while sets.len() > 1 {
        sets = sets
            .chunks(2)
            .map(|pair| match pair {
                [one, other] => one.union(other),
                rest => rest.first().cloned().unwrap_or_default(),
            })
            .collect();
    }
    sets.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_of_all_sets_are_there() {
        let check = |sets: &[&str], expected| {
            let sets: Vec<RankSet> = sets.iter().map(|set| set.parse().unwrap()).collect();
            assert_eq!(unite(sets.iter()).to_string(), expected);
        };
        check(&[], "");
        check(&["3"], "3");
        check(&["0,4", "1-2", "8", "4-5", "7"], "0-2,4-5,7-8");
    }
}
