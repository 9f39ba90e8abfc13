//! Gathers the answers of a subtree, so that a parent gets few frames.
//!
//! A batch goes up when all nodes have answered, when it is large enough, or after a moment. Pure: the caller passes in
//! answers and timer events, and gets back the batches to send.

use std::collections::BTreeMap;

use gantry_shared::wire::message::{Answer, EncodedReply};
use gantry_types::error::Failure;
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::OwnedSemaphorePermit;

/// A batch of this size is worth a frame.
const BATCH_BYTES: usize = 64 * 1024;
/// With how many others an answer is compared. If all differ, more comparisons would cost more than they save.
const COMPARED: usize = 32;
/// The limit on open requests. A cancelled request never completes, so the oldest one goes first.
const REQUESTS: usize = 1024;

/// A node's answer to an order.
pub(crate) type Reply = Result<Answer, Failure>;

/// Answers that go up in one frame.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) request: RequestId,
    pub(super) answers: Vec<(NodeSet, EncodedReply)>,
    /// The link's writer releases it with the frame.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Answers on their way up.
#[derive(Debug, Default)]
pub(super) struct Gatherings {
    open: BTreeMap<RequestId, Gathering>,
}

#[derive(Debug, Default)]
struct Gathering {
    owed: NodeSet,
    answers: Vec<(NodeSet, EncodedReply)>,
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
}

impl Gathering {
    /// Merges equal answers: ten thousand of them become one.
    fn merge(&mut self, answers: Vec<(NodeSet, EncodedReply)>) {
        for (nodes, reply) in answers {
            self.owed = self.owed.difference(&nodes);
            match self.answers.iter_mut().rev().take(COMPARED).find(|(_, known)| *known == reply) {
                Some((from, _)) => *from = from.union(&nodes),
                None => {
                    self.bytes += reply.bytes();
                    self.answers.push((nodes, reply));
                }
            }
        }
    }

    fn take(&mut self, request: RequestId) -> Option<Batch> {
        self.bytes = 0;
        let (answers, room) = (std::mem::take(&mut self.answers), self.room.take());
        (!answers.is_empty()).then_some(Batch { request, answers, room })
    }
}

impl Gatherings {
    /// An order went to these nodes, all of them in this subtree.
    pub(super) fn expect(&mut self, request: RequestId, owed: NodeSet) {
        if owed.is_empty() {
            return;
        }
        if self.open.len() >= REQUESTS
            && let Some((&oldest, _)) = self.open.first_key_value()
            && self.open.get(&oldest).is_some_and(|gathering| gathering.answers.is_empty())
        {
            self.open.remove(&oldest);
        }
        self.open.insert(request, Gathering { owed, ..Gathering::default() });
    }

    /// Adds answers.
    ///
    /// Answers to a forgotten request go up at once: only the frontend knows whether its caller still waits.
    pub(super) fn add(
        &mut self,
        request: RequestId,
        answers: Vec<(NodeSet, EncodedReply)>,
        room: Option<OwnedSemaphorePermit>,
    ) -> Vec<Batch> {
        let Some(gathering) = self.open.get_mut(&request) else {
            return vec![Batch { request, answers, room }];
        };
        let mut ready = Vec::new();
        let bytes: usize = answers.iter().map(|(_, reply)| reply.bytes()).sum();
        if gathering.bytes + bytes > BATCH_BYTES {
            ready.extend(gathering.take(request));
        }
        gathering.merge(answers);
        match (&mut gathering.room, room) {
            (Some(all), Some(more)) => all.merge(more),
            (none, room) => *none = none.take().or(room),
        }
        if gathering.owed.is_empty() || gathering.bytes >= BATCH_BYTES {
            ready.extend(gathering.take(request));
        }
        self.forget_complete(request);
        ready
    }

    /// These nodes owe no answers any more. Returns the batches that this completes.
    pub(super) fn lose(&mut self, nodes: &NodeSet) -> Vec<Batch> {
        let mut ready = Vec::new();
        self.open.retain(|request, gathering| {
            gathering.owed = gathering.owed.difference(nodes);
            if gathering.owed.is_empty() {
                ready.extend(gathering.take(*request));
            }
            !gathering.owed.is_empty()
        });
        ready
    }

    /// The requests that any of `nodes` still owe an answer to.
    pub(super) fn find_owed(&self, nodes: &NodeSet) -> Vec<(RequestId, NodeSet)> {
        let owed =
            self.open.iter().map(|(request, gathering)| (*request, gathering.owed.intersection(nodes)));
        owed.filter(|(_, owed)| !owed.is_empty()).collect()
    }

    /// Takes the batches with an answer of this node. Its next message must not overtake them.
    pub(super) fn take_of(&mut self, node: NodeId) -> Vec<Batch> {
        let of_node = |gathering: &Gathering| gathering.answers.iter().any(|(from, _)| from.contains(node));
        let open = self.open.iter_mut().filter(|(_, gathering)| of_node(gathering));
        open.filter_map(|(request, gathering)| gathering.take(*request)).collect()
    }

    /// Takes all batches.
    pub(super) fn take_all(&mut self) -> Vec<Batch> {
        self.open.iter_mut().filter_map(|(request, gathering)| gathering.take(*request)).collect()
    }

    /// Whether any gathered answer waits for more.
    pub(super) fn is_waiting(&self) -> bool {
        self.open.values().any(|gathering| !gathering.answers.is_empty())
    }

    fn forget_complete(&mut self, request: RequestId) {
        if self.open.get(&request).is_some_and(|gathering| gathering.owed.is_empty()) {
            self.open.remove(&request);
        }
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

    fn add(gatherings: &mut Gatherings, node: u32, bytes: usize) -> Vec<Vec<u32>> {
        // No two nodes give the same answer.
        shown(gatherings.add(REQUEST, vec![(only(node), reply(node, bytes))], None))
    }

    fn shown(batches: Vec<Batch>) -> Vec<Vec<u32>> {
        let nodes = |batch: Batch| {
            batch.answers.iter().flat_map(|(nodes, _)| nodes.iter()).map(|node| node.0).collect()
        };
        batches.into_iter().map(nodes).collect()
    }

    #[test]
    fn a_batch_is_ready_when_the_subtree_has_answered() {
        let mut gatherings = Gatherings::default();
        gatherings.expect(REQUEST, nodes("1,3,4"));
        assert!(add(&mut gatherings, 4, 10).is_empty());
        assert!(add(&mut gatherings, 1, 10).is_empty() && gatherings.is_waiting());
        assert_eq!(add(&mut gatherings, 3, 10), [[4, 1, 3]]);
        assert!(gatherings.open.is_empty());
    }

    #[test]
    fn a_batch_is_ready_when_it_is_large_and_never_larger_than_needed() {
        let mut gatherings = Gatherings::default();
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
        let mut gatherings = Gatherings::default();
        gatherings.expect(REQUEST, nodes("0-9999"));
        let same = |nodes| vec![(nodes, reply(7, BATCH_BYTES / 100))];
        for node in 0..9999 {
            let ready = gatherings.add(REQUEST, same(only(node)), None);
            assert!(ready.is_empty(), "node {node}");
        }
        let batch = gatherings.add(REQUEST, same(only(9999)), None).pop().unwrap();
        assert_eq!(batch.answers, same(nodes("0-9999")));
    }

    #[test]
    fn the_lost_are_not_waited_for() {
        let mut gatherings = Gatherings::default();
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
        let mut gatherings = Gatherings::default();
        gatherings.expect(REQUEST, nodes("0-9"));
        assert!(add(&mut gatherings, 5, 1).is_empty());
        assert!(gatherings.take_of(NodeId(4)).is_empty());
        assert_eq!(shown(gatherings.take_of(NodeId(5))), [[5]]);
        assert!(gatherings.take_of(NodeId(5)).is_empty());
    }

    #[test]
    fn requests_that_were_given_up_are_forgotten_in_the_end_and_late_answers_pass() {
        let mut gatherings = Gatherings::default();
        for request in 0..2 * REQUESTS as u64 {
            gatherings.expect(RequestId(request), nodes("1"));
        }
        assert_eq!(gatherings.open.len(), REQUESTS);
        assert_eq!(add(&mut gatherings, 1, 1), [[1]]);
    }
}
