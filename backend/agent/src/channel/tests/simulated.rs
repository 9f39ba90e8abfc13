//! Thousands of hubs in one process, joined by simulated links with a latency and a speed of their own clock.
//!
//! The tests measure what operations cost, in time and bytes, as the tree grows. No result depends on this machine's
//! speed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Instant;

use gantry_shared::wire::frame::encode_body;
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::tree::Tree;
use gantry_types::filter::{Filter, PrefixTree};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use super::*;

/// The latency of a link in one direction.
const LATENCY_NS: u64 = 50_000;
/// A gigabyte a second.
const NS_OF_BYTE: u64 = 1;
const RADIX: u32 = 64;
/// How many bytes of a part one credit is for.
const MORE: u32 = 64 * 1024;

/// A message on a link: when it arrives, its place in the order of sending, and its index.
type Flying = Reverse<(u64, u64, usize)>;

enum Travels {
    Down(u32, ChannelOrder),
    Up(u32, ChannelNotice),
    /// Credit for a part of this node, or of one below it.
    Credit(u32, u32),
    /// The next bytes of a part of this node.
    Rest(u32, u32, Vec<u8>),
}

/// A tree of agents with a daemon each, and their frontend.
struct Overlay {
    tree: Tree,
    hubs: Vec<Hub>,
    heard: Vec<mpsc::UnboundedReceiver<ToDaemon>>,
    behind: Vec<NodeSet>,
    /// When the link between a node and its parent is free again, in each direction.
    free: Vec<[u64; 2]>,
    /// Bytes that the link has carried, in each direction.
    carried: Vec<[u64; 2]>,
    flying: BinaryHeap<Flying>,
    travelling: Vec<Option<Travels>>,
    now: u64,
}

/// A part that has reached the frontend.
struct Came {
    /// The child of the frontend that it came by, and its number.
    key: (u32, u32),
    total: u64,
    bytes: Vec<u8>,
}

/// What an operation cost.
struct Cost {
    /// By the clock of the links.
    time_ns: u64,
    /// The most bytes that a link has carried, in both directions together.
    busiest: u64,
    all: u64,
    came: Vec<Came>,
}

impl Overlay {
    fn new(nodes: u32) -> Self {
        let tree = Tree::new(nodes, NonZeroU32::new(RADIX).unwrap());
        let (mut hubs, mut heard, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            let mut subtree = NodeSet::default();
            tree.subtree(node)
                .for_each(|level| subtree.insert_range(NodeId(level.start)..=NodeId(level.end - 1)));
            let mut hub = Hub::new(NodeId(node), tree.depth() - tree.depth_of(node), subtree.clone());
            hub.expect(DAEMON, SESSION);
            heard.push(hub.open(DAEMON).unwrap());
            hubs.push(hub);
            behind.push(subtree);
        }
        let links = vec![[0; 2]; hubs.len()];
        Self {
            tree,
            hubs,
            heard,
            behind,
            free: links.clone(),
            carried: links,
            flying: BinaryHeap::new(),
            travelling: Vec::new(),
            now: 0,
        }
    }

    /// Sends over the link between a node and its parent.
    fn send(&mut self, node: u32, what: Travels) {
        let flow = |part| FlowId::Part { operation: 1, part };
        let (way, bytes) = match &what {
            Travels::Down(_, order) => (0, encode_body(order).unwrap().len()),
            Travels::Up(_, notice) => (1, encode_body(notice).unwrap().len()),
            Travels::Credit(_, part) => (0, encode_body(&(flow(*part), Word::Credit(MORE))).unwrap().len()),
            Travels::Rest(_, part, bytes) => {
                (1, encode_body(&(flow(*part), Word::data(bytes.clone()))).unwrap().len())
            }
        };
        let (bytes, link) = (bytes as u64, node as usize);
        self.carried[link][way] += bytes;
        let sent = self.free[link][way].max(self.now) + bytes * NS_OF_BYTE;
        self.free[link][way] = sent;
        self.flying.push(Reverse((sent + LATENCY_NS, self.travelling.len() as u64, self.travelling.len())));
        self.travelling.push(Some(what));
    }

    fn contribute(&mut self, part: impl Fn(u32) -> Vec<u8>) {
        for (node, hub) in (0..).zip(&mut self.hubs) {
            let bytes = part(node);
            let total = bytes.len() as u64;
            hub.hear(DAEMON, FromDaemon::Part { tag: 9, round: 0, total, bytes: Blob(bytes) }).unwrap();
        }
    }

    /// Runs an operation from the frontend's order to the last notice.
    fn run(&mut self, order: &ChannelOrder) -> Cost {
        let mut came = Vec::new();
        self.tree.root_children().for_each(|node| self.send(node, Travels::Down(node, order.clone())));
        while let Some(Reverse((time, _, at))) = self.flying.pop() {
            self.now = time;
            match self.travelling[at].take().unwrap() {
                Travels::Down(node, order) => {
                    let children = self.tree.children(node);
                    children.for_each(|child| self.send(child, Travels::Down(child, order.clone())));
                    self.hubs[node as usize].obey(None, order, true, &NodeSet::default());
                    self.go_up(node);
                }
                Travels::Credit(node, part) => {
                    self.hubs[node as usize].earn(FlowId::Part { operation: 1, part }, MORE);
                    self.go_up(node);
                }
                Travels::Up(from, notice) => match self.tree.parent(from) {
                    None => {
                        let ChannelNotice::Part { part, total, bytes, .. } = notice else {
                            panic!("{notice:?}")
                        };
                        came.push(Came { key: (from, part), total, bytes: bytes.0 });
                        self.give_credit(came.last().unwrap());
                    }
                    Some(node) => {
                        let passed = self.hubs[node as usize].rise(NodeId(from), notice);
                        if let Some(notice) = passed {
                            self.send(node, Travels::Up(node, notice));
                        }
                        self.go_up(node);
                    }
                },
                Travels::Rest(from, part, bytes) => match self.tree.parent(from) {
                    None => {
                        let part = came.iter_mut().find(|it: &&mut Came| it.key == (from, part)).unwrap();
                        part.bytes.extend(bytes);
                        self.give_credit(part);
                    }
                    Some(node) => {
                        self.hubs[node as usize].feed(NodeId(from), 1, part, bytes);
                        self.go_up(node);
                    }
                },
            }
        }
        let busiest = self.carried.iter().map(|[down, up]| down + up).max().unwrap();
        Cost { time_ns: self.now, busiest, all: self.carried.iter().flatten().sum(), came }
    }

    /// The frontend gives credit for the rest of a part.
    fn give_credit(&mut self, part: &Came) {
        if (part.bytes.len() as u64) < part.total {
            self.send(part.key.0, Travels::Credit(part.key.0, part.key.1));
        }
    }

    fn go_up(&mut self, node: u32) {
        for effect in self.hubs[node as usize].take_effects() {
            match effect {
                Effect::Up(notice) => self.send(node, Travels::Up(node, notice)),
                Effect::Credit(to, FlowId::Part { part, .. }, bytes) => {
                    // The simulation gives credit in portions of its own.
                    assert_eq!(bytes % MORE, 0);
                    (0..bytes / MORE).for_each(|_| self.send(to.0, Travels::Credit(to.0, part)));
                }
                Effect::Say(FlowId::Part { part, .. }, Word::Data { bytes, .. }) => {
                    self.send(node, Travels::Rest(node, part, bytes.0));
                }
                Effect::Merge(operation, batch) => {
                    self.hubs[node as usize].batch_merged(operation, batch.merge());
                    self.go_up(node);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

const TREES: [u32; 3] = [64, 1024, 16_384];

fn collect(nodes: u32, filter: Option<Filter>) -> ChannelOrder {
    ChannelOrder::Collect { session: SESSION, operation: 1, tag: 9, of: members(0..nodes), filter }
}

/// Latency times depth, there and back, and the bytes of the busiest link.
fn model_ns(overlay: &Overlay, bytes: u64) -> u64 {
    2 * u64::from(overlay.tree.depth()) * LATENCY_NS + bytes * NS_OF_BYTE
}

/// A row of the bench's table.
fn report(what: &str, nodes: u32, cost: &Cost, model_ns: u64, begun: Instant) {
    let (time, model) = (cost.time_ns as f64 / 1e3, model_ns as f64 / 1e3);
    let ratio = time / model;
    let (busiest, all, here) = (cost.busiest, cost.all, begun.elapsed());
    println!(
        "| {what} | {nodes} | {time:.1} us | {model:.1} us | {ratio:.3} | {busiest} | {all} | {here:.1?} |"
    );
}

#[test]
fn a_sum_of_sixteen_thousand_costs_every_link_what_one_of_sixty_four_does() {
    for nodes in TREES {
        let mut overlay = Overlay::new(nodes);
        overlay.contribute(|node| number(i64::from(node)));
        let begun = Instant::now();
        let cost = overlay.run(&collect(nodes, Some(Filter::Sum)));
        let model = model_ns(&overlay, cost.busiest);
        report("sum of 8 bytes", nodes, &cost, model, begun);
        assert!(cost.busiest < 100, "{} bytes on a link of {nodes} nodes", cost.busiest);
        assert!(cost.time_ns <= model + u64::from(overlay.tree.depth()) * cost.busiest, "{}", cost.time_ns);
        assert_eq!(cost.came.len(), overlay.tree.root_children().len(), "one part from each child");
        let mut sum = Filter::Sum.start().unwrap();
        cost.came.iter().for_each(|part| sum.take(&part.bytes).unwrap());
        let expected = i64::from(nodes) * i64::from(nodes - 1) / 2;
        assert_eq!(Numbers::decode(&sum.give().unwrap()).unwrap(), Some(Numbers::Integers(vec![expected])));
    }
}

#[test]
fn a_gather_costs_what_is_gathered_and_little_around_it() {
    const BYTES: usize = 1024;
    /// Bytes around a contribution: numbers, member, lengths.
    const AROUND: u64 = 24;
    for nodes in TREES {
        let mut overlay = Overlay::new(nodes);
        overlay.contribute(|_| vec![7; BYTES]);
        let begun = Instant::now();
        let cost = overlay.run(&collect(nodes, None));
        let model = model_ns(&overlay, cost.busiest);
        report("gather of 1 KB", nodes, &cost, model, begun);
        assert_eq!(cost.came.len(), nodes as usize);
        // Every contribution passes each link between its node and the frontend once.
        let hops: u64 = (0..nodes).map(|node| u64::from(overlay.tree.depth_of(node))).sum();
        let orders = u64::from(nodes) * AROUND;
        assert!(cost.all <= hops * (BYTES as u64 + AROUND) + orders, "{} bytes for {hops} hops", cost.all);
        // All of the largest subtree must pass one link. Nothing else delays the frontend.
        let largest =
            overlay.tree.root_children().map(|node| overlay.behind[node as usize].len()).max().unwrap();
        assert!(cost.busiest <= largest * (BYTES as u64 + AROUND) + AROUND, "{}", cost.busiest);
        let slack = u64::from(overlay.tree.depth()) * 2 * (BYTES as u64 + AROUND);
        assert!(cost.time_ns <= model + slack, "{} ns, {model} by the model", cost.time_ns);
    }
}

#[test]
fn a_message_to_all_passes_every_link_once() {
    for nodes in TREES {
        let mut overlay = Overlay::new(nodes);
        let bytes = Blob(vec![7; 1024]);
        let order = ChannelOrder::Message { session: SESSION, to: members(0..nodes), tag: 1, bytes };
        let body = encode_body(&order).unwrap().len() as u64;
        let begun = Instant::now();
        let cost = overlay.run(&order);
        let depth = u64::from(overlay.tree.depth());
        let model = depth * (LATENCY_NS + body * NS_OF_BYTE);
        report("broadcast of 1 KB", nodes, &cost, model, begun);
        assert_eq!((cost.time_ns, cost.busiest, cost.all), (model, body, u64::from(nodes) * body));
        assert!(body < 1024 + 24, "{body}");
        for heard in &mut overlay.heard {
            assert!(matches!(heard.try_recv(), Ok(ToDaemon::Message { tag: 1, last: true, .. })));
        }
    }
}

/// Classes of all ranks together.
const CLASSES: u32 = 1000;

/// The call paths of a node's ranks, of which each is in a class.
fn stacks(ranks: Range<u32>, class_of: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut classes: BTreeMap<u32, RankSet> = BTreeMap::new();
    for rank in ranks {
        classes.entry(class_of(rank)).or_default().insert(Rank(rank));
    }
    // As a daemon writes frames: the build id of a file, and an address in it.
    let id = "0123456789abcdef0123456789abcdef01234567";
    let mut tree = PrefixTree::new();
    for (class, ranks) in classes {
        let path = [0x1000, 0x2000 + class / 100, 0x3000 + class / 10, 0x4000 + class]
            .map(|address| format!("{id}+{address:x}"));
        tree.add(path.iter().map(String::as_str), &ranks).unwrap();
    }
    tree.encode().unwrap()
}

/// The cost of all ranks' stacks, and the size of the merged tree.
struct StackCost {
    busiest: u64,
    tree_bytes: u64,
}

/// Collects the stacks of all ranks, and merges them as the frontend does.
fn collect_stacks(what: &str, nodes: u32, on_node: u32, class_of: impl Fn(u32) -> u32) -> StackCost {
    let mut overlay = Overlay::new(nodes);
    overlay.contribute(|node| stacks(node * on_node..(node + 1) * on_node, &class_of));
    let begun = Instant::now();
    let cost = overlay.run(&collect(nodes, Some(Filter::PrefixTree)));
    let model = model_ns(&overlay, cost.busiest);
    report(&format!("{what}, {on_node} on each node"), nodes, &cost, model, begun);
    // The frontend's own work. Large parts come in chunks.
    let begun = Instant::now();
    let mut all = PrefixTree::new();
    cost.came.iter().for_each(|part| all.merge(&PrefixTree::decode(&part.bytes).unwrap()).unwrap());
    println!("the frontend merges {} parts: {:.1?}", cost.came.len(), begun.elapsed());
    assert_eq!(all.ranks().len(), u64::from(nodes * on_node));
    assert_eq!(all.outermost().map(|frame| frame.calls().len()).collect::<Vec<_>>(), [10]);
    StackCost { busiest: cost.busiest, tree_bytes: all.encode().unwrap().len() as u64 }
}

/// Nodes and ranks on each: ten thousand ranks, a hundred thousand, a million; in the same tree, and in a growing one.
const SIZES: [[(u32, u32); 3]; 2] =
    [[(10_000, 1), (10_000, 10), (10_000, 100)], [(100, 100), (1000, 100), (10_000, 100)]];

#[test]
fn stacks_cost_a_link_what_their_classes_do_however_many_ranks_are_in_them() {
    // Longer numbers of ranks take some bytes more.
    let is_alike = |one: u64, other: u64| one.abs_diff(other) * 10 <= one;
    for sizes in SIZES {
        let costs = sizes.map(|(nodes, on_node)| {
            // As many consecutive ranks in each class as there are.
            let in_class = nodes * on_node / CLASSES;
            let what = "stacks in 1000 classes of consecutive ranks";
            let cost = collect_stacks(what, nodes, on_node, |rank| rank / in_class);
            assert!(cost.busiest < cost.tree_bytes, "{} bytes on a link", cost.busiest);
            cost
        });
        let [tree, busiest] =
            [costs.each_ref().map(|cost| cost.tree_bytes), costs.each_ref().map(|cost| cost.busiest)];
        assert!(tree.iter().all(|bytes| is_alike(tree[0], *bytes)), "bytes of the tree: {tree:?}");
        // In the same tree, the same classes are behind a link.
        if sizes[0].0 == sizes[2].0 {
            assert!(busiest.iter().all(|bytes| is_alike(busiest[0], *bytes)), "bytes on a link: {busiest:?}");
        }
    }
}

#[test]
fn stacks_of_scattered_classes_cost_a_link_some_bytes_for_each_rank_behind_it() {
    for (nodes, on_node) in [(1000, 10), (1000, 100)] {
        // No two neighbours are alike, and no set of ranks has a pattern.
        let scattered = |rank: u32| (rank.wrapping_mul(2_654_435_761) >> 12) % CLASSES;
        let cost = collect_stacks("stacks in 1000 classes of scattered ranks", nodes, on_node, scattered);
        let for_each = cost.tree_bytes as f64 / f64::from(nodes * on_node);
        println!("the tree has {} bytes, {for_each:.1} for each rank", cost.tree_bytes);
        assert!(for_each < 16.0, "{for_each}");
    }
}
