//! What the relay gathers of its subtree before it goes up.

use gantry_shared::wire::frame;
use gantry_shared::wire::message::{Blob, EncodedReply, Notice, Reply, Up};
use gantry_shared::wire::rendezvous::RendezvousNotice;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::sync::OwnedSemaphorePermit;

use super::Relay;
use crate::overlay::gather::Batch;

impl Relay {
    /// Sends all that is gathered.
    pub(in crate::overlay) fn flush(&mut self) {
        let (answers, puts) = (self.answers.take_all(), self.fences.take_all());
        self.send_answers(answers);
        self.send_puts(puts);
    }

    /// Answers on behalf of nodes that have left.
    pub(super) fn answer_for(&mut self, request: RequestId, nodes: &NodeSet) {
        if !nodes.is_empty() {
            let gone = Err(Failure::new(Kind::Gone, "its agent has left"));
            self.gather_reply(request, nodes.clone(), &gone);
        }
    }

    pub(super) fn gather_reply(&mut self, request: RequestId, nodes: NodeSet, reply: &Reply) {
        // Answers have bounds, and fit in a frame.
        if let Ok(reply) = EncodedReply::of(reply) {
            self.gather(request, vec![(nodes, reply)], None);
        }
    }

    pub(super) fn gather(
        &mut self,
        request: RequestId,
        answers: Vec<(NodeSet, EncodedReply)>,
        room: Option<OwnedSemaphorePermit>,
    ) {
        let ready = self.answers.add(request, answers, room);
        self.send_answers(ready);
        if self.answers.is_waiting() {
            self.gathering.notify_one();
        }
    }

    /// Gathers what nodes put for a fence.
    pub(super) fn gather_puts(
        &mut self,
        number: u32,
        puts: Vec<(NodeId, Blob)>,
        room: Option<OwnedSemaphorePermit>,
    ) {
        // The frontend refuses a notice with two puts of a node. So a second one goes behind the first.
        for (node, _) in &puts {
            let before = self.fences.take_of(*node);
            self.send_puts(before);
        }
        if !self.fences.expects(number) {
            self.fences.expect(number, self.place.find_own_subtree().difference(&self.away));
        }
        let ready = self.fences.add(number, puts, room);
        self.send_puts(ready);
        if self.fences.is_waiting() {
            self.gathering.notify_one();
        }
    }

    pub(super) fn send_puts(&mut self, batches: Vec<Batch<u32, (NodeId, Blob)>>) {
        for Batch { of: number, parts: puts, room } in batches {
            self.send_notice(Notice::Rendezvous(RendezvousNotice::Fence { number, puts }), room);
        }
    }

    pub(super) fn send_answers(&mut self, batches: Vec<Batch<RequestId, (NodeSet, EncodedReply)>>) {
        for Batch { of: request, parts: answers, room } in batches {
            // A batch is shorter than a frame.
            if let Ok(body) = frame::encode_body(&Up::Answers { request, answers }) {
                self.send_up(body.into(), room);
            }
        }
    }
}
