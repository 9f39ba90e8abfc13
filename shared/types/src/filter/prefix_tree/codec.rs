//! Trees as parts: read in the one form that is written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::MAX_PART_BYTES;
use super::super::bytes::{Reader, garbled, invalid, write_bytes, write_length, write_ranges};
use super::sameness::Sameness;
use super::{MAX_DEPTH, MAX_FRAMES, MAX_NAME_BYTES, Node, OUTSIDE, PrefixTree};
use crate::error::Failure;
use crate::rank_set::{MAX_RANGES, RankSet};

impl PrefixTree {
    /// The tree as a part of a reduction.
    ///
    /// # Errors
    /// [`Kind::Invalid`](crate::error::Kind::Invalid) when it would be longer than [`MAX_PART_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, Failure> {
        let Some(outside) = self.nodes.first() else { return Ok(Vec::new()) };
        let mut names = Names::default();
        let mut same = Sameness::default();
        let mut frames = Vec::new();
        write_length(outside.calls.len(), &mut frames);
        write_length(outside.ranks.ranges().len(), &mut frames);
        write_ranges(&outside.ranks, &mut frames);
        let mut waiting: Vec<_> =
            outside.calls.iter().rev().map(|(name, call)| (outside, name, *call)).collect();
        while let Some((caller, name, at)) = waiting.pop() {
            let node = &self.nodes[at];
            write_length(names.number(name), &mut frames);
            write_length(node.calls.len(), &mut frames);
            if same.are_same(&node.ranks, &caller.ranks) {
                write_length(0, &mut frames);
            } else {
                write_length(node.ranks.ranges().len(), &mut frames);
                write_ranges(&node.ranks, &mut frames);
            }
            // Sets that are one in memory may have to be written many times.
            if frames.len() + names.bytes > MAX_PART_BYTES {
                return Err(invalid(format!("a tree of more than {MAX_PART_BYTES} bytes")));
            }
            waiting.extend(node.calls.iter().rev().map(|(name, call)| (node, name, *call)));
        }
        let mut part = Vec::with_capacity(names.bytes + frames.len());
        write_length(names.ordered.len(), &mut part);
        names.ordered.iter().for_each(|name| write_bytes(name.as_bytes(), &mut part));
        part.extend(frames);
        Ok(part)
    }

    /// The tree of a part; one without ranks when nothing was contributed.
    ///
    /// # Errors
    /// [`Kind::Protocol`](crate::error::Kind::Protocol) when it is no such part.
    pub fn decode(part: &[u8]) -> Result<Self, Failure> {
        let mut tree = Self::default();
        if part.is_empty() {
            return Ok(tree);
        }
        let mut reader = Reader::new(super::super::bounded(part)?);
        let names = read_names(&mut reader)?;
        let mut names_used = 0;
        let calls = reader.length(MAX_FRAMES, "frames")?;
        let ranks = read_ranks(&mut reader)?.ok_or_else(|| garbled("a tree has no ranks"))?;
        tree.ranges = ranks.ranges().len();
        tree.nodes.push(Node { ranks: Arc::new(ranks), ..Node::default() });
        // The frames above the next one: where each is, and how many of its calls are to come.
        let mut path = vec![(OUTSIDE, calls)];
        while let Some((caller, calls)) = path.last_mut() {
            let caller = *caller;
            match calls.checked_sub(1) {
                Some(left) => *calls = left,
                None => {
                    path.pop();
                    continue;
                }
            }
            if path.len() > MAX_DEPTH || tree.nodes.len() == MAX_FRAMES {
                return Err(garbled(&format!(
                    "more than {MAX_DEPTH} frames in a path or {MAX_FRAMES} in all"
                )));
            }
            let number = reader.length(names_used, "names by then")?;
            names_used = names_used.max(number + 1);
            let name = names.get(number).ok_or_else(|| garbled("a frame has a name that is not there"))?;
            let calls = reader.length(MAX_FRAMES, "frames")?;
            let ranks = tree.read_ranks_below(caller, &mut reader)?;
            let ascending = tree.nodes[caller].calls.last_key_value().is_none_or(|(last, _)| last < name);
            if !ascending {
                return Err(garbled("frames are not ascending"));
            }
            path.push((tree.push(caller, name, ranks), calls));
        }
        match names_used == names.len() && reader.is_empty() {
            true => Ok(tree),
            false => Err(garbled("there is more than its frames need")),
        }
    }

    /// The ranks of a frame that is called by the one at `caller`.
    fn read_ranks_below(&mut self, caller: usize, from: &mut Reader<'_>) -> Result<Arc<RankSet>, Failure> {
        let above = &self.nodes[caller].ranks;
        match read_ranks(from)? {
            None => Ok(Arc::clone(above)),
            Some(ranks) if ranks == **above => Err(garbled("a frame repeats the ranks of its caller")),
            Some(ranks) => {
                self.ranges += ranks.ranges().len();
                Ok(Arc::new(ranks))
            }
        }
    }
}

/// All names; each is there once.
fn read_names(from: &mut Reader<'_>) -> Result<Vec<Arc<str>>, Failure> {
    let count = from.length(MAX_FRAMES, "names")?;
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for _ in 0..count {
        let bytes = from.bytes(MAX_NAME_BYTES, "bytes of a name")?;
        let name = std::str::from_utf8(bytes).map_err(|_| garbled("a name is not text"))?;
        if !seen.insert(name) {
            return Err(garbled("a name is there twice"));
        }
        names.push(name.into());
    }
    Ok(names)
}

/// A set, `None` for one without ranges.
fn read_ranks(from: &mut Reader<'_>) -> Result<Option<RankSet>, Failure> {
    let count = from.length(MAX_RANGES, "ranges of a set")?;
    if count == 0 { Ok(None) } else { from.ranges(count).map(Some) }
}

/// Names as they come up, each with its number.
#[derive(Default)]
struct Names<'a> {
    numbers: HashMap<&'a str, usize>,
    ordered: Vec<&'a str>,
    bytes: usize,
}

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a str) -> usize {
        let next = self.ordered.len();
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.ordered.push(name);
            // With its length.
            self.bytes += name.len() + 2;
        }
        number
    }
}
