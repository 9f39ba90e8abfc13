//! Reductions: how contributions of a tool's daemons become one result while they go up the tree of agents.
//!
//! Every agent merges the contributions of its node's daemons and of the agents below it, and passes one part on. The
//! result must not depend on the shape of the tree. So for every filter here:
//!
//! - a partial result is a contribution again: both have one encoding, and no bytes at all stand for "nothing contributed";
//! - merging is associative and commutative, also at the ends of the numbers; [`Filter::Concatenate`] orders its parts by member, so
//!   there it only matters for several parts of one member;
//! - a part is accepted or refused as a whole: a bad part does not spoil the result.
//!
//! Parts come from other programs. They are checked before memory is taken for them, and read only in the one form that is written.
//! [`numbers`], [`ranks`], [`key_ranks`], [`prefix_tree`] and [`concatenate`] have each filter's encoder and decoder.

mod bytes;
pub mod concatenate;
mod exact;
pub mod key_ranks;
mod merge;
pub mod numbers;
pub mod prefix_tree;
pub mod ranks;

use serde::{Deserialize, Serialize};

pub use self::merge::MAX_PART_BYTES;
use self::merge::{Merge, bounded};
pub use self::prefix_tree::PrefixTree;
use crate::error::{Failure, Kind};

/// The operation on contributions on their way up the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// All parts, in the order of the members that they come from: [`concatenate`].
    Concatenate,
    /// The sum of each place of vectors of one length: [`numbers`].
    Sum,
    /// The smallest value at each place of vectors of one length: [`numbers`].
    Min,
    /// The largest value at each place of vectors of one length: [`numbers`].
    Max,
    /// The union of sets of ranks: [`ranks`].
    RankSetUnion,
    /// For each key the union of its ranks: [`key_ranks`].
    KeyRanks,
    /// One tree of all call paths, with the ranks that are in each frame: [`prefix_tree`].
    PrefixTree,
    /// A tool's own filter, by its name. The tool registers a [`Reduce`] for it.
    Custom(String),
}

impl Filter {
    /// The filter of that name, as the interfaces of other languages have it: `sum`, `min`, `max`, `ranks`, `keys`,
    /// `stacks`, `concatenate`. Any other name is that of a filter of the tool's own.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        match name {
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "ranks" => Self::RankSetUnion,
            "keys" => Self::KeyRanks,
            "stacks" => Self::PrefixTree,
            "concatenate" => Self::Concatenate,
            own => Self::Custom(own.to_owned()),
        }
    }

    /// Starts a reduction that has no part yet.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for [`Filter::Custom`], with its name: nothing is known of it here.
    pub fn start(&self) -> Result<Box<dyn Reduce>, Failure> {
        Ok(match self {
            Self::Concatenate => Merging::<concatenate::Parts>::start(),
            Self::Sum => Merging::<numbers::Sum>::start(),
            Self::Min => Merging::<numbers::Extreme<false>>::start(),
            Self::Max => Merging::<numbers::Extreme<true>>::start(),
            Self::RankSetUnion => Merging::<ranks::Union>::start(),
            Self::KeyRanks => Merging::<key_ranks::ByKey>::start(),
            Self::PrefixTree => Merging::<PrefixTree>::start(),
            Self::Custom(name) => {
                let message = format!("reduce by the filter {name:?}: it is not registered here");
                return Err(Failure::new(Kind::Unsupported, message)
                    .with_hint("register the filter where parts are merged, or use a built-in one"));
            }
        })
    }
}

/// A reduction under way on one node: parts go in, one result comes out, which is a part again.
pub trait Reduce: Send {
    /// Merges one part: a contribution, or the result of the same reduction somewhere below.
    ///
    /// # Errors
    /// [`Kind::Protocol`] for a part of another format; [`Kind::Invalid`] for one that is incompatible with earlier
    /// parts (vectors of different lengths) or exceeds a limit. The result is then unchanged, and other parts may
    /// follow.
    fn take(&mut self, part: &[u8]) -> Result<(), Failure>;

    /// The result: no bytes when there was no part, or only such without bytes.
    ///
    /// # Errors
    /// [`Kind::Invalid`] when it would be longer than [`MAX_PART_BYTES`].
    fn give(self: Box<Self>) -> Result<Vec<u8>, Failure>;
}

/// A reduction that keeps its parts and has a function merge them at its end: for filters of the tool's own. The
/// function gets at least two parts; one part alone is the result.
pub fn reduce_at_once<F>(merge: F) -> Box<dyn Reduce>
where
    F: FnOnce(&[Vec<u8>]) -> Result<Vec<u8>, Failure> + Send + 'static,
{
    Box::new(AtOnce { merge, parts: Vec::new() })
}

struct AtOnce<F> {
    merge: F,
    parts: Vec<Vec<u8>>,
}

impl<F: FnOnce(&[Vec<u8>]) -> Result<Vec<u8>, Failure> + Send> Reduce for AtOnce<F> {
    fn take(&mut self, part: &[u8]) -> Result<(), Failure> {
        self.parts.push(part.to_vec());
        Ok(())
    }

    fn give(mut self: Box<Self>) -> Result<Vec<u8>, Failure> {
        match self.parts.len() {
            0 | 1 => Ok(self.parts.pop().unwrap_or_default()),
            _ => (self.merge)(&self.parts),
        }
    }
}

/// A reduction by a built-in filter.
struct Merging<M> {
    merged: Option<M>,
    /// The result is no longer than this.
    bytes: usize,
}

impl<M: Merge + 'static> Merging<M> {
    fn start() -> Box<dyn Reduce> {
        Box::new(Self { merged: None, bytes: 0 })
    }
}

impl<M: Merge> Merging<M> {
    /// Limits a node to the size of two parts, however many come. Parts mostly overlap, so the result's size is
    /// determined only when it might have reached the limit.
    fn make_room(&mut self, bytes: usize) -> Result<(), Failure> {
        if let Some(merged) = self.merged.as_ref().filter(|_| self.bytes + bytes > 2 * MAX_PART_BYTES) {
            self.bytes = bounded(&merged.write()?)?.len();
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl<M: Merge> Reduce for Merging<M> {
    fn take(&mut self, part: &[u8]) -> Result<(), Failure> {
        if part.is_empty() {
            return Ok(());
        }
        let read = M::read(bounded(part)?)?;
        self.make_room(part.len())?;
        match &mut self.merged {
            Some(merged) => merged.merge(read),
            nothing @ None => {
                *nothing = Some(read);
                Ok(())
            }
        }
    }

    fn give(self: Box<Self>) -> Result<Vec<u8>, Failure> {
        let part = self.merged.as_ref().map_or_else(|| Ok(Vec::new()), Merge::write)?;
        bounded(&part)?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests;
