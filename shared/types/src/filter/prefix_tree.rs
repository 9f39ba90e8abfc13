//! [`Filter::PrefixTree`](super::Filter::PrefixTree): the stacks of all ranks as one tree. Ranks that came the same way share a branch, so a program
//! of a hundred thousand ranks that hangs in two places is a tree with two ends.
//!
//! A part is the names, then the frames. Names: their number, then length and bytes of each, in the order in which frames first use them. Frames,
//! each before those that it calls, which are ascending by name: number of the name, number of frames that it calls, number of ranges, ranges as in
//! [`ranks`](super::ranks). The first frame is the outside that calls the outermost functions, and has no name. No ranges at all mean the ranks of the caller,
//! as most frames have those.

mod codec;
mod sameness;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use self::sameness::Sameness;
use super::bytes::invalid;
use super::merge::Merge;
use super::ranks::unite;
use crate::error::Failure;
use crate::rank_set::RankSet;

/// The most frames in a tree.
pub const MAX_FRAMES: usize = 262_144;

/// The most frames in one call path. Nothing here recurses, so deep paths need no stack.
pub const MAX_DEPTH: usize = 4096;

/// The most bytes in the name of a frame.
pub const MAX_NAME_BYTES: usize = 4096;

/// The most ranges in all different sets of a tree together, and the most that one merge goes through: some parts' worth. A part can name one large set
/// for each of its frames with a byte, so the bytes of a part do not bound the work.
const MAX_TREE_RANGES: usize = 8_000_000;

/// The frame that is the outside.
const OUTSIDE: usize = 0;

/// Call paths with the ranks that are in them; equal beginnings are one.
#[derive(Clone, Default)]
pub struct PrefixTree {
    /// Callers stand before their callees. Empty when there are no ranks.
    nodes: Vec<Node>,
    names: HashSet<Arc<str>>,
    /// How many ranges there are in all different sets, at most.
    ranges: usize,
}

/// A frame. Frames have one set together as long as they have the same ranks.
#[derive(Clone, Default)]
struct Node {
    ranks: Arc<RankSet>,
    calls: BTreeMap<Arc<str>, usize>,
}

/// A function of a [`PrefixTree`], reached over the frames above it, and the ranks that are in it.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    tree: &'a PrefixTree,
    name: &'a str,
    node: &'a Node,
}

impl PrefixTree {
    /// A tree without ranks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the call path of some ranks, outermost frame first. An empty path says that they are there and no more; no ranks add nothing.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid) when the path is beyond [`MAX_DEPTH`] or [`MAX_NAME_BYTES`], or the tree would pass a limit as in
    /// [`PrefixTree::merge`]. The tree is as it was then.
    pub fn add<'n>(
        &mut self,
        path: impl IntoIterator<Item = &'n str>,
        ranks: &RankSet,
    ) -> Result<(), Failure> {
        if ranks.is_empty() {
            return Ok(());
        }
        let ranks = Arc::new(ranks.clone());
        let mut branch = Self::default();
        branch.nodes.push(Node { ranks: Arc::clone(&ranks), ..Node::default() });
        for (depth, name) in path.into_iter().enumerate() {
            if name.len() > MAX_NAME_BYTES {
                return Err(invalid(format!("the name of a frame has more than {MAX_NAME_BYTES} bytes")));
            }
            if depth == MAX_DEPTH {
                return Err(invalid(format!("a call path of more than {MAX_DEPTH} frames")));
            }
            branch.push(depth, &name.into(), Arc::clone(&ranks));
        }
        self.merge(&branch)
    }

    /// Puts another tree's paths and ranks into this one.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid) when the result would have more than [`MAX_FRAMES`] or more ranges than a part has room for. The tree is as it was then.
    pub fn merge(&mut self, other: &Self) -> Result<(), Failure> {
        if other.nodes.is_empty() {
            return Ok(());
        }
        let mut places = self.places_of(other);
        let new = places.iter().filter(|place| place.is_none()).count();
        if self.nodes.len() + new > MAX_FRAMES {
            return Err(invalid(format!("a tree of more than {MAX_FRAMES} frames")));
        }
        let united = self.unite_ranks(other, &places)?;
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
            places[OUTSIDE] = Some(OUTSIDE);
        }
        for (at, ranks) in united.into_iter().enumerate() {
            // Callers come before their callees.
            let Some(place) = places[at] else { continue };
            self.nodes[place].ranks = ranks;
            for (name, call) in &other.nodes[at].calls {
                if places[*call].is_none() {
                    places[*call] = Some(self.push(place, name, Arc::default()));
                }
            }
        }
        Ok(())
    }

    /// All ranks of the tree, those without a frame too.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        self.nodes.first().map_or_else(RankSet::new, |outside| outside.ranks.as_ref().clone())
    }

    /// The outermost frames, by name.
    pub fn outermost(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        static NONE: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        self.frames_of(self.nodes.first().map_or(&NONE, |outside| &outside.calls))
    }

    /// How many frames there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    /// Whether there are no frames; there may be ranks without one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn frames_of<'a>(
        &'a self,
        calls: &'a BTreeMap<Arc<str>, usize>,
    ) -> impl ExactSizeIterator<Item = Frame<'a>> {
        calls.iter().map(|(name, at)| Frame { tree: self, name, node: &self.nodes[*at] })
    }

    /// Where each frame of the other tree is in this one.
    fn places_of(&self, other: &Self) -> Vec<Option<usize>> {
        let mut places = vec![None; other.nodes.len()];
        if let Some(place) = places.first_mut() {
            *place = (!self.nodes.is_empty()).then_some(OUTSIDE);
        }
        for (at, node) in other.nodes.iter().enumerate() {
            let Some(place) = places[at] else { continue };
            for (name, call) in &node.calls {
                places[*call] = self.nodes[place].calls.get(name).copied();
            }
        }
        places
    }

    /// For each frame of the other tree the ranks that it has here afterwards, equal unions made once.
    fn unite_ranks(&mut self, other: &Self, places: &[Option<usize>]) -> Result<Vec<Arc<RankSet>>, Failure> {
        let mut made: HashMap<(*const RankSet, *const RankSet), Arc<RankSet>> = HashMap::new();
        let (mut seen, mut gone_through, mut added) = (HashSet::new(), 0, 0);
        let mut united = Vec::with_capacity(places.len());
        for (node, place) in other.nodes.iter().zip(places) {
            let theirs = &node.ranks;
            let Some(ours) = place.map(|place| &self.nodes[place].ranks) else {
                if seen.insert(Arc::as_ptr(theirs)) {
                    added += theirs.ranges().len();
                }
                united.push(Arc::clone(theirs));
                continue;
            };
            let pair = (Arc::as_ptr(ours), Arc::as_ptr(theirs));
            if let Some(union) = made.get(&pair) {
                united.push(Arc::clone(union));
                continue;
            }
            gone_through += ours.ranges().len() + theirs.ranges().len();
            if gone_through > MAX_TREE_RANGES {
                return Err(too_many_ranges());
            }
            let union = unite(ours, theirs)?;
            let union = if union == **ours { Arc::clone(ours) } else { Arc::new(union) };
            added += union.ranges().len();
            made.insert(pair, Arc::clone(&union));
            united.push(union);
        }
        self.account(added)?;
        Ok(united)
    }

    /// Counts ranges that come in. What they replace is only looked for when there might be too many.
    fn account(&mut self, added: usize) -> Result<(), Failure> {
        if self.ranges + added > MAX_TREE_RANGES {
            let mut seen = HashSet::new();
            let different = self.nodes.iter().filter(|node| seen.insert(Arc::as_ptr(&node.ranks)));
            self.ranges = different.map(|node| node.ranks.ranges().len()).sum();
        }
        // Before the exact count is passed some of what comes in may replace some of what is there.
        if added > MAX_TREE_RANGES || self.ranges > MAX_TREE_RANGES {
            return Err(too_many_ranges());
        }
        self.ranges += added;
        Ok(())
    }

    /// Adds a frame that is called by the one at `caller`, and says where it is.
    fn push(&mut self, caller: usize, name: &Arc<str>, ranks: Arc<RankSet>) -> usize {
        let name = self.names.get(name).cloned().unwrap_or_else(|| {
            self.names.insert(Arc::clone(name));
            Arc::clone(name)
        });
        let at = self.nodes.len();
        self.nodes.push(Node { ranks, ..Node::default() });
        self.nodes[caller].calls.insert(name, at);
        at
    }
}

fn too_many_ranges() -> Failure {
    invalid(format!("a tree with more than {MAX_TREE_RANGES} ranges of ranks to go through"))
}

impl<'a> Frame<'a> {
    /// The function's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The ranks that are in it, itself or in a function that it has called.
    #[must_use]
    pub fn ranks(&self) -> &'a RankSet {
        &self.node.ranks
    }

    /// The frames that it has called, by name.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = Frame<'a>> + use<'a> {
        self.tree.frames_of(&self.node.calls)
    }
}

impl Merge for PrefixTree {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        Self::decode(part)
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        Self::merge(self, &other)
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        self.encode()
    }
}

/// The same paths and ranks, however they came in.
impl PartialEq for PrefixTree {
    fn eq(&self, other: &Self) -> bool {
        let mut same = Sameness::default();
        let places = self.places_of(other);
        let mut nodes = other.nodes.iter().zip(places);
        self.nodes.len() == other.nodes.len()
            && nodes.all(|(node, place)| {
                place.is_some_and(|place| same.are_same(&self.nodes[place].ranks, &node.ranks))
            })
    }
}

impl Eq for PrefixTree {}

/// Prints how large it is.
impl fmt::Debug for PrefixTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixTree").field("ranks", &self.ranks()).field("frames", &self.len()).finish()
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.name, self.node.ranks)
    }
}

#[cfg(test)]
mod tests;
