//! The narrow tree of one stream of bulk data: which node feeds which. Pure.
//!
//! The stream passes through its target nodes. The frontend and each of them feed at most `radix` others. A radix of
//! two halves the bandwidth of a chain, but the last of ten thousand nodes is thirteen links away instead of ten
//! thousand. A larger radix only divides the bandwidth further.
//!
//! The frontend has links only to its own children in the tree of orders. So the narrow tree begins with those of them
//! that are targets. If none is, it begins with one that only forwards. Further nodes follow in the order of their
//! numbers. So every link of either tree goes from a smaller number to a larger one, and streams that wait for room on
//! each other's links never form a circle.
//!
//! Nodes that cannot dial or be dialled are *unlinked*: their parents in the tree of orders feed them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use gantry_shared::wire::message::{BulkSeat, Feeder};
use gantry_shared::wire::tree::Tree;
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;

/// The chosen widths of the trees, and the stall timeout of bulk data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Children of a node in the tree of orders.
    pub(super) radix: NonZeroU32,
    /// Children of a node in a tree of bulk data.
    pub(super) bulk_radix: u32,
    /// Time limit for a node to acknowledge bulk data.
    pub(super) stall: Duration,
}

/// The nodes to plan for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) tree: Tree,
    /// Where nodes listen, by number.
    pub(super) listen: &'a [Vec<SocketAddr>],
    /// How many others a node feeds at most. 0: all data goes along the tree of orders.
    pub(super) radix: u32,
    pub(super) unlinked: &'a NodeSet,
    pub(super) away: &'a NodeSet,
}

/// Which node feeds which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    tree: Tree,
    seats: BTreeMap<NodeId, BulkSeat>,
    /// The nodes that the frontend feeds.
    tops: Vec<NodeId>,
}

/// Builds a plan by which all of `targets` get the stream. All of them must be reachable.
pub(super) fn build_plan(site: Site<'_>, targets: &NodeSet) -> Plan {
    let cannot_link = |node: NodeId| {
        site.radix == 0
            || site.unlinked.contains(node)
            || site.listen.get(node.index()).is_none_or(Vec::is_empty)
    };
    let mut plan = Plan { tree: site.tree, seats: BTreeMap::new(), tops: Vec::new() };
    let mut linked = BTreeSet::new();
    // A node that is fed along the tree of orders needs all nodes above it.
    let mut waiting: Vec<NodeId> = targets.iter().collect();
    while let Some(node) = waiting.pop() {
        if !cannot_link(node) {
            linked.insert(node);
        } else if !plan.seats.contains_key(&node) {
            plan.seat(node, targets, Feeder::Parent);
            waiting.extend(site.tree.parent(node.0).map(NodeId));
        }
    }
    let is_top = |node: &NodeId| site.tree.parent(node.0).is_none();
    if let Some(first) = linked.first().filter(|first| !is_top(first)) {
        let above = site.tree.next_hop(None, first.0).into_iter().chain(site.tree.root_children());
        let mut able = above.map(NodeId).filter(|node| !cannot_link(*node) && !site.away.contains(*node));
        match able.next() {
            Some(relay) => drop(linked.insert(relay)),
            None => return build_plan(Site { radix: 0, ..site }, targets),
        }
    }
    plan.link(&linked.into_iter().collect::<Vec<_>>(), site, targets);
    plan.relay();
    plan
}

impl Plan {
    fn seat(&mut self, node: NodeId, targets: &NodeSet, feeder: Feeder) {
        let own = targets.contains(node);
        self.seats.insert(node, BulkSeat { node, own, feeder, children: Vec::new(), relayed: Vec::new() });
    }

    /// Places these nodes. The first ones are the frontend's own children.
    fn link(&mut self, linked: &[NodeId], site: Site<'_>, targets: &NodeSet) {
        let radix = site.radix as usize;
        let tops = linked.iter().take(radix).take_while(|node| site.tree.parent(node.0).is_none()).count();
        for (index, node) in linked.iter().enumerate() {
            let feeder = index.checked_sub(tops).and_then(|below| linked.get(below / radix));
            let seat = match feeder {
                None => Feeder::Parent,
                Some(feeder) => {
                    if let Some(seat) = self.seats.get_mut(feeder) {
                        seat.children.push(*node);
                    }
                    let listen = site.listen.get(feeder.index()).cloned().unwrap_or_default();
                    Feeder::Peer { node: *feeder, listen }
                }
            };
            self.seat(*node, targets, seat);
        }
    }

    /// Marks the nodes that feed along the tree of orders.
    fn relay(&mut self) {
        let along = self.seats.values().filter(|seat| seat.feeder == Feeder::Parent).map(|seat| seat.node);
        for node in along.collect::<Vec<_>>() {
            match self.tree.parent(node.0).and_then(|parent| self.seats.get_mut(&NodeId(parent))) {
                Some(parent) => parent.relayed.push(node),
                None => self.tops.push(node),
            }
        }
    }

    /// All nodes that take part.
    pub(super) fn members(&self) -> NodeSet {
        self.seats.keys().copied().collect()
    }

    /// The nodes that the frontend feeds.
    pub(super) fn tops(&self) -> &[NodeId] {
        &self.tops
    }

    /// The places of those `nodes` that take part.
    pub(super) fn seats_of(&self, nodes: &NodeSet) -> Vec<BulkSeat> {
        self.seats.values().filter(|seat| nodes.contains(seat.node)).cloned().collect()
    }

    /// Whether the stream is for the node itself.
    pub(super) fn is_target(&self, node: NodeId) -> bool {
        self.seats.get(&node).is_some_and(|seat| seat.own)
    }

    /// Whether `feeder` (none: the frontend) feeds `node`.
    pub(super) fn feeds(&self, feeder: Option<NodeId>, node: NodeId) -> bool {
        match feeder {
            None => self.tops.contains(&node),
            Some(feeder) => self
                .seats
                .get(&feeder)
                .is_some_and(|seat| seat.children.contains(&node) || seat.relayed.contains(&node)),
        }
    }

    /// `node` and all nodes that get the stream through it.
    pub(super) fn find_behind(&self, node: NodeId) -> NodeSet {
        let mut behind = NodeSet::default();
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            behind.insert(node);
            if let Some(seat) = self.seats.get(&node) {
                waiting.extend(seat.children.iter().chain(&seat.relayed));
            }
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use gantry_shared::wire::frame;
    use gantry_shared::wire::message::{BulkOrder, Down, Order, To};
    use gantry_types::id::RequestId;
    use proptest::prelude::*;

    use super::*;

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn listening(nodes: u32) -> Vec<Vec<SocketAddr>> {
        vec![vec!["[2001:db8::1]:65535".parse().unwrap(), "10.0.0.1:65535".parse().unwrap()]; nodes as usize]
    }

    /// Shows each seat as `node<feeder`, with `.` for the frontend and `^` for a parent in the tree of orders. Nodes
    /// that only forward are in brackets.
    fn drawn(nodes_count: u32, tree_radix: u32, radix: u32, unlinked: &str, targets: &str) -> String {
        let tree = Tree::new(nodes_count, NonZeroU32::new(tree_radix).unwrap());
        let (unlinked, away) = (nodes(unlinked), NodeSet::default());
        let listen = listening(nodes_count);
        let site = Site { tree, listen: &listen, radix, unlinked: &unlinked, away: &away };
        let plan = build_plan(site, &nodes(targets));
        let feeder = |seat: &BulkSeat| match &seat.feeder {
            Feeder::Peer { node, .. } => node.to_string(),
            Feeder::Parent => match tree.parent(seat.node.0) {
                None => ".".to_owned(),
                Some(parent) => format!("^{parent}"),
            },
        };
        let name =
            |seat: &BulkSeat| if seat.own { seat.node.to_string() } else { format!("({})", seat.node) };
        let seats = plan.seats.values().map(|seat| format!("{}<{}", name(seat), feeder(seat)));
        seats.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_narrow_tree_begins_with_the_frontends_own_children() {
        assert_eq!(drawn(8, 64, 2, "", "0-7"), "0<. 1<. 2<0 3<0 4<1 5<1 6<2 7<2");
        assert_eq!(drawn(8, 64, 1, "", "0-3"), "0<. 1<0 2<1 3<2");
        assert_eq!(drawn(8, 64, 9, "", "3,5"), "3<. 5<.");
        assert_eq!(drawn(30, 2, 3, "", "1,9,20-22"), "1<. 9<1 20<1 21<1 22<9");
    }

    #[test]
    fn where_no_child_of_the_frontend_wants_the_stream_one_passes_it_on() {
        // 9 is a child of 3, and 3 of 0.
        assert_eq!(drawn(30, 2, 2, "", "9,20-22"), "(0)<. 9<0 20<0 21<9 22<9");
        assert_eq!(drawn(30, 2, 2, "0", "9,20"), "(1)<. 9<1 20<1");
        // No node at the top can feed others over a link of its own.
        assert_eq!(drawn(30, 2, 2, "0-1", "9"), "(0)<. (3)<^0 9<^3");
    }

    #[test]
    fn who_cannot_be_linked_is_fed_along_the_tree_of_orders() {
        assert_eq!(drawn(8, 2, 2, "4", "0-5"), "0<. 1<. 2<0 3<0 4<^1 5<1");
        // Its parent is not a target, and forwards the stream.
        assert_eq!(drawn(8, 2, 2, "5", "0,5"), "0<. (1)<. 5<^1");
        assert_eq!(drawn(8, 64, 2, "0-7", "0-3"), "0<. 1<. 2<. 3<.");
        assert_eq!(drawn(8, 2, 0, "", "6"), "(0)<. (2)<^0 6<^2");
    }

    #[test]
    fn places_of_ten_thousand_nodes_fit_a_frame() {
        let count = 10_000;
        let tree = Tree::new(count, NonZeroU32::MIN);
        let (listen, none) = (listening(count), NodeSet::default());
        let site = Site { tree, listen: &listen, radix: 2, unlinked: &none, away: &none };
        let targets: NodeSet = (0..count).map(NodeId).collect();
        let seats = build_plan(site, &targets).seats_of(&targets);
        let order = Order::Bulk(BulkOrder::Link { stream: u64::MAX, seats });
        let down = Down { request: Some(RequestId(u64::MAX)), to: To::Nodes(targets), order };
        assert!(frame::encode_body(&down).is_ok());
    }

    proptest! {
        #[test]
        fn everybody_is_fed_once_from_above_and_nobody_feeds_too_many(
            count in 1_u32..80,
            tree_radix in 1_u32..9,
            radix in 0_u32..5,
            unlinked in proptest::collection::btree_set(0_u32..80, 0..20),
            targets in proptest::collection::btree_set(0_u32..80, 1..80),
        ) {
            let tree = Tree::new(count, NonZeroU32::new(tree_radix).unwrap());
            let targets: NodeSet = targets.into_iter().map(|node| NodeId(node % count)).collect();
            let unlinked: NodeSet = unlinked.into_iter().map(NodeId).collect();
            let (listen, away) = (listening(count), NodeSet::default());
            let plan = build_plan(Site { tree, listen: &listen, radix, unlinked: &unlinked, away: &away }, &targets);
            let mut fed = NodeSet::default();
            for top in plan.tops() {
                prop_assert!(tree.parent(top.0).is_none() && plan.feeds(None, *top));
                let behind = plan.find_behind(*top);
                prop_assert!(fed.is_disjoint(&behind), "fed twice");
                fed = fed.union(&behind);
            }
            prop_assert_eq!(&fed, &plan.members());
            prop_assert!(targets.difference(&fed).is_empty());
            let own: NodeSet = fed.iter().filter(|node| plan.is_target(*node)).collect();
            prop_assert_eq!(own, targets);
            for seat in plan.seats.values() {
                prop_assert!(seat.children.len() <= radix as usize);
                prop_assert!(seat.children.iter().chain(&seat.relayed).all(|below| *below > seat.node));
                prop_assert!(seat.children.is_empty() || !unlinked.contains(seat.node));
                prop_assert!(seat.relayed.iter().all(|below| tree.parent(below.0) == Some(seat.node.0)));
            }
        }
    }
}
