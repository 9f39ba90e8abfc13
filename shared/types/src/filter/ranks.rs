//! [`Filter::RankSetUnion`](super::Filter::RankSetUnion): the union of the rank sets of all nodes.
//!
//! A part is the set's ranges: for each how many ranks are missing before it (one is, between two ranges, and is not counted), and how many follow its first
//! one. A million ranks in a row are five bytes.

use super::bytes::{Reader, invalid, write_ranges};
use super::merge::{Merge, bounded};
use crate::error::Failure;
use crate::rank_set::{MAX_RANGES, RankSet};

/// The set as a part of a reduction.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for more than [`MAX_RANGES`] ranges.
pub fn encode(set: &RankSet) -> Result<Vec<u8>, Failure> {
    check_ranges(set)?;
    let mut part = Vec::new();
    write_ranges(set, &mut part);
    Ok(part)
}

/// The set of a part; the empty one when nothing was contributed.
///
/// # Errors
/// [`Kind::Protocol`](crate::error::Kind::Protocol) when it is no such part.
pub fn decode(part: &[u8]) -> Result<RankSet, Failure> {
    Reader::new(bounded(part)?).all_ranges()
}

/// The union of both sets.
pub(super) fn unite(ours: &RankSet, theirs: &RankSet) -> Result<RankSet, Failure> {
    let union = ours.union(theirs);
    check_ranges(&union)?;
    Ok(union)
}

fn check_ranges(set: &RankSet) -> Result<(), Failure> {
    match set.ranges().len() {
        count if count > MAX_RANGES => Err(invalid(format!("a set of more than {MAX_RANGES} ranges"))),
        _ => Ok(()),
    }
}

/// The union so far.
pub(super) struct Union(RankSet);

impl Merge for Union {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        decode(part).map(Self)
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        self.0 = unite(&self.0, &other.0)?;
        Ok(())
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        encode(&self.0)
    }
}
