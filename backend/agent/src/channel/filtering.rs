//! Merging by the built-in filters: a small amount on the relay's own thread, a large amount on a separate thread.
//!
//! A tree of many megabytes takes longer to merge than orders and answers may wait. So once the parts of an operation
//! exceed [`AT_ONCE_BYTES`], they become a [`Batch`]. A thread that may block [merges](Batch::merge) it and returns it.
//! An operation has one batch at a time. Parts that arrive meanwhile wait in order and form the next batch.

use gantry_shared::wire::channel::{MemberSet, PART_WINDOW_BYTES};
use gantry_types::error::Failure;
use gantry_types::filter::Reduce;

/// The limit on an operation's parts, in total, for merging as they arrive.
const AT_ONCE_BYTES: usize = 256 * 1024;

/// The merge state of an operation on this node.
#[derive(Debug)]
pub(super) struct Filtering {
    state: State,
    waiting: Vec<(MemberSet, Vec<u8>)>,
    /// Bytes of whole parts that are not merged yet.
    pending_bytes: usize,
}

#[derive(Debug)]
enum State {
    Here(Kept),
    /// In a batch.
    Away,
    /// It has returned its result.
    Given,
}

/// The merged result so far, and the members in it.
struct Kept {
    reduce: Box<dyn Reduce>,
    of: MemberSet,
    /// Total bytes of the parts in it.
    bytes: usize,
}

/// Parts that are too large to merge on the relay's thread.
#[derive(Debug)]
pub(crate) struct Batch {
    kept: Kept,
    parts: Vec<(MemberSet, Vec<u8>)>,
    /// No more parts will arrive.
    complete: bool,
}

/// The result of merging a [`Batch`].
#[derive(Debug)]
pub(crate) struct Merged {
    refused: Vec<(MemberSet, Failure)>,
    /// None: it has returned its result.
    kept: Option<Kept>,
    result: Option<(MemberSet, Vec<u8>)>,
}

/// The next step of an operation.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing for now.
    Wait,
    /// The result goes up. None when there were no parts, or the filter failed.
    Give(Option<(MemberSet, Vec<u8>)>),
    /// The caller merges these.
    Merge(Batch),
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("of", &self.of).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Filtering {
    pub(super) fn start(reduce: Box<dyn Reduce>) -> Self {
        let kept = Kept { reduce, of: MemberSet::default(), bytes: 0 };
        Self { state: State::Here(kept), waiting: Vec::new(), pending_bytes: 0 }
    }

    /// Whether so many bytes wait to be merged that no more should arrive.
    pub(super) fn is_full(&self) -> bool {
        self.pending_bytes > PART_WINDOW_BYTES as usize
    }

    /// Takes a complete part.
    pub(super) fn take(&mut self, of: MemberSet, part: Vec<u8>, refused: &mut Vec<(MemberSet, Failure)>) {
        match &mut self.state {
            State::Here(kept) if self.waiting.is_empty() && kept.bytes + part.len() <= AT_ONCE_BYTES => {
                refused.extend(kept.take(of, &part));
            }
            State::Here(_) | State::Away => {
                self.pending_bytes += part.len();
                self.waiting.push((of, part));
            }
            // No operation has requested this part.
            State::Given => {}
        }
    }

    /// Goes on as far as possible. `complete`: no more parts will arrive.
    pub(super) fn go_on(&mut self, complete: bool, refused: &mut Vec<(MemberSet, Failure)>) -> Step {
        match std::mem::replace(&mut self.state, State::Given) {
            State::Here(kept) if !self.waiting.is_empty() || (complete && kept.bytes > AT_ONCE_BYTES) => {
                self.state = State::Away;
                Step::Merge(Batch { kept, parts: std::mem::take(&mut self.waiting), complete })
            }
            State::Here(kept) if complete => Step::Give(kept.give(refused)),
            unchanged => {
                self.state = unchanged;
                Step::Wait
            }
        }
    }

    /// Takes the result of a batch. Returns what goes up.
    pub(super) fn back(
        &mut self,
        merged: Merged,
        refused: &mut Vec<(MemberSet, Failure)>,
    ) -> Option<(MemberSet, Vec<u8>)> {
        refused.extend(merged.refused);
        self.pending_bytes = self.waiting.iter().map(|(_, part)| part.len()).sum();
        self.state = merged.kept.map_or(State::Given, State::Here);
        merged.result
    }
}

impl Kept {
    fn take(&mut self, of: MemberSet, part: &[u8]) -> Option<(MemberSet, Failure)> {
        match self.reduce.take(part) {
            Ok(()) => {
                self.bytes += part.len();
                self.of = self.of.union(&of);
                None
            }
            Err(why) => Some((of, why)),
        }
    }

    fn give(self, refused: &mut Vec<(MemberSet, Failure)>) -> Option<(MemberSet, Vec<u8>)> {
        if self.of.is_empty() {
            return None;
        }
        match self.reduce.give() {
            Ok(bytes) => Some((self.of, bytes)),
            Err(why) => {
                refused.push((self.of, why));
                None
            }
        }
    }
}

impl Batch {
    /// Merges. May take seconds.
    pub(crate) fn merge(self) -> Merged {
        let Self { mut kept, parts, complete } = self;
        let mut refused: Vec<_> = parts.into_iter().filter_map(|(of, part)| kept.take(of, &part)).collect();
        let (kept, result) = if complete { (None, kept.give(&mut refused)) } else { (Some(kept), None) };
        Merged { refused, kept, result }
    }
}
