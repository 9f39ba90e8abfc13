//! Which rank is on which node, in the form that MPI libraries read.
//!
//! `(vector,(0,2,4))` puts four ranks on each of two nodes, from node 0 on. A block is (first node, nodes, ranks on
//! each). If ranks are left after the last block, a reader starts again at the first one.

use gantry_types::rank_set::RankSet;

use super::message::MAX_VALUE_BYTES;

/// The value of `PMI_process_mapping`. None: it would be too long, and programs use their hosts' names instead.
pub(super) fn build_mapping(layout: &[RankSet]) -> Option<String> {
    let mut blocks = join(layout);
    // Ranks in round-robin order: the last round may be short.
    if let Some((last, rounds)) = blocks.split_last()
        && let Some(first) = rounds.first()
        && rounds.iter().all(|block| block == first)
        && (last.first, last.ranks) == (first.first, first.ranks)
        && last.nodes <= first.nodes
    {
        blocks.truncate(1);
    }
    let blocks = blocks.iter().map(|Block { first, nodes, ranks }| format!(",({first},{nodes},{ranks})"));
    let text = format!("(vector{})", blocks.collect::<String>());
    (text.len() <= MAX_VALUE_BYTES).then_some(text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

/// The blocks in the order of ranks.
fn join(layout: &[RankSet]) -> Vec<Block> {
    let on_node = |(node, ranks): (u32, &RankSet)| {
        ranks.ranges().map(|range| (range.start().0, range.end().0, node)).collect::<Vec<_>>()
    };
    let mut runs: Vec<(u32, u32, u32)> = (0..).zip(layout).flat_map(on_node).collect();
    runs.sort_unstable();
    let mut blocks: Vec<Block> = Vec::new();
    for (first, last, node) in runs {
        let ranks = last - first + 1;
        match blocks.last_mut() {
            Some(block) if block.ranks == ranks && block.first + block.nodes == node => block.nodes += 1,
            _ => blocks.push(Block { first: node, nodes: 1, ranks }),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use gantry_types::id::Rank;

    use super::*;

    #[track_caller]
    fn check(layout: &[&str], expected: &str) {
        let layout: Vec<RankSet> = layout.iter().map(|ranks| ranks.parse().unwrap()).collect();
        let text = build_mapping(&layout).expect("it is short");
        assert_eq!(text, expected);
        // Expands the blocks as MPI libraries do.
        let size = layout.iter().map(RankSet::len).sum::<u64>();
        let numbers: Vec<u32> =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        let nodes = numbers.chunks(3).cycle().flat_map(|block| {
            (block[0]..block[0] + block[1]).flat_map(|node| vec![node; block[2] as usize]).collect::<Vec<_>>()
        });
        for (rank, node) in (0..u32::try_from(size).unwrap()).zip(nodes) {
            assert!(layout[node as usize].contains(Rank(rank)), "rank {rank} of {text}");
        }
    }

    #[test]
    fn every_rank_is_found_where_it_is() {
        check(&["0-3"], "(vector,(0,1,4))");
        check(&["0-3", "4-7", "8-11"], "(vector,(0,3,4))");
        check(&["0-1", "2-3", "4"], "(vector,(0,2,2),(2,1,1))");
        check(&["0,2,4,6", "1,3,5,7"], "(vector,(0,2,1))");
        check(&["0,2,4", "1,3"], "(vector,(0,2,1))");
        check(&["4-5", "0-3"], "(vector,(1,1,4),(0,1,2))");
        check(&["0-1", "", "2-3"], "(vector,(0,1,2),(2,1,2))");
    }

    #[test]
    fn one_that_is_too_long_is_none() {
        let layout: Vec<RankSet> = (0..300_u32)
            .map(|node| RankSet::from_range(Rank(node * (node + 1) / 2)..=Rank(node * (node + 3) / 2)))
            .collect();
        assert_eq!(build_mapping(&layout), None);
    }
}
