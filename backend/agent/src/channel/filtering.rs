//! Merging by the filters that come along: little where everything else waits for it, much on a thread of its own.
//!
//! A tree of many megabytes takes longer to merge than orders and answers may wait. So once an operation has come to [`AT_ONCE_BYTES`], what came of it is a [`Batch`], which somebody
//! who may block [merges](Batch::merge) and brings back. There is one batch of an operation at a time; what comes meanwhile waits in the order in which it came, and is the next.

use gantry_shared::wire::channel::{MemberSet, PART_WINDOW_BYTES};
use gantry_types::error::Failure;
use gantry_types::filter::Reduce;

/// What all parts of an operation may have to be merged as they come.
const AT_ONCE_BYTES: usize = 256 * 1024;

/// What a filter has made of an operation's parts on this node.
#[derive(Debug)]
pub(super) struct Filtering {
    state: State,
    waiting: Vec<(MemberSet, Vec<u8>)>,
    /// What of all parts is neither merged nor on its way here.
    pending_bytes: usize,
}

#[derive(Debug)]
enum State {
    Here(Kept),
    /// In a batch.
    Away,
    /// It has given its result.
    Given,
}

/// What is merged, and whose contributions are in it.
struct Kept {
    reduce: Box<dyn Reduce>,
    of: MemberSet,
    /// What all parts had that are in it.
    bytes: usize,
}

/// Parts that are too much to be merged where everything else waits.
#[derive(Debug)]
pub(crate) struct Batch {
    kept: Kept,
    parts: Vec<(MemberSet, Vec<u8>)>,
    /// Nothing more is to come.
    complete: bool,
}

/// What became of a [`Batch`].
#[derive(Debug)]
pub(crate) struct Merged {
    refused: Vec<(MemberSet, Failure)>,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Kept(Kept),
    Given(Option<(MemberSet, Vec<u8>)>),
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing for now.
    Wait,
    /// The result goes up; none when there were no parts, or it cannot be given.
    Give(Option<(MemberSet, Vec<u8>)>),
    /// These are to be merged.
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

    /// Whether so much waits to be merged that no more should come.
    pub(super) fn is_full(&self) -> bool {
        self.pending_bytes > PART_WINDOW_BYTES as usize
    }

    /// A whole part.
    pub(super) fn take(&mut self, of: MemberSet, part: Vec<u8>, refused: &mut Vec<(MemberSet, Failure)>) {
        match &mut self.state {
            State::Here(kept) if self.waiting.is_empty() && kept.bytes + part.len() <= AT_ONCE_BYTES => {
                refused.extend(kept.take(of, &part));
            }
            State::Here(_) | State::Away => {
                self.pending_bytes += part.len();
                self.waiting.push((of, part));
            }
            // What comes now, nobody has asked for.
            State::Given => {}
        }
    }

    /// Goes on as far as it can; `complete`: nothing more is to come.
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

    /// A batch has come back; gives what is to go up.
    pub(super) fn back(
        &mut self,
        merged: Merged,
        refused: &mut Vec<(MemberSet, Failure)>,
    ) -> Option<(MemberSet, Vec<u8>)> {
        refused.extend(merged.refused);
        self.pending_bytes = self.waiting.iter().map(|(_, part)| part.len()).sum();
        match merged.outcome {
            Outcome::Kept(kept) => {
                self.state = State::Here(kept);
                None
            }
            Outcome::Given(result) => {
                self.state = State::Given;
                result
            }
        }
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
        let outcome = if complete { Outcome::Given(kept.give(&mut refused)) } else { Outcome::Kept(kept) };
        Merged { refused, outcome }
    }
}
