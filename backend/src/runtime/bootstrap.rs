//! Bootstrap of a job's communication: collective operations built from messages.
//!
//! All of these are collective over all ranks of all subjobs that exchange messages: all ranks call them, in the same
//! order. A start point is any data about a process for the others, such as an address and a port; it is not
//! interpreted here.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_types::error::Kind;
use gantry_types::id::Rank;

use super::{Peer, Runtime, refused};
use crate::Error;

impl Runtime {
    /// Gives every process the data of rank 0 of each subjob, by the subjob's number. Data of other ranks is ignored.
    ///
    /// # Errors
    /// As [`Runtime::receive_from_subjobs`].
    pub fn exchange(&self, said: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let structure = self.structure(timeout)?;
        let tag = self.tag("exchange")?;
        if self.rank() != Rank(0) {
            return unpack(&self.receive_from_rank(Rank(0), &tag, timeout)?.bytes);
        }
        let count = structure.sizes.len();
        let others = || (0..).take(count).filter(|subjob| *subjob != structure.index);
        for subjob in others() {
            self.send_to_subjob(subjob, &tag, said, timeout)?;
        }
        let mut all = BTreeMap::from([(structure.index, said.to_vec())]);
        for subjob in others() {
            let from = Peer { subjob, rank: Rank(0) };
            all.insert(subjob, self.receive_from(from, &tag, timeout)?.bytes);
        }
        let all: Vec<Vec<u8>> = all.into_values().collect();
        let packed = pack(&all);
        for rank in 1..self.size() {
            self.send_to_rank(Rank(rank), &tag, &packed, timeout)?;
        }
        Ok(all)
    }

    /// Gives the job's first process the start points of all: subjob after subjob, rank after rank. All other processes
    /// get none.
    ///
    /// # Errors
    /// As [`Runtime::receive_from_subjobs`].
    pub fn master_vector(&self, start: &[u8], timeout: Duration) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let structure = self.structure(timeout)?;
        let order: Vec<u32> = (0..).take(structure.sizes.len()).collect();
        self.gather_in_order(start, &order, timeout)
    }

    /// As [`Runtime::master_vector`], but each subjob chooses its place: unique numbers from 0. The master is rank 0 of
    /// the subjob at place 0.
    ///
    /// # Errors
    /// [`Error::Refused`] in all processes if the places are not a permutation; as [`Runtime::receive_from_subjobs`].
    pub fn ordered_master_vector(
        &self,
        start: &[u8],
        place: u32,
        timeout: Duration,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let said = self.exchange(&place.to_be_bytes(), timeout)?;
        let places = said.iter().map(|place| place.as_slice().try_into().map(u32::from_be_bytes));
        let places: Result<Vec<u32>, _> = places.collect();
        let places = places.map_err(|_| refused(Kind::Protocol, "read the places of subjobs".to_owned()))?;
        let mut order: Vec<(u32, u32)> = places.iter().copied().zip(0..).collect();
        order.sort_unstable();
        if order.iter().zip(0..).any(|((place, _), expected)| *place != expected) {
            let why = format!("put subjobs into the order {places:?}: each place from 0 is taken by one");
            return Err(refused(Kind::Invalid, why));
        }
        let order: Vec<u32> = order.into_iter().map(|(_, subjob)| subjob).collect();
        self.gather_in_order(start, &order, timeout)
    }

    fn gather_in_order(
        &self,
        start: &[u8],
        order: &[u32],
        timeout: Duration,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let structure = self.structure(timeout)?;
        let tag = self.tag("vector")?;
        if self.rank() != Rank(0) {
            self.send_to_rank(Rank(0), &tag, start, timeout)?;
            return Ok(None);
        }
        let mut own = vec![start.to_vec()];
        for rank in 1..self.size() {
            own.push(self.receive_from_rank(Rank(rank), &tag, timeout)?.bytes);
        }
        let master = order.first().copied().unwrap_or_default();
        if structure.index != master {
            self.send_to_subjob(master, &tag, &pack(&own), timeout)?;
            return Ok(None);
        }
        let mut all = BTreeMap::from([(structure.index, own)]);
        for subjob in order.iter().copied().filter(|subjob| *subjob != master) {
            let from = Peer { subjob, rank: Rank(0) };
            all.insert(subjob, unpack(&self.receive_from(from, &tag, timeout)?.bytes)?);
        }
        Ok(Some(order.iter().flat_map(|subjob| all.remove(subjob).unwrap_or_default()).collect()))
    }

    /// A separate tag for every call, so that messages of a slow process do not mix with those of a fast one.
    fn tag(&self, what: &'static str) -> Result<String, Error> {
        let time = self.job()?.look(|state| {
            let times = state.gathered.entry(what).or_default();
            *times += 1;
            *times
        });
        Ok(format!("gantry/{what}/{time}"))
    }
}

/// Packs items, each with its length before it.
fn pack(items: &[Vec<u8>]) -> Vec<u8> {
    let mut packed = Vec::new();
    for item in items {
        packed.extend((item.len() as u64).to_be_bytes());
        packed.extend(item);
    }
    packed
}

fn unpack(mut packed: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let wrong = || refused(Kind::Protocol, "read the messages of subjobs".to_owned());
    let mut items = Vec::new();
    while !packed.is_empty() {
        let (length, rest) = packed.split_first_chunk().ok_or_else(wrong)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| wrong())?;
        let (item, rest) = rest.split_at_checked(length).ok_or_else(wrong)?;
        items.push(item.to_vec());
        packed = rest;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_data_is_unpacked_and_other_data_refused() {
        let check = |items: Vec<Vec<u8>>| assert_eq!(unpack(&pack(&items)).unwrap(), items);
        check(vec![]);
        check(vec![vec![]]);
        check(vec![b"one".to_vec(), vec![], vec![7; 300]]);
        let packed = pack(&[b"one".to_vec()]);
        assert!(unpack(&packed[..packed.len() - 1]).is_err());
        assert!(unpack(&packed[..5]).is_err());
        assert!(unpack(&u64::MAX.to_be_bytes()).is_err());
    }
}
