//! One operation on a node: which members still owe a contribution, and what goes up.
//!
//! If this node merges nothing, it passes chunks on as they arrive. Then the frontend, or a parent node that merges,
//! grants the credit for more.

use std::collections::BTreeMap;

use gantry_shared::wire::channel::{CHUNK_BYTES, ChannelNotice, FIRST_MADE, Member, MemberSet};
use gantry_shared::wire::flow::{FlowId, Word};
use gantry_shared::wire::message::Blob;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::Filter;
use gantry_types::id::{DaemonId, NodeId, SessionId};
use gantry_types::rank_set::NodeSet;

use super::filtering::Merged;
use super::merging::Merging;
use super::outcome::{Effect, Out, PartKey};

/// An operation.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) session: SessionId,
    /// Its number.
    operation: u64,
    tag: u32,
    node: NodeId,
    /// Daemons of this node that still owe their contribution, and the round that the operation wants.
    local: BTreeMap<DaemonId, u64>,
    /// Members of the whole subtree that still owe their contribution. Up to date only if this node merges.
    owed: MemberSet,
    merging: Option<Merging>,
    /// Parts made here that are not yet sent in full.
    outgoing: BTreeMap<u32, Outgoing>,
    made: u32,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Collection {
    /// Starts an operation that merges by `filter`, if this node can. `server` is a daemon that serves the filter.
    pub(super) fn new(
        session: SessionId,
        operation: u64,
        tag: u32,
        node: NodeId,
        filter: Option<&Filter>,
        server: Option<DaemonId>,
    ) -> Self {
        let merging = filter.and_then(|filter| Merging::start(filter, server));
        Self {
            session,
            operation,
            tag,
            node,
            local: BTreeMap::new(),
            owed: MemberSet::default(),
            merging,
            outgoing: BTreeMap::new(),
            made: FIRST_MADE,
        }
    }

    pub(super) fn expect_local(&mut self, daemon: DaemonId, round: u64) {
        self.local.insert(daemon, round);
    }

    pub(super) fn expect_all(&mut self, owed: MemberSet) {
        self.owed = owed;
    }

    /// Whether this node merges the parts from below.
    pub(super) fn merges(&self) -> bool {
        self.merging.is_some()
    }

    /// Whether the operation waits for this contribution.
    pub(super) fn waits_for(&self, daemon: DaemonId, tag: u32, round: u64) -> bool {
        self.tag == tag && self.local.get(&daemon) == Some(&round)
    }

    /// The members on `nodes` that still owe their contribution, as far as this node knows.
    pub(super) fn owed_on(&self, nodes: &NodeSet) -> MemberSet {
        self.owed.on(nodes)
    }

    /// Daemons of this node that still owe their contribution.
    pub(super) fn late(&self) -> Vec<DaemonId> {
        self.local.keys().copied().collect()
    }

    /// A part begins.
    pub(super) fn begin(&mut self, key: PartKey, of: MemberSet, total: u64, bytes: Vec<u8>, out: &mut Out) {
        let Some(merging) = &mut self.merging else {
            // Without merging, only parts of this node's own daemons arrive here.
            if bytes.len() as u64 >= total {
                self.local.remove(&DaemonId(key.part));
            }
            return out.chunks.push(self.first_chunk(key.part, of, total, bytes));
        };
        if merging.is_coming(key) || !merging.has_room(&of, &self.owed) {
            return;
        }
        let whole = merging.begin(key, of, total, bytes, out);
        self.take(key, whole, out);
    }

    /// A contribution of a daemon of this node goes on, perhaps to its end.
    pub(super) fn feed_local(&mut self, daemon: DaemonId, bytes: Vec<u8>, last: bool, out: &mut Out) {
        if self.merges() {
            return self.feed(PartKey { node: self.node, part: daemon.0 }, &bytes, out);
        }
        if self.local.contains_key(&daemon) {
            out.chunks.push(self.next_chunk(daemon.0, bytes));
        }
        if last {
            self.local.remove(&daemon);
        }
    }

    /// A part that this node merges goes on.
    pub(super) fn feed(&mut self, key: PartKey, bytes: &[u8], out: &mut Out) {
        let Some(merging) = &mut self.merging else { return };
        let whole = merging.feed(key, bytes, out);
        self.take(key, whole, out);
    }

    fn first_chunk(&self, part: u32, of: MemberSet, total: u64, bytes: Vec<u8>) -> Effect {
        Effect::Up(ChannelNotice::Part { operation: self.operation, part, of, total, bytes: Blob(bytes) })
    }

    fn next_chunk(&self, part: u32, bytes: Vec<u8>) -> Effect {
        Effect::Say(FlowId::Part { operation: self.operation, part }, Word::data(bytes))
    }

    /// Merges a part, if it is complete.
    fn take(&mut self, key: PartKey, whole: Option<(MemberSet, Vec<u8>)>, out: &mut Out) {
        let (Some((of, part)), Some(merging)) = (whole, &mut self.merging) else { return };
        if key.node == self.node {
            self.local.remove(&DaemonId(key.part));
        }
        self.owed = self.owed.difference(&of);
        merging.consume(of, part, out);
        self.go_on(out);
    }

    /// Merges, or sends the result, as far as possible.
    pub(super) fn go_on(&mut self, out: &mut Out) {
        let Some(merging) = &mut self.merging else { return };
        for (of, bytes) in merging.go_on(self.owed.is_empty(), out) {
            self.send(of, bytes, out);
        }
    }

    fn send(&mut self, of: MemberSet, bytes: Vec<u8>, out: &mut Out) {
        let (part, total) = (self.made, bytes.len() as u64);
        self.made = self.made.saturating_add(1);
        let first = bytes.len().min(CHUNK_BYTES);
        out.chunks.push(self.first_chunk(part, of, total, bytes[..first].to_vec()));
        if first < bytes.len() {
            self.outgoing.insert(part, Outgoing { bytes, sent: first });
        }
    }

    /// The receiver gives credit for a part that was made here.
    pub(super) fn earn(&mut self, part: u32, bytes: u32, out: &mut Out) {
        let Some(Outgoing { bytes: all, sent }) = self.outgoing.remove(&part) else { return };
        let end = all.len().min(sent.saturating_add(bytes as usize));
        out.chunks.extend(all[sent..end].chunks(CHUNK_BYTES).map(|it| self.next_chunk(part, it.to_vec())));
        if end < all.len() {
            self.outgoing.insert(part, Outgoing { bytes: all, sent: end });
        }
    }

    /// Nothing more comes from a daemon of this node.
    pub(super) fn local_over(&mut self, daemon: DaemonId, why: Failure, out: &mut Out) {
        if let Some(merging) = &mut self.merging {
            merging.server_over(daemon);
        }
        if self.local.remove(&daemon).is_some() {
            let of = MemberSet::of(Member { node: self.node, daemon });
            self.owed = self.owed.difference(&of);
            if let Some(merging) = &mut self.merging {
                merging.forget(|key| key == PartKey { node: self.node, part: daemon.0 }, out);
            }
            out.missing.push((of, why));
        }
        self.go_on(out);
    }

    /// An agent further down reports that nothing comes from these members.
    pub(super) fn missing(&mut self, of: &MemberSet, out: &mut Out) {
        self.owed = self.owed.difference(of);
        self.go_on(out);
    }

    /// Nodes further down are lost.
    pub(super) fn lose(&mut self, nodes: &NodeSet, out: &mut Out) {
        self.owed = self.owed.difference(&self.owed.on(nodes));
        if let Some(merging) = &mut self.merging {
            merging.forget(|key| nodes.contains(key.node), out);
        }
        self.go_on(out);
    }

    /// The timeout has passed: every member that still owes its contribution is missing.
    pub(super) fn expire(&mut self, out: &mut Out) {
        let owed = std::mem::take(&mut self.owed);
        if !owed.is_empty() {
            out.missing.push((
                owed,
                Failure::new(Kind::TimedOut, "an agent on the path stopped sending heartbeats"),
            ));
        }
        if let Some(merging) = &mut self.merging {
            merging.forget(|_| true, out);
            merging.give_up_job();
        }
        self.go_on(out);
    }

    /// No daemon takes the parts that one was to merge.
    pub(super) fn job_refused(&mut self, out: &mut Out) {
        if let Some(merging) = &mut self.merging {
            merging.give_up_job();
        }
        self.go_on(out);
    }

    /// Takes the result of a [`Batch`](super::filtering::Batch).
    pub(super) fn batch_merged(&mut self, merged: Merged, out: &mut Out) {
        let Some(merging) = &mut self.merging else { return };
        if let Some((of, bytes)) = merging.batch_merged(merged, out) {
            self.send(of, bytes, out);
        }
        self.go_on(out);
    }

    /// A daemon has merged its parts, or has failed to.
    pub(super) fn merged(
        &mut self,
        daemon: DaemonId,
        bytes: Result<Vec<u8>, Failure>,
        last: bool,
        out: &mut Out,
    ) {
        if let Some(merging) = &mut self.merging
            && merging.merged(daemon, bytes, last)
        {
            self.go_on(out);
        }
    }
}
