//! Collects contributions. Pure: it takes notices, and returns complete parts and what to grant.

use std::collections::{BTreeMap, VecDeque};

use gantry_shared::wire::assembly::Assembly;
use gantry_shared::wire::channel::{
    CHUNK_BYTES, ChannelNotice, FIRST_MADE, MAX_PART_BYTES, Member, MemberSet,
};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;

use super::policy::{Missing, Policy};
use crate::error::{Error, Result};

/// Limit for all contributions of one operation together.
const MAX_TOTAL_BYTES: u64 = 1024 * 1024 * 1024;

/// A complete part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The members whose contributions are in it.
    pub(super) of: MemberSet,
    pub(super) bytes: Vec<u8>,
}

/// The result of an operation that counts as done.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) missing: Vec<Missing>,
    pub(super) contributed: u64,
}

/// The state of an operation.
#[derive(Debug)]
pub(super) struct Collecting {
    members: u64,
    contributed: u64,
    /// Members that have neither contributed nor failed.
    owed: MemberSet,
    /// Members that had ended before. Their last contribution counts, and they do not count as missing.
    ended: MemberSet,
    missing: BTreeMap<Member, Failure>,
    coming: BTreeMap<(NodeId, u32), Assembly>,
    /// Large parts in turn. The rest of each is requested later, `at_once` parts at a time.
    large: VecDeque<(NodeId, u32)>,
    at_once: usize,
    total: u64,
    credit: Vec<(NodeId, u32, u32)>,
    merges: bool,
}

impl Collecting {
    /// Expects contributions of these members. With `merges`, a part may hold several members, and parts are received
    /// one at a time.
    pub(super) fn new(of: MemberSet, ended: MemberSet, merges: bool) -> Self {
        Self {
            members: of.len(),
            contributed: 0,
            owed: of,
            ended,
            missing: BTreeMap::new(),
            coming: BTreeMap::new(),
            large: VecDeque::new(),
            at_once: if merges { 1 } else { usize::MAX },
            total: 0,
            credit: Vec::new(),
            merges,
        }
    }

    /// Handles a notice. Returns a part once it is complete.
    pub(super) fn hear(&mut self, node: NodeId, notice: ChannelNotice) -> Result<Option<Part>> {
        match notice {
            ChannelNotice::Part { part, of, total, bytes, .. } => self.begin(node, part, of, total, bytes.0),
            ChannelNotice::Missing { of, why, .. } => {
                self.miss(&of, &why);
                Ok(None)
            }
        }
    }

    fn begin(
        &mut self,
        node: NodeId,
        part: u32,
        of: MemberSet,
        total: u64,
        bytes: Vec<u8>,
    ) -> Result<Option<Part>> {
        let key = (node, part);
        let length = bytes.len() as u64;
        let wanted = self.owed.intersection(&of);
        let own = part >= FIRST_MADE
            || of == MemberSet::of(Member { node, daemon: gantry_types::id::DaemonId(part) });
        let alone = self.merges || of.len() == 1;
        let fresh = !self.coming.contains_key(&key) && wanted == of && !of.is_empty();
        if !fresh || !own || !alone || length != total.min(CHUNK_BYTES as u64) {
            tracing::debug!(%node, part, "a part that no collection waits for");
            return Ok(None);
        }
        self.count(total)?;
        if length == total {
            return Ok(Some(self.done(of, bytes)));
        }
        self.coming.insert(key, Assembly::begin(of, total, bytes));
        self.large.push_back(key);
        self.grant();
        Ok(None)
    }

    /// Takes the next bytes of a part. Returns the part once it is complete.
    pub(super) fn feed(&mut self, node: NodeId, part: u32, bytes: &[u8]) -> Result<Option<Part>> {
        let key = (node, part);
        let Some(assembly) = self.coming.get_mut(&key) else {
            tracing::debug!(%node, part, "the rest of a part that no collection waits for");
            return Ok(None);
        };
        let complete = assembly.take(bytes).map_err(|overrun| {
            Error::Protocol(format!("node {node} sends contributions without credit: {overrun}"))
        })?;
        let whole = if complete { self.coming.remove(&key) } else { None };
        if complete {
            self.large.retain(|it| *it != key);
        }
        self.grant();
        Ok(whole.map(|whole| {
            let (of, bytes) = whole.finish();
            self.done(of, bytes)
        }))
    }

    fn done(&mut self, of: MemberSet, bytes: Vec<u8>) -> Part {
        self.owed = self.owed.difference(&of);
        self.contributed += of.len();
        Part { of, bytes }
    }

    fn count(&mut self, total: u64) -> Result<()> {
        // Merged parts are not kept, so only each one's size counts.
        self.total = if self.merges { total } else { self.total.saturating_add(total) };
        if total > MAX_PART_BYTES || self.total > MAX_TOTAL_BYTES {
            let message = format!("contributions of more than {MAX_TOTAL_BYTES} bytes");
            let hint = Some("reduce them, or gather them in portions".to_owned());
            return Err(Error::Invalid { message, hint });
        }
        Ok(())
    }

    fn grant(&mut self) {
        for key in self.large.iter().take(self.at_once) {
            if let Some(more) = self.coming.get_mut(key).and_then(Assembly::ask) {
                self.credit.push((key.0, key.1, more));
            }
        }
    }

    /// Takes the credit to give: node, part number, bytes.
    pub(super) fn take_credit(&mut self) -> Vec<(NodeId, u32, u32)> {
        std::mem::take(&mut self.credit)
    }

    fn miss(&mut self, of: &MemberSet, why: &Failure) {
        let fresh = self.owed.intersection(of);
        self.owed = self.owed.difference(&fresh);
        self.coming.retain(|_, assembly| assembly.members().intersection(&fresh).is_empty());
        self.large.retain(|key| self.coming.contains_key(key));
        self.grant();
        for member in fresh.iter() {
            if self.ended.contains(member) {
                self.members -= 1;
            } else {
                self.missing.insert(member, why.clone());
            }
        }
    }

    /// Marks the members on lost nodes as missing.
    pub(super) fn lose(&mut self, nodes: &NodeSet, reason: &str) {
        let of = self.owed.on(nodes);
        self.miss(&of, &Failure::new(Kind::Lost, format!("its node was lost: {reason}")));
    }

    /// Rejects a contribution that cannot be used.
    pub(super) fn refuse(&mut self, of: MemberSet, why: Failure) {
        self.contributed -= of.len();
        self.owed = self.owed.union(&of);
        self.miss(&of, &why);
    }

    /// Handles the timeout: all members still owed are missing.
    pub(super) fn expire(&mut self) {
        let owed = self.owed.clone();
        self.miss(&owed, &Failure::new(Kind::TimedOut, "it did not contribute in time"));
    }

    /// Whether no further notice can change the result.
    pub(super) fn is_over(&self, policy: Policy) -> bool {
        self.owed.is_empty() || !policy.allows(self.members, self.missing.len() as u64)
    }

    /// Ends the operation.
    pub(super) fn conclude(
        self,
        phase: &'static str,
        policy: Policy,
        host: &dyn Fn(Member) -> String,
    ) -> Result<Outcome> {
        let named = |(member, why): (Member, Failure)| Missing { member, host: host(member), why };
        let count = self.missing.len() as u64;
        let missing: Vec<Missing> = self.missing.into_iter().map(named).collect();
        if self.members == 0 && policy != Policy::BestEffort {
            return Err(Error::Invalid {
                message: format!("{phase}: all daemons had ended before, without a contribution"),
                hint: Some("see how they ended, and what they printed".to_owned()),
            });
        }
        if policy.allows(self.members, count) {
            return Ok(Outcome { missing, contributed: self.contributed });
        }
        Err(Error::Incomplete { phase, members: self.members, missing })
    }
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::channel::PART_WINDOW_BYTES;
    use gantry_shared::wire::message::Blob;
    use gantry_types::id::DaemonId;

    use super::*;

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), daemon: DaemonId(1) }
    }

    fn members(nodes: impl IntoIterator<Item = u32>) -> MemberSet {
        nodes.into_iter().map(member).collect()
    }

    fn part(number: u32, of: MemberSet, total: u64, bytes: &[u8]) -> ChannelNotice {
        ChannelNotice::Part { operation: 1, part: number, of, total, bytes: Blob(bytes.to_vec()) }
    }

    fn collecting(nodes: u32, merges: bool) -> Collecting {
        Collecting::new(members(0..nodes), MemberSet::default(), merges)
    }

    fn conclude(collecting: Collecting, policy: Policy) -> Result<(u64, Vec<u32>)> {
        let outcome = collecting.conclude("testing", policy, &|member| member.node.to_string())?;
        Ok((outcome.contributed, outcome.missing.iter().map(|missing| missing.member.node.0).collect()))
    }

    #[test]
    fn a_gather_is_over_with_the_last_part_and_takes_each_once() {
        let mut all = collecting(2, false);
        let got = all.hear(NodeId(1), part(1, members([1]), 1, b"b")).unwrap();
        assert_eq!(got, Some(Part { of: members([1]), bytes: b"b".to_vec() }));
        assert_eq!(all.hear(NodeId(1), part(1, members([1]), 1, b"b")).unwrap(), None, "twice");
        assert_eq!(all.hear(NodeId(1), part(1, members([0]), 1, b"b")).unwrap(), None, "somebody else's");
        assert_eq!(all.hear(NodeId(5), part(1, members([5]), 1, b"b")).unwrap(), None, "nobody's");
        assert_eq!(all.hear(NodeId(0), part(FIRST_MADE, members([0, 1]), 1, b"b")).unwrap(), None, "merged");
        assert!(!all.is_over(Policy::BestEffort));
        assert!(all.hear(NodeId(0), part(1, members([0]), 0, b"")).unwrap().is_some());
        assert!(all.is_over(Policy::All));
        assert_eq!(conclude(all, Policy::All).unwrap(), (2, vec![]));
    }

    #[test]
    fn a_large_part_comes_on_credit_and_not_without() {
        let total = 3 * u64::from(PART_WINDOW_BYTES);
        let mut all = collecting(2, true);
        let chunk = vec![7; CHUNK_BYTES];
        assert_eq!(all.hear(NodeId(0), part(FIRST_MADE, members([0]), total, &chunk)).unwrap(), None);
        assert_eq!(all.take_credit(), [(NodeId(0), FIRST_MADE, PART_WINDOW_BYTES)]);
        assert_eq!(all.hear(NodeId(1), part(FIRST_MADE, members([1]), total, &chunk)).unwrap(), None);
        assert_eq!(all.take_credit(), [], "one large part after the other");
        let mut sent = CHUNK_BYTES as u64;
        let whole = loop {
            let bytes = vec![7; CHUNK_BYTES.min(usize::try_from(total - sent).unwrap())];
            sent += bytes.len() as u64;
            if let Some(whole) = all.feed(NodeId(0), FIRST_MADE, &bytes).unwrap() {
                break whole;
            }
        };
        assert_eq!((whole.bytes.len() as u64, whole.of), (total, members([0])));
        assert!(all.take_credit().iter().any(|(node, ..)| *node == NodeId(1)), "the other one's turn");
        assert!(all.feed(NodeId(1), FIRST_MADE, &vec![7; PART_WINDOW_BYTES as usize + 1]).is_err());
    }

    #[test]
    fn too_much_is_refused_before_it_comes() {
        let mut all = collecting(20, false);
        let chunk = vec![0; CHUNK_BYTES];
        let mut hear = |node| all.hear(NodeId(node), part(1, members([node]), MAX_PART_BYTES, &chunk));
        assert!((0..16).all(|node| hear(node).is_ok()));
        assert!(matches!(hear(16), Err(Error::Invalid { .. })));
        let mut all = collecting(1, true);
        assert!(all.hear(NodeId(0), part(1, members([0]), MAX_PART_BYTES + 1, &chunk)).is_err());
    }

    #[test]
    fn the_policy_decides_what_a_loss_means() {
        let lossy = || {
            let mut all = collecting(3, false);
            all.hear(NodeId(0), part(1, members([0]), 1, b"a")).unwrap();
            all.lose(&NodeSet::from_range(NodeId(2)..=NodeId(2)), "cut");
            all
        };
        assert!(lossy().is_over(Policy::All) && lossy().is_over(Policy::Quorum(3)));
        assert!(!lossy().is_over(Policy::Quorum(2)) && !lossy().is_over(Policy::BestEffort));
        let error = conclude(lossy(), Policy::All).unwrap_err();
        assert!(
            matches!(&error, Error::Incomplete { members: 3, missing, .. } if missing[0].member == member(2)),
            "{error}"
        );
        let mut late = lossy();
        late.expire();
        assert!(late.is_over(Policy::BestEffort));
        assert_eq!(conclude(late, Policy::BestEffort).unwrap(), (1, vec![1, 2]));
    }

    #[test]
    fn who_had_ended_before_is_not_missed_but_may_have_contributed() {
        let mut all = Collecting::new(members(0..3), members([0, 1]), false);
        all.hear(NodeId(0), part(1, members([0]), 1, b"a")).unwrap();
        all.hear(NodeId(2), part(1, members([2]), 1, b"c")).unwrap();
        let gone = Failure::new(Kind::Gone, "ended");
        all.hear(NodeId(1), ChannelNotice::Missing { operation: 1, of: members([1]), why: gone }).unwrap();
        assert!(all.is_over(Policy::All));
        assert_eq!(conclude(all, Policy::All).unwrap(), (2, vec![]));
    }

    #[test]
    fn it_is_an_error_when_all_had_ended_before_and_left_nothing() {
        let all_ended = || {
            let mut all = Collecting::new(members([0, 1]), members([0, 1]), true);
            all.expire();
            all
        };
        assert!(matches!(conclude(all_ended(), Policy::All), Err(Error::Invalid { .. })));
        assert!(matches!(conclude(all_ended(), Policy::Quorum(1)), Err(Error::Invalid { .. })));
        assert_eq!(conclude(all_ended(), Policy::BestEffort).unwrap(), (0, vec![]));
    }

    #[test]
    fn the_first_bytes_of_somebody_who_is_lost_are_forgotten() {
        let mut all = collecting(1, true);
        all.hear(NodeId(0), part(1, members([0]), 100_000, &[0; CHUNK_BYTES])).unwrap();
        all.lose(&NodeSet::first_n(1), "cut");
        assert!(all.is_over(Policy::BestEffort) && all.coming.is_empty() && all.large.is_empty());
    }

    #[test]
    fn what_a_filter_refuses_is_missing() {
        let mut all = collecting(1, true);
        let got = all.hear(NodeId(0), part(1, members([0]), 1, b"a")).unwrap().unwrap();
        all.refuse(got.of, Failure::new(Kind::Protocol, "no numbers"));
        assert_eq!(conclude(all, Policy::BestEffort).unwrap(), (0, vec![0]));
    }
}
