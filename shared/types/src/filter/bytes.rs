//! The bytes of parts: numbers of variable length, and sets of ranks as gaps and lengths of ranges.
//!
//! Numbers have seven bits a byte, the lowest first, and a set top bit where more follow. Each number and each set has exactly one form.

use crate::error::{Failure, Kind};
use crate::id::Rank;
use crate::rank_set::{MAX_RANGES, RankSet};

/// The error for a malformed part.
pub(super) fn garbled(problem: &str) -> Failure {
    Failure::new(Kind::Protocol, format!("read a part of a reduction: {problem}"))
}

/// The error for a part that exceeds a limit or is incompatible with the others.
pub(super) fn invalid(problem: String) -> Failure {
    Failure::new(Kind::Invalid, format!("merge parts of a reduction: {problem}"))
}

/// Appends a number.
pub(super) fn write_number(mut number: u128, onto: &mut Vec<u8>) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            return onto.push(low);
        }
        onto.push(low | 0x80);
    }
}

/// Appends a length.
pub(super) fn write_length(length: usize, onto: &mut Vec<u8>) {
    write_number(length as u128, onto);
}

/// Appends bytes, after their length.
pub(super) fn write_bytes(bytes: &[u8], onto: &mut Vec<u8>) {
    write_length(bytes.len(), onto);
    onto.extend_from_slice(bytes);
}

/// Appends the ranges of a set, without their number: for each, the gap after the previous one and its length.
pub(super) fn write_ranges(set: &RankSet, onto: &mut Vec<u8>) {
    // The smallest possible start of the next range: at least one number is missing in between.
    let mut next = 0;
    for range in set.ranges() {
        let (first, last) = (u64::from(range.start().0), u64::from(range.end().0));
        write_number(u128::from(first - next), onto);
        write_number(u128::from(last - first), onto);
        next = last + 2;
    }
}

/// Reads a part.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(part: &'a [u8]) -> Self {
        Self { rest: part }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes, without a copy, so any length may be requested.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Failure> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| garbled("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The number at the start of the rest.
    pub(super) fn wide_number(&mut self) -> Result<u128, Failure> {
        let mut number = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.take(1)?[0];
            let low = u128::from(byte & 0x7f);
            if low << shift >> shift != low {
                break;
            }
            number |= low << shift;
            if byte & 0x80 == 0 {
                // A leading zero would be a second form of the same number.
                let plain = low != 0 || shift == 0;
                return if plain { Ok(number) } else { Err(garbled("a number has zeros on top")) };
            }
        }
        Err(garbled("a number is too large"))
    }

    /// A number of at most 32 bits.
    pub(super) fn number(&mut self) -> Result<u32, Failure> {
        u32::try_from(self.wide_number()?).map_err(|_| garbled("a number is too large"))
    }

    /// A length or a count, which is at most `limit`.
    pub(super) fn length(&mut self, limit: usize, what: &str) -> Result<usize, Failure> {
        match usize::try_from(self.wide_number()?) {
            Ok(length) if length <= limit => Ok(length),
            _ => Err(garbled(&format!("more than {limit} {what}"))),
        }
    }

    /// Bytes after their length, which is at most `limit`.
    pub(super) fn bytes(&mut self, limit: usize, what: &str) -> Result<&'a [u8], Failure> {
        let length = self.length(limit, what)?;
        self.take(length)
    }

    /// A set of `count` ranges. Memory grows with the bytes that are there.
    pub(super) fn ranges(&mut self, count: usize) -> Result<RankSet, Failure> {
        let mut ranges = Ranges::default();
        for _ in 0..count {
            ranges.read(self)?;
        }
        Ok(ranges.set)
    }

    /// A set of all ranges up to the end of the part.
    pub(super) fn all_ranges(&mut self) -> Result<RankSet, Failure> {
        let mut ranges = Ranges::default();
        while !self.is_empty() {
            ranges.read(self)?;
        }
        Ok(ranges.set)
    }
}

/// A set that is being read.
#[derive(Default)]
struct Ranges {
    set: RankSet,
    next: u64,
    count: usize,
}

impl Ranges {
    fn read(&mut self, from: &mut Reader<'_>) -> Result<(), Failure> {
        self.count += 1;
        if self.count > MAX_RANGES {
            return Err(garbled("a set has too many ranges"));
        }
        let first = self.next + u64::from(from.number()?);
        let last = first + u64::from(from.number()?);
        self.next = last + 2;
        match (u32::try_from(first), u32::try_from(last)) {
            (Ok(first), Ok(last)) => self.set.insert_range(Rank(first)..=Rank(last)),
            _ => return Err(garbled("a rank is too large")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_one_form() {
        let read = |bytes: &[u8]| Reader::new(bytes).wide_number().map_err(|failure| failure.to_string());
        let error = |problem: &str| Err(format!("read a part of a reduction: {problem}"));
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0x80, 1]), Ok(128));
        assert_eq!(read(&[0x80, 0]), error("a number has zeros on top"));
        assert_eq!(read(&[0x80]), error("it ends too early"));
        let mut all = vec![0xff; 18];
        all.push(3);
        assert_eq!(read(&all), Ok(u128::MAX));
        all[18] = 4;
        assert_eq!(read(&all), error("a number is too large"));
        assert_eq!(read(&[0x80; 30]), error("a number is too large"));
    }

    #[test]
    fn ranks_beyond_the_last_are_refused() {
        let last = RankSet::from_range(Rank(u32::MAX)..=Rank(u32::MAX));
        let mut part = Vec::new();
        write_ranges(&last, &mut part);
        assert_eq!(Reader::new(&part).all_ranges().unwrap(), last);
        part.extend([0, 0]);
        assert!(Reader::new(&part).all_ranges().is_err());
    }

    proptest! {
        #[test]
        fn numbers_and_sets_read_back(number: u128, ranks in prop::collection::vec(any::<u32>(), 0..20)) {
            let set: RankSet = ranks.into_iter().map(Rank).collect();
            let mut part = Vec::new();
            write_number(number, &mut part);
            write_ranges(&set, &mut part);
            let mut reader = Reader::new(&part);
            prop_assert_eq!(reader.wide_number().unwrap(), number);
            prop_assert_eq!(reader.all_ranges().unwrap(), set);
        }
    }
}
