//! Many sets of ranks as one.

use gantry_types::rank_set::RankSet;

/// All ranks of some sets: each is gone through as often as there are halves of them, not as often as there are sets.
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
