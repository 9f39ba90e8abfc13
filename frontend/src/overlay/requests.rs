//! Open requests, and the nodes that still owe an answer. Pure: it takes arrivals and never waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gantry_shared::wire::message::Reply;
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::oneshot;

use super::admit::Violation;

/// The result of a request: every node has answered or is lost.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Answers by node number.
    pub(super) answers: Vec<(NodeId, Reply)>,
    /// Nodes that were lost before they answered.
    pub(super) lost: Vec<NodeId>,
    /// Why the last of them was lost.
    pub(super) reason: String,
}

/// All requests with a waiting caller.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    pending: HashMap<RequestId, Pending>,
}

#[derive(Debug)]
struct Pending {
    owed: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, Reply>,
    lost: BTreeSet<NodeId>,
    reason: String,
    done: oneshot::Sender<Settled>,
}

impl Requests {
    /// Makes a request number that was never used.
    pub(super) fn new_id(&mut self) -> RequestId {
        self.last += 1;
        RequestId(self.last)
    }

    /// Opens a request: these nodes owe an answer. `wanted` has at least one node.
    pub(super) fn open(&mut self, request: RequestId, wanted: &NodeSet) -> oneshot::Receiver<Settled> {
        let (done, settled) = oneshot::channel();
        let (owed, answers, lost) = (wanted.iter().collect(), BTreeMap::new(), BTreeSet::new());
        self.pending.insert(request, Pending { owed, answers, lost, reason: String::new(), done });
        settled
    }

    /// Handles a node's answer. A late one is no error: its request may have been cancelled, or answered for the node.
    ///
    /// # Errors
    /// The node was not asked.
    pub(super) fn answer(&mut self, request: RequestId, node: NodeId, reply: Reply) -> Result<(), Violation> {
        if request.0 > self.last {
            return Err(Violation::new(format!("answered request {request}, which was never made")));
        }
        let Some(pending) = self.pending.get_mut(&request) else {
            tracing::debug!(%request, %node, "an answer that is not waited for");
            return Ok(());
        };
        if pending.owed.remove(&node) {
            pending.answers.insert(node, reply);
        } else if pending.answers.contains_key(&node) || pending.lost.contains(&node) {
            tracing::debug!(%request, %node, "a second answer");
        } else {
            return Err(Violation::new(format!("answered request {request}, which it was not asked")));
        }
        if pending.owed.is_empty() {
            self.settle(request);
        }
        Ok(())
    }

    /// Ends the wait for these nodes' answers.
    pub(super) fn lose(&mut self, nodes: &NodeSet, reason: &str) {
        let mut settled = Vec::new();
        for (request, pending) in &mut self.pending {
            let owed = std::mem::take(&mut pending.owed).into_iter();
            let lost: BTreeSet<NodeId>;
            (lost, pending.owed) = owed.partition(|node| nodes.contains(*node));
            if !lost.is_empty() {
                reason.clone_into(&mut pending.reason);
                pending.lost.extend(lost);
            }
            if pending.owed.is_empty() {
                settled.push(*request);
            }
        }
        for request in settled {
            self.settle(request);
        }
    }

    /// The nodes that still owe an answer.
    pub(super) fn find_owed(&self, request: RequestId) -> Vec<NodeId> {
        self.pending.get(&request).into_iter().flat_map(|pending| &pending.owed).copied().collect()
    }

    /// Cancels a request. Returns its result so far, and the nodes that still owed an answer.
    pub(super) fn forget(&mut self, request: RequestId) -> (Settled, Vec<NodeId>) {
        match self.pending.remove(&request).map(Pending::end) {
            Some((settled, owed, _)) => (settled, owed),
            None => Default::default(),
        }
    }

    /// Drops all requests: no answer will arrive any more.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn settle(&mut self, request: RequestId) {
        let Some((settled, _, done)) = self.pending.remove(&request).map(Pending::end) else { return };
        // The caller may have stopped waiting at this moment.
        drop(done.send(settled));
    }
}

impl Pending {
    fn end(self) -> (Settled, Vec<NodeId>, oneshot::Sender<Settled>) {
        let Self { owed, answers, lost, reason, done } = self;
        let settled =
            Settled { answers: answers.into_iter().collect(), lost: lost.into_iter().collect(), reason };
        (settled, owed.into_iter().collect(), done)
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::message::Answer;
    use gantry_types::error::{Failure, Kind};

    use super::*;

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn open(requests: &mut Requests, text: &str) -> (RequestId, oneshot::Receiver<Settled>) {
        let request = requests.new_id();
        (request, requests.open(request, &nodes(text)))
    }

    #[test]
    fn a_request_settles_with_the_last_answer_in_node_order() {
        let mut requests = Requests::default();
        let (request, mut settled) = open(&mut requests, "1-3");
        requests.answer(request, NodeId(3), Ok(Answer::Done)).unwrap();
        requests.answer(request, NodeId(1), Err(Failure::new(Kind::NoAccess, "no"))).unwrap();
        assert!(settled.try_recv().is_err());
        requests.answer(request, NodeId(2), Ok(Answer::Done)).unwrap();
        let settled = settled.try_recv().unwrap();
        let order: Vec<_> = settled.answers.iter().map(|(node, reply)| (node.0, reply.is_ok())).collect();
        assert_eq!((order, settled.lost), (vec![(1, false), (2, true), (3, true)], vec![]));
        assert!(requests.is_empty());
    }

    #[test]
    fn second_answers_change_nothing_and_foreign_ones_are_refused() {
        let mut requests = Requests::default();
        let (request, mut settled) = open(&mut requests, "0,2");
        let (other, mut other_settled) = open(&mut requests, "1");
        requests.answer(request, NodeId(0), Ok(Answer::Done)).unwrap();
        requests.answer(request, NodeId(0), Err(Failure::new(Kind::Gone, "twice"))).unwrap();
        assert!(requests.answer(request, NodeId(1), Ok(Answer::Done)).is_err(), "it was not asked");
        assert!(requests.answer(RequestId(99), NodeId(2), Ok(Answer::Done)).is_err(), "nobody was");
        assert!(settled.try_recv().is_err() && other_settled.try_recv().is_err());
        requests.answer(request, NodeId(2), Ok(Answer::Done)).unwrap();
        assert!(settled.try_recv().unwrap().answers.iter().all(|(_, reply)| reply.is_ok()));
        assert_eq!(requests.forget(other).1, [NodeId(1)]);
        assert_eq!(requests.forget(other).1, []);
    }

    #[test]
    fn lost_nodes_owe_nothing_and_what_they_answered_before_stays() {
        let mut requests = Requests::default();
        let (request, mut settled) = open(&mut requests, "0-3");
        let (_, mut only_lost) = open(&mut requests, "2");
        requests.answer(request, NodeId(1), Ok(Answer::Done)).unwrap();
        requests.lose(&nodes("1-2"), "cut");
        let only_lost = only_lost.try_recv().unwrap();
        assert_eq!((only_lost.lost, only_lost.reason.as_str()), (vec![NodeId(2)], "cut"));
        requests.answer(request, NodeId(2), Ok(Answer::Done)).unwrap();
        requests.answer(request, NodeId(0), Ok(Answer::Done)).unwrap();
        requests.answer(request, NodeId(3), Ok(Answer::Done)).unwrap();
        let settled = settled.try_recv().unwrap();
        assert_eq!((settled.answers.len(), settled.lost), (3, vec![NodeId(2)]));
    }
}
