//! The arithmetic of the overlay's tree. The number of nodes and the radix determine all links, so no peer has to send
//! them.
//!
//! The tree is numbered as a heap. The frontend has position 0, node `n` has position `n + 1`, and the parent of
//! position `p` is `(p - 1) / radix`. So the children of a position are one range of nodes, and so is every level of a
//! subtree.

use std::iter;
use std::num::NonZeroU32;
use std::ops::Range;

use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;
use serde::{Deserialize, Serialize};

/// The shape of a tree: the number of nodes, and the most children of each node and of the frontend.
///
/// Node numbers are `0..nodes`. Check a number from a peer with [`Tree::contains`] first. A node outside the tree has
/// no children here, and is below no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tree {
    nodes: u32,
    radix: NonZeroU32,
}

impl Tree {
    /// A tree of `nodes` nodes. A radix of one is a chain.
    #[must_use]
    pub fn new(nodes: u32, radix: NonZeroU32) -> Self {
        Self { nodes, radix }
    }

    /// Number of nodes, without the frontend.
    #[must_use]
    pub fn nodes(self) -> u32 {
        self.nodes
    }

    /// The most children of a node or the frontend.
    #[must_use]
    pub fn radix(self) -> NonZeroU32 {
        self.radix
    }

    /// Whether `node` is in the tree.
    #[must_use]
    pub fn contains(self, node: u32) -> bool {
        node < self.nodes
    }

    /// The parent that `node` dials; `None` is the frontend.
    #[must_use]
    pub fn parent(self, node: u32) -> Option<u32> {
        // Position (node + 1) has the parent position node / radix.
        (node / self.radix.get()).checked_sub(1)
    }

    /// The nodes that dial the frontend.
    #[must_use]
    pub fn root_children(self) -> Range<u32> {
        self.range(self.children_of_position(0))
    }

    /// The nodes that dial `node`.
    #[must_use]
    pub fn children(self, node: u32) -> Range<u32> {
        self.range(self.children_of_position(position(node)))
    }

    /// The direct child of `from` (`None`: the frontend) on the way to `to`; `to` itself if it is that child.
    ///
    /// `None` when `to` is not below `from`.
    #[must_use]
    pub fn next_hop(self, from: Option<u32>, to: u32) -> Option<u32> {
        if !self.contains(to) || from.is_some_and(|from| from >= to) {
            return None;
        }
        if self.radix.get() == 1 {
            // A walk up a chain would take as many steps as it has nodes.
            return Some(from.map_or(0, |from| from + 1));
        }
        let mut hop = to;
        loop {
            let parent = self.parent(hop);
            if parent == from {
                return Some(hop);
            }
            // Parents have smaller numbers: past `from`, the walk cannot meet it any more.
            hop = parent.filter(|parent| from.is_none_or(|from| *parent > from))?;
        }
    }

    /// `node` and all nodes below it, which are lost with its link: one range of node numbers for each level, or one
    /// for all levels of a chain.
    ///
    /// No range is empty, and they rise.
    pub fn subtree(self, node: u32) -> impl Iterator<Item = Range<u32>> + use<> {
        let chain = self.radix.get() == 1;
        let first = position(node)..position(if chain { u32::MAX } else { node }) + 1;
        let levels = iter::successors(Some(first), move |level| {
            let below =
                self.children_of_position(level.start).start..self.children_of_position(level.end - 1).end;
            (!chain && below.start <= u64::from(self.nodes)).then_some(below)
        });
        levels.map(move |level| self.range(level)).take_while(|range| !range.is_empty())
    }

    /// As [`Tree::subtree`], as a set.
    #[must_use]
    pub fn find_subtree(self, node: NodeId) -> NodeSet {
        let mut nodes = NodeSet::default();
        for level in self.subtree(node.0) {
            nodes.insert_range(NodeId(level.start)..=NodeId(level.end - 1));
        }
        nodes
    }

    /// Number of links between the frontend and `node`: 1 for the frontend's own children.
    #[must_use]
    pub fn depth_of(self, node: u32) -> u32 {
        if self.radix.get() == 1 {
            return node.saturating_add(1);
        }
        let upwards = iter::successors(Some(node), |node| self.parent(*node));
        upwards.fold(0, |depth, _| depth + 1)
    }

    /// Number of links between the frontend and the farthest node; 0 without nodes.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.nodes.checked_sub(1).map_or(0, |last| self.depth_of(last))
    }

    /// Positions of the children of `position`, even beyond the number of nodes.
    fn children_of_position(self, position: u64) -> Range<u64> {
        // The largest position is 2^32 and the largest radix 2^32 - 1. Their product fits, but the end of a level may
        // not.
        let radix = u64::from(self.radix.get());
        let first = radix.saturating_mul(position).saturating_add(1);
        first..first.saturating_add(radix)
    }

    /// The node numbers of a range of positions, without those beyond the last node. Positions start at 1 here.
    fn range(self, positions: Range<u64>) -> Range<u32> {
        let node =
            |position: u64| u32::try_from(position.saturating_sub(1)).unwrap_or(u32::MAX).min(self.nodes);
        node(positions.start)..node(positions.end)
    }
}

fn position(node: u32) -> u64 {
    u64::from(node) + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(nodes: u32, radix: u32) -> Tree {
        Tree::new(nodes, NonZeroU32::new(radix).unwrap())
    }

    /// The same tree as a table: each position's parent.
    struct Naive(Vec<Option<usize>>);

    impl Naive {
        /// Fills the tree level by level: each new position goes below the first one with room.
        fn new(nodes: u32, radix: u32) -> Self {
            let mut parents = vec![None];
            let mut room = vec![radix];
            let mut first = 0;
            for _ in 0..nodes {
                while room[first] == 0 {
                    first += 1;
                }
                room[first] -= 1;
                parents.push(Some(first));
                room.push(radix);
            }
            Self(parents)
        }

        fn children(&self, of: usize) -> Vec<u32> {
            let below = (0..self.0.len()).filter(|position| self.0[*position] == Some(of));
            below.map(|position| u32::try_from(position - 1).unwrap()).collect()
        }

        /// From `position` up to the frontend, both included.
        fn way_up(&self, position: usize) -> Vec<usize> {
            iter::successors(Some(position), |at| self.0[*at]).collect()
        }

        fn next_hop(&self, from: usize, to: usize) -> Option<u32> {
            let way = self.way_up(to);
            let at = way.iter().position(|position| *position == from)?;
            at.checked_sub(1).map(|below| u32::try_from(way[below] - 1).unwrap())
        }

        fn subtree(&self, of: usize) -> Vec<u32> {
            let all = 1..self.0.len();
            let inside = all.filter(|position| self.way_up(*position).contains(&of));
            inside.map(|position| u32::try_from(position - 1).unwrap()).collect()
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_table(nodes in 0_u32..60, radix in 1_u32..9) {
            let (tree, naive) = (tree(nodes, radix), Naive::new(nodes, radix));
            prop_assert_eq!(tree.root_children().collect::<Vec<_>>(), naive.children(0));
            let mut depth = 0;
            for node in 0..nodes {
                let at = node as usize + 1;
                let parent = naive.0[at].unwrap();
                prop_assert_eq!(tree.parent(node).map_or(0, |parent| parent as usize + 1), parent);
                prop_assert_eq!(tree.children(node).collect::<Vec<_>>(), naive.children(at));
                prop_assert_eq!(tree.subtree(node).flatten().collect::<Vec<_>>(), naive.subtree(at));
                prop_assert_eq!(tree.depth_of(node) as usize, naive.way_up(at).len() - 1);
                depth = depth.max(tree.depth_of(node));
                prop_assert_eq!(tree.next_hop(None, node), naive.next_hop(0, at));
                for to in 0..nodes {
                    prop_assert_eq!(tree.next_hop(Some(node), to), naive.next_hop(at, to as usize + 1));
                }
            }
            prop_assert_eq!(tree.depth(), depth);
        }

        #[test]
        fn no_size_overflows(nodes: u32, radix in 1_u32.., node: u32, from: Option<u32>) {
            let tree = tree(nodes, radix);
            for child in [tree.children(node).next(), tree.children(node).last()].into_iter().flatten() {
                prop_assert_eq!(tree.parent(child), Some(node));
                prop_assert_eq!(tree.next_hop(Some(node), child), Some(child));
            }
            prop_assert!(tree.root_children().len() as u64 <= u64::from(radix));
            prop_assert!(tree.depth() >= u32::from(nodes > 0));
            if let Some(hop) = tree.next_hop(from, node) {
                prop_assert_eq!(tree.parent(hop), from);
                prop_assert!(tree.subtree(hop).any(|level| level.contains(&node)));
            }
            for level in tree.subtree(node) {
                prop_assert!(level.start < level.end && level.end <= nodes);
            }
        }
    }

    #[test]
    fn the_largest_trees_are_right_at_their_ends() {
        let last = u32::MAX - 1;
        let chain = tree(u32::MAX, 1);
        assert_eq!((chain.depth(), chain.parent(last)), (u32::MAX, Some(last - 1)));
        assert_eq!((chain.children(last), chain.children(last - 1)), (last + 1..last + 1, last..last + 1));
        assert_eq!(chain.next_hop(None, last), Some(0));
        assert_eq!(chain.next_hop(Some(5), last), Some(6));
        assert_eq!(chain.subtree(7).collect::<Vec<_>>(), vec![7..u32::MAX]);
        let flat = tree(u32::MAX, u32::MAX);
        assert_eq!((flat.depth(), flat.parent(last), flat.root_children()), (1, None, 0..u32::MAX));
        assert!(flat.children(last).is_empty() && flat.children(u32::MAX).is_empty());
        // One node more than all levels but the last hold: it belongs to the first child.
        let pairs = tree(u32::MAX, 2);
        assert_eq!(pairs.subtree(0).map(|level| u64::from(level.end - level.start)).sum::<u64>(), 1 << 31);
    }

    #[test]
    fn who_is_not_in_the_tree_is_below_nobody() {
        let tree = tree(10, 3);
        assert!(!tree.contains(10));
        assert_eq!((tree.next_hop(None, 10), tree.next_hop(Some(2), 11)), (None, None));
        assert!(tree.children(10).is_empty());
        assert_eq!(tree.subtree(10).count(), 0);
        assert_eq!((self::tree(0, 3).depth(), self::tree(0, 3).root_children()), (0, 0..0));
    }

    #[test]
    fn a_radix_of_zero_is_refused_from_the_wire() {
        let bytes = postcard::to_stdvec(&(5_u32, 0_u32)).unwrap();
        assert!(postcard::from_bytes::<Tree>(&bytes).is_err());
        let bytes = postcard::to_stdvec(&(5_u32, 2_u32)).unwrap();
        assert_eq!(postcard::from_bytes::<Tree>(&bytes).unwrap(), tree(5, 2));
    }
}
