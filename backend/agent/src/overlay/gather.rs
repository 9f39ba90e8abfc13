//! Gathers what the nodes of a subtree send for one purpose, so that a parent gets few frames: answers to an order, and
//! puts for a fence of the ranks' MPI world.
//!
//! A batch goes up when all nodes are in it, when it is large enough, or after a moment. So agents need not know which
//! nodes will never come. Pure: the caller passes in parts and timer events, and gets back the batches to send.

use gantry_shared::wire::message::{Blob, EncodedReply};
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::OwnedSemaphorePermit;

/// A batch of this size is worth a frame.
const BATCH_BYTES: usize = 64 * 1024;
/// With how many others an answer is compared. If all differ, more comparisons would cost more than they save.
const COMPARED: usize = 32;
/// The limit on open gatherings. A cancelled request never completes, so the oldest one goes first.
const MAX_OPEN: usize = 1024;

/// The answers to orders.
pub(super) type Answers = Gatherings<RequestId, (NodeSet, EncodedReply)>;

/// What nodes put for fences, by the fence's number.
pub(super) type Fences = Gatherings<u32, (NodeId, Blob)>;

/// What one or more nodes send.
pub(super) trait Part: Sized {
    /// Number of bytes.
    fn bytes(&self) -> usize;
    /// Whether it is of this node.
    fn is_of(&self, node: NodeId) -> bool;
    /// Removes its nodes from `owed`.
    fn strike(&self, owed: &mut NodeSet);
    /// Adds it to `others`. Returns how many bytes they grow by.
    fn join(self, others: &mut Vec<Self>) -> usize;
}

impl Part for (NodeSet, EncodedReply) {
    fn bytes(&self) -> usize {
        self.1.bytes()
    }

    fn is_of(&self, node: NodeId) -> bool {
        self.0.contains(node)
    }

    fn strike(&self, owed: &mut NodeSet) {
        *owed = owed.difference(&self.0);
    }

    /// Merges equal answers: ten thousand of them become one.
    fn join(self, others: &mut Vec<Self>) -> usize {
        let (nodes, reply) = self;
        if let Some((from, _)) = others.iter_mut().rev().take(COMPARED).find(|(_, known)| *known == reply) {
            *from = from.union(&nodes);
            return 0;
        }
        let bytes = reply.bytes();
        others.push((nodes, reply));
        bytes
    }
}

impl Part for (NodeId, Blob) {
    fn bytes(&self) -> usize {
        self.1.0.len()
    }

    fn is_of(&self, node: NodeId) -> bool {
        self.0 == node
    }

    fn strike(&self, owed: &mut NodeSet) {
        *owed = owed.difference(&NodeSet::from_range(self.0..=self.0));
    }

    fn join(self, others: &mut Vec<Self>) -> usize {
        let bytes = self.bytes();
        others.push(self);
        bytes
    }
}

/// Parts that go up in one frame.
#[derive(Debug)]
pub(super) struct Batch<K, P> {
    pub(super) of: K,
    pub(super) parts: Vec<P>,
    /// The link's writer releases it with the frame.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Parts on their way up.
#[derive(Debug)]
pub(super) struct Gatherings<K, P> {
    // Few are open at a time, and a map would make the agent larger.
    open: Vec<(K, Gathering<P>)>,
}

impl<K, P> Default for Gatherings<K, P> {
    fn default() -> Self {
        Self { open: Vec::new() }
    }
}

#[derive(Debug)]
struct Gathering<P> {
    owed: NodeSet,
    parts: Vec<P>,
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
}

impl<P: Part> Gathering<P> {
    fn take<K>(&mut self, of: K) -> Option<Batch<K, P>> {
        self.bytes = 0;
        let (parts, room) = (std::mem::take(&mut self.parts), self.room.take());
        (!parts.is_empty()).then_some(Batch { of, parts, room })
    }
}

impl<K: PartialEq + Copy, P: Part> Gatherings<K, P> {
    fn find(&self, of: K) -> Option<usize> {
        self.open.iter().position(|(known, _)| *known == of)
    }

    /// These nodes, all of them in this subtree, are to send a part.
    pub(super) fn expect(&mut self, of: K, owed: NodeSet) {
        if owed.is_empty() {
            return;
        }
        if self.open.len() >= MAX_OPEN && self.open.first().is_some_and(|(_, oldest)| oldest.parts.is_empty())
        {
            self.open.remove(0);
        }
        self.open.push((of, Gathering { owed, parts: Vec::new(), bytes: 0, room: None }));
    }

    /// Whether nodes still owe a part.
    pub(super) fn expects(&self, of: K) -> bool {
        self.find(of).is_some()
    }

    /// Adds parts.
    ///
    /// Parts that nobody expects go up at once: only the frontend knows whether its caller still waits.
    pub(super) fn add(
        &mut self,
        of: K,
        parts: Vec<P>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Vec<Batch<K, P>> {
        let at = self.find(of);
        let Some((at, (_, gathering))) = at.and_then(|at| Some((at, self.open.get_mut(at)?))) else {
            return vec![Batch { of, parts, room }];
        };
        let mut ready = Vec::new();
        if gathering.bytes + parts.iter().map(P::bytes).sum::<usize>() > BATCH_BYTES {
            ready.extend(gathering.take(of));
        }
        for part in parts {
            part.strike(&mut gathering.owed);
            gathering.bytes += part.join(&mut gathering.parts);
        }
        match (&mut gathering.room, room) {
            (Some(all), Some(more)) => all.merge(more),
            (none, room) => *none = none.take().or(room),
        }
        if gathering.owed.is_empty() || gathering.bytes >= BATCH_BYTES {
            ready.extend(gathering.take(of));
        }
        if gathering.owed.is_empty() {
            self.open.remove(at);
        }
        ready
    }

    /// These nodes owe no parts any more. Returns the batches that this completes.
    pub(super) fn lose(&mut self, nodes: &NodeSet) -> Vec<Batch<K, P>> {
        let mut ready = Vec::new();
        self.open.retain_mut(|(of, gathering)| {
            gathering.owed = gathering.owed.difference(nodes);
            if gathering.owed.is_empty() {
                ready.extend(gathering.take(*of));
            }
            !gathering.owed.is_empty()
        });
        ready
    }

    /// To what any of `nodes` still owe a part.
    pub(super) fn find_owed(&self, nodes: &NodeSet) -> Vec<(K, NodeSet)> {
        let owed = self.open.iter().map(|(of, gathering)| (*of, gathering.owed.intersection(nodes)));
        owed.filter(|(_, owed)| !owed.is_empty()).collect()
    }

    /// Takes the batches with a part of this node. Its next message must not overtake them.
    pub(super) fn take_of(&mut self, node: NodeId) -> Vec<Batch<K, P>> {
        let of_node = |gathering: &Gathering<P>| gathering.parts.iter().any(|part| part.is_of(node));
        let open = self.open.iter_mut().filter(|(_, gathering)| of_node(gathering));
        open.filter_map(|(of, gathering)| gathering.take(*of)).collect()
    }

    /// Takes all batches.
    pub(super) fn take_all(&mut self) -> Vec<Batch<K, P>> {
        self.open.iter_mut().filter_map(|(of, gathering)| gathering.take(*of)).collect()
    }

    /// Whether any part waits for others.
    pub(super) fn is_waiting(&self) -> bool {
        self.open.iter().any(|(_, gathering)| !gathering.parts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::frame;
    use gantry_shared::wire::message::Blob;

    use super::*;

    const REQUEST: RequestId = RequestId(7);

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn only(node: u32) -> NodeSet {
        NodeSet::from_range(NodeId(node)..=NodeId(node))
    }

    /// An answer of that many bytes.
    fn reply(first: u32, bytes: usize) -> EncodedReply {
        let mut content = vec![0; bytes];
        content[0] = u8::try_from(first).unwrap();
        frame::decode(&frame::encode_body(&Blob(content)).unwrap()).unwrap()
    }

    fn add(gatherings: &mut Answers, node: u32, bytes: usize) -> Vec<Vec<u32>> {
        // No two nodes give the same answer.
        shown(gatherings.add(REQUEST, vec![(only(node), reply(node, bytes))], None))
    }

    fn shown(batches: Vec<Batch<RequestId, (NodeSet, EncodedReply)>>) -> Vec<Vec<u32>> {
        let nodes = |batch: Batch<_, (NodeSet, EncodedReply)>| {
            batch.parts.iter().flat_map(|(nodes, _)| nodes.iter()).map(|node| node.0).collect()
        };
        batches.into_iter().map(nodes).collect()
    }

    #[test]
    fn a_batch_is_ready_when_the_subtree_has_answered() {
        let mut gatherings = Answers::default();
        gatherings.expect(REQUEST, nodes("1,3,4"));
        assert!(add(&mut gatherings, 4, 10).is_empty());
        assert!(add(&mut gatherings, 1, 10).is_empty() && gatherings.is_waiting());
        assert_eq!(add(&mut gatherings, 3, 10), [[4, 1, 3]]);
        assert!(gatherings.open.is_empty());
    }

    #[test]
    fn a_batch_is_ready_when_it_is_large_and_never_larger_than_needed() {
        let mut gatherings = Answers::default();
        gatherings.expect(REQUEST, nodes("0-9"));
        assert!(add(&mut gatherings, 0, 10).is_empty());
        assert_eq!(add(&mut gatherings, 1, BATCH_BYTES), [[0], [1]]);
        assert!(add(&mut gatherings, 2, BATCH_BYTES - 1).is_empty());
        assert_eq!(add(&mut gatherings, 3, 2), [[2]]);
        assert_eq!(shown(gatherings.take_all()), [[3]]);
        assert!(shown(gatherings.take_all()).is_empty() && !gatherings.is_waiting());
    }

    #[test]
    fn equal_answers_come_up_as_one_and_cost_as_one() {
        let mut gatherings = Answers::default();
        gatherings.expect(REQUEST, nodes("0-9999"));
        let same = |nodes| vec![(nodes, reply(7, BATCH_BYTES / 100))];
        for node in 0..9999 {
            let ready = gatherings.add(REQUEST, same(only(node)), None);
            assert!(ready.is_empty(), "node {node}");
        }
        let batch = gatherings.add(REQUEST, same(only(9999)), None).pop().unwrap();
        assert_eq!(batch.parts, same(nodes("0-9999")));
    }

    #[test]
    fn the_lost_are_not_waited_for() {
        let mut gatherings = Answers::default();
        gatherings.expect(REQUEST, nodes("1-3"));
        gatherings.expect(RequestId(8), nodes("2"));
        assert!(add(&mut gatherings, 1, 1).is_empty());
        assert!(gatherings.lose(&nodes("2")).is_empty());
        assert_eq!(gatherings.find_owed(&nodes("0-9")), [(REQUEST, nodes("3"))]);
        assert_eq!(shown(gatherings.lose(&nodes("3"))), [[1]]);
        assert!(gatherings.open.is_empty());
    }

    #[test]
    fn what_a_node_says_next_takes_its_answers_along() {
        let mut gatherings = Answers::default();
        gatherings.expect(REQUEST, nodes("0-9"));
        assert!(add(&mut gatherings, 5, 1).is_empty());
        assert!(gatherings.take_of(NodeId(4)).is_empty());
        assert_eq!(shown(gatherings.take_of(NodeId(5))), [[5]]);
        assert!(gatherings.take_of(NodeId(5)).is_empty());
    }

    #[test]
    fn what_nodes_put_goes_up_in_one_batch_when_all_have_come_or_it_is_large() {
        let mut fences = Fences::default();
        let put = |node, bytes| vec![(NodeId(node), Blob(vec![0; bytes]))];
        let shown = |batches: Vec<Batch<u32, (NodeId, Blob)>>| -> Vec<Vec<u32>> {
            let nodes =
                |batch: Batch<u32, (NodeId, Blob)>| batch.parts.iter().map(|(node, _)| node.0).collect();
            batches.into_iter().map(nodes).collect()
        };
        assert!(!fences.expects(7));
        fences.expect(7, nodes("0-3"));
        assert!(fences.add(7, put(2, 10), None).is_empty() && fences.is_waiting());
        assert!(fences.add(7, put(0, BATCH_BYTES - 11), None).is_empty());
        assert_eq!(shown(fences.add(7, put(3, 2), None)), [[2, 0]]);
        assert_eq!(shown(fences.add(7, put(1, 0), None)), [[3, 1]]);
        assert!(!fences.expects(7) && !fences.is_waiting());
    }

    #[test]
    fn requests_that_were_given_up_are_forgotten_in_the_end_and_late_answers_pass() {
        let mut gatherings = Answers::default();
        for request in 0..2 * MAX_OPEN as u64 {
            gatherings.expect(RequestId(request), nodes("1"));
        }
        assert_eq!(gatherings.open.len(), MAX_OPEN);
        assert_eq!(add(&mut gatherings, 1, 1), [[1]]);
    }
}
