//! Thousands of hubs in one process, joined by simulated links with a latency and a speed of their own clock.
//!
//! The tests measure what operations cost, in time and bytes, as the tree grows. No result depends on this machine's
//! speed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
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

/// A message on a link: when it arrives, its place in the order of sending, and its index.
type Flying = Reverse<(u64, u64, usize)>;

enum Travels {
    Down(u32, ChannelOrder),
    Up(u32, ChannelNotice),
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

/// What an operation cost.
struct Cost {
    /// By the clock of the links.
    time_ns: u64,
    /// The most bytes that a link has carried, in both directions together.
    busiest: u64,
    all: u64,
    /// The notices that have reached the frontend.
    came: Vec<ChannelNotice>,
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
        let (way, bytes) = match &what {
            Travels::Down(_, order) => (0, encode_body(order).unwrap().len()),
            Travels::Up(_, notice) => (1, encode_body(notice).unwrap().len()),
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
                    self.tree
                        .children(node)
                        .for_each(|child| self.send(child, Travels::Down(child, order.clone())));
                    self.hubs[node as usize].obey(None, order, true, &NodeSet::default());
                    self.go_up(node);
                }
                Travels::Up(from, notice) => match self.tree.parent(from) {
                    None => came.push(notice),
                    Some(node) => {
                        let origin = NodeId(from);
                        let passed = self.hubs[node as usize].rise(origin, notice);
                        if let Some(notice) = passed {
                            self.send(node, Travels::Up(node, notice));
                        }
                        self.go_up(node);
                    }
                },
            }
        }
        let busiest = self.carried.iter().map(|[down, up]| down + up).max().unwrap();
        Cost { time_ns: self.now, busiest, all: self.carried.iter().flatten().sum(), came }
    }

    fn go_up(&mut self, node: u32) {
        for effect in self.hubs[node as usize].take_effects() {
            match effect {
                Effect::Up(notice) => self.send(node, Travels::Up(node, notice)),
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
        for notice in &cost.came {
            let ChannelNotice::Part { bytes, .. } = notice else { panic!("{notice:?}") };
            sum.take(&bytes.0).unwrap();
        }
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

/// The call paths of a hundred ranks on each node. A thousand consecutive ranks share a class.
fn stacks(node: u32) -> Vec<u8> {
    let ranks = RankSet::from_range(Rank(node * 100)..=Rank(node * 100 + 99));
    let class = node / 10;
    // As a daemon writes frames: the build id of a file, and an address in it.
    let id = "0123456789abcdef0123456789abcdef01234567";
    let path = [0x1000, 0x2000 + class / 100, 0x3000 + class / 10, 0x4000 + class]
        .map(|address| format!("{id}+{address:x}"));
    let mut tree = PrefixTree::new();
    tree.add(path.iter().map(String::as_str), &ranks).unwrap();
    tree.encode().unwrap()
}

#[test]
fn the_stacks_of_a_million_ranks_cost_a_link_what_their_classes_do() {
    const NODES: u32 = 10_000;
    // For a subtree's own classes. All thousand classes take some fifty kilobytes.
    const MOST_BYTES: u64 = 50_000;
    let mut overlay = Overlay::new(NODES);
    overlay.contribute(stacks);
    let begun = Instant::now();
    let cost = overlay.run(&collect(NODES, Some(Filter::PrefixTree)));
    let model = model_ns(&overlay, cost.busiest);
    report("stacks of 100 ranks each, in 1000 classes", NODES, &cost, model, begun);
    assert!(cost.busiest < MOST_BYTES, "{} bytes on a link", cost.busiest);
    // The frontend's own work.
    let begun = Instant::now();
    let mut all = PrefixTree::new();
    for notice in &cost.came {
        let ChannelNotice::Part { bytes, .. } = notice else { panic!("{notice:?}") };
        all.merge(&PrefixTree::decode(&bytes.0).unwrap()).unwrap();
    }
    println!("the frontend merges {} parts: {:.1?}", cost.came.len(), begun.elapsed());
    assert_eq!(all.ranks().len(), 1_000_000);
    assert_eq!(all.outermost().map(|frame| frame.calls().len()).collect::<Vec<_>>(), [10]);
}
