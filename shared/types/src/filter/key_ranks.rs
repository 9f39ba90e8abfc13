//! [`Filter::KeyRanks`](super::Filter::KeyRanks): groups ranks by key. Keys are any bytes (a state, a checksum, a
//! host's kernel). The ranks of equal keys are united.
//!
//! A part is, for each key in ascending order: its length, its bytes, the number of ranges, the ranges as in [`ranks`](super::ranks).

use std::collections::BTreeMap;

use super::bytes::{Reader, garbled, invalid, write_bytes, write_length, write_ranges};
use super::merge::{Merge, bounded};
use super::ranks::unite;
use crate::error::Failure;
use crate::rank_set::{MAX_RANGES, RankSet};

/// The most bytes in a key.
pub const MAX_KEY_BYTES: usize = 65_536;

/// The most keys in a part.
pub const MAX_KEYS: usize = 262_144;

/// The map as a part of a reduction.
///
/// # Errors
/// [`Kind::Invalid`](crate::error::Kind::Invalid) for a map that is beyond [`MAX_KEYS`], [`MAX_KEY_BYTES`] or [`MAX_RANGES`].
pub fn encode(map: &BTreeMap<Vec<u8>, RankSet>) -> Result<Vec<u8>, Failure> {
    if map.len() > MAX_KEYS {
        return Err(invalid(format!("more than {MAX_KEYS} keys")));
    }
    let mut part = Vec::new();
    for (key, set) in map {
        if key.len() > MAX_KEY_BYTES || set.ranges().len() > MAX_RANGES {
            let limits = format!("{MAX_KEY_BYTES} bytes or {MAX_RANGES} ranges");
            return Err(invalid(format!("a key of more than {limits}")));
        }
        write_bytes(key, &mut part);
        write_length(set.ranges().len(), &mut part);
        write_ranges(set, &mut part);
    }
    Ok(part)
}

/// The map of a part; the empty one when nothing was contributed.
///
/// # Errors
/// [`Kind::Protocol`](crate::error::Kind::Protocol) when it is no such part.
pub fn decode(part: &[u8]) -> Result<BTreeMap<Vec<u8>, RankSet>, Failure> {
    let mut reader = Reader::new(bounded(part)?);
    let mut map: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
    while !reader.is_empty() {
        if map.len() == MAX_KEYS {
            return Err(garbled(&format!("more than {MAX_KEYS} keys")));
        }
        let key = reader.bytes(MAX_KEY_BYTES, "bytes of a key")?;
        if map.last_key_value().is_some_and(|(last, _)| last.as_slice() >= key) {
            return Err(garbled("keys are not ascending"));
        }
        let count = reader.length(MAX_RANGES, "ranges of a set")?;
        map.insert(key.to_vec(), reader.ranges(count)?);
    }
    Ok(map)
}

/// The ranks by key so far.
pub(super) struct ByKey(BTreeMap<Vec<u8>, RankSet>);

impl Merge for ByKey {
    fn read(part: &[u8]) -> Result<Self, Failure> {
        decode(part).map(Self)
    }

    fn merge(&mut self, other: Self) -> Result<(), Failure> {
        let new = other.0.keys().filter(|key| !self.0.contains_key(*key)).count();
        if self.0.len() + new > MAX_KEYS {
            return Err(invalid(format!("more than {MAX_KEYS} keys")));
        }
        let united = |(key, set): (_, RankSet)| match self.0.get(&key) {
            Some(ours) => unite(ours, &set).map(|set| (key, set)),
            None => Ok((key, set)),
        };
        // Unite all before replacing one, so that an error leaves the map unchanged.
        let united: Vec<(Vec<u8>, RankSet)> = other.0.into_iter().map(united).collect::<Result<_, _>>()?;
        self.0.extend(united);
        Ok(())
    }

    fn write(&self) -> Result<Vec<u8>, Failure> {
        encode(&self.0)
    }
}
