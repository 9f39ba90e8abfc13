//! Sets of ranks and of nodes, small even for a million members.
//!
//! Tools speak of ranks in ranges ("0-1023 arrived, 17 is missing"), so a set is kept as sorted ranges that
//! neither touch nor overlap. Equal sets are therefore equal values, and print the same text: `0-3,7`.

mod text;

use std::{fmt, marker::PhantomData, ops::RangeInclusive};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeSeq};

pub use self::text::{ParseSetError, SetProblem};
use crate::id::{EntryIndex, NodeId, Rank};

/// How many ranges a set may have when it is read from text or from the wire.
pub const MAX_RANGES: usize = 1_000_000;

/// A set of ranks.
pub type RankSet = IdSet<Rank>;

/// A set of nodes.
pub type NodeSet = IdSet<NodeId>;

/// An identifier that an [`IdSet`] can hold: a number in a type of its own.
pub trait SetId: Copy {
    /// The identifier of that number.
    fn from_number(number: u32) -> Self;
    /// The number of the identifier.
    fn number(self) -> u32;
}

impl SetId for Rank {
    fn from_number(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

impl SetId for NodeId {
    fn from_number(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

impl SetId for EntryIndex {
    fn from_number(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

/// First and last number of a range; both belong to it.
type Span = (u32, u32);

/// A set of identifiers, kept as sorted ranges.
///
/// Adding identifiers in ascending order costs constant time each; [`Extend`] and [`FromIterator`] take any
/// order in the time of a sort. Serialised as a list of `(first, last)`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdSet<T> {
    /// Sorted; between two spans at least one number is missing.
    spans: Vec<Span>,
    ids: PhantomData<T>,
}

impl<T: SetId> IdSet<T> {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { spans: Vec::new(), ids: PhantomData }
    }

    /// All identifiers of a range; none when it ends before it starts.
    #[must_use]
    pub fn from_range(range: RangeInclusive<T>) -> Self {
        let mut set = Self::new();
        set.insert_range(range);
        set
    }

    /// The first `count` identifiers, from 0: all ranks of an app of that size.
    #[must_use]
    pub fn first_n(count: u32) -> Self {
        Self::from_spans(count.checked_sub(1).map(|last| (0, last)).into_iter().collect())
    }

    /// Adds an identifier; says whether it was missing.
    pub fn insert(&mut self, id: T) -> bool {
        let missing = !self.contains(id);
        if missing {
            self.insert_span((id.number(), id.number()));
        }
        missing
    }

    /// Adds all identifiers of a range; none when it ends before it starts.
    pub fn insert_range(&mut self, range: RangeInclusive<T>) {
        let span = (range.start().number(), range.end().number());
        if span.0 <= span.1 {
            self.insert_span(span);
        }
    }

    /// Whether the identifier is in the set.
    #[must_use]
    pub fn contains(&self, id: T) -> bool {
        let number = id.number();
        match self.spans.last() {
            // Asked before each insertion: the ascending case must not search.
            Some(&(_, last)) if last < number => false,
            _ => {
                let at = self.spans.partition_point(|&(_, last)| last < number);
                self.spans.get(at).is_some_and(|&(first, _)| first <= number)
            }
        }
    }

    /// How many identifiers are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.spans.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The smallest identifier.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.spans.first().map(|&(first, _)| T::from_number(first))
    }

    /// The identifiers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.spans.iter().flat_map(|&(first, last)| (first..=last).map(T::from_number))
    }

    /// The ranges, ascending; between two of them at least one identifier is missing.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = RangeInclusive<T>> + '_ {
        self.spans.iter().map(|&(first, last)| T::from_number(first)..=T::from_number(last))
    }

    /// The union of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.spans.as_slice(), other.spans.as_slice());
        let mut union = Self::new();
        while let (Some(a), Some(b)) = (left.first(), right.first()) {
            let next = if a <= b { &mut left } else { &mut right };
            union.append_span(next[0]);
            *next = &next[1..];
        }
        for &span in left.iter().chain(right) {
            union.append_span(span);
        }
        union
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        for span in self.overlaps(other) {
            both.append_span(span);
        }
        both
    }

    /// The members of this set that are not in the other one.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        let mut others = other.spans.iter().peekable();
        for &(mut first, last) in &self.spans {
            let mut left_over = true;
            while let Some(&&(cut_first, cut_last)) = others.peek() {
                if cut_first > last {
                    break;
                }
                if cut_first > first {
                    rest.append_span((first, cut_first - 1));
                }
                if cut_last >= last {
                    left_over = false;
                    break;
                }
                first = first.max(cut_last + 1);
                others.next();
            }
            if left_over {
                rest.append_span((first, last));
            }
        }
        rest
    }

    /// Whether no identifier is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.overlaps(other).next().is_none()
    }

    /// The spans that both sets have, ascending.
    fn overlaps<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Span> + 'a {
        let (mut left, mut right) = (self.spans.as_slice(), other.spans.as_slice());
        std::iter::from_fn(move || {
            while let (Some(a), Some(b)) = (left.first(), right.first()) {
                let (first, last) = (a.0.max(b.0), a.1.min(b.1));
                if a.1 <= b.1 {
                    left = &left[1..];
                } else {
                    right = &right[1..];
                }
                if first <= last {
                    return Some((first, last));
                }
            }
            None
        })
    }

    /// A set from spans in any order, each with its smaller number first.
    fn from_spans(mut spans: Vec<Span>) -> Self {
        spans.sort_unstable();
        let mut set = Self::new();
        for span in spans {
            set.append_span(span);
        }
        set
    }

    /// Adds a span that starts no earlier than the last one does.
    fn append_span(&mut self, (first, last): Span) {
        match self.spans.last_mut() {
            Some(end) if first <= end.1.saturating_add(1) => end.1 = end.1.max(last),
            _ => self.spans.push((first, last)),
        }
    }

    /// Adds a span anywhere.
    fn insert_span(&mut self, (first, last): Span) {
        if self.spans.last().is_none_or(|end| end.0 <= first) {
            return self.append_span((first, last));
        }
        // Everything from `from` to `to` overlaps the new span or touches it, and becomes one with it.
        let from = self.spans.partition_point(|span| span.1.saturating_add(1) < first);
        let to = self.spans.partition_point(|span| span.0 <= last.saturating_add(1));
        let merged = match self.spans.get(from..to) {
            Some([only]) => (first.min(only.0), last.max(only.1)),
            Some([start, .., end]) => (first.min(start.0), last.max(end.1)),
            _ => (first, last),
        };
        self.spans.splice(from..to, [merged]);
    }
}

impl<T: SetId> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: SetId> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        let mut unordered = Vec::new();
        for id in ids {
            let number = id.number();
            if self.spans.last().is_none_or(|end| end.0 <= number) {
                self.append_span((number, number));
            } else {
                unordered.push((number, number));
            }
        }
        if !unordered.is_empty() {
            *self = self.union(&Self::from_spans(unordered));
        }
    }
}

impl<T: SetId> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: SetId> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.spans.len()))?;
        for span in &self.spans {
            list.serialize_element(span)?;
        }
        list.end()
    }
}

impl<'de, T: SetId> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spans<T>(PhantomData<T>);
        impl<'de, T: SetId> de::Visitor<'de> for Spans<T> {
            type Value = IdSet<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_RANGES} ascending ranges")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<IdSet<T>, A::Error> {
                let mut set = IdSet::new();
                while let Some(span) = list.next_element::<Span>()? {
                    // Accept only the canonical form, so that equal sets are equal values.
                    let gap = set.spans.last().is_none_or(|end| end.1.saturating_add(1) < span.0);
                    if span.0 > span.1 || !gap {
                        return Err(de::Error::custom("ranges of a set are not ascending or touch"));
                    }
                    if set.spans.len() == MAX_RANGES {
                        return Err(de::Error::custom(SetProblem::TooMany));
                    }
                    set.spans.push(span);
                }
                Ok(set)
            }
        }
        deserializer.deserialize_seq(Spans(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(numbers: impl IntoIterator<Item = u32>) -> RankSet {
        numbers.into_iter().map(Rank).collect()
    }

    #[test]
    fn a_million_ascending_ranks_are_one_range_or_a_million() {
        let mut all = RankSet::new();
        let mut even = RankSet::new();
        for number in 0..1_000_000 {
            assert!(all.insert(Rank(number)));
            assert!(even.insert(Rank(2 * number)));
        }
        assert_eq!(all, RankSet::first_n(1_000_000));
        assert_eq!((all.ranges().len(), even.ranges().len()), (1, 1_000_000));
        assert_eq!((all.len(), even.len()), (1_000_000, 1_000_000));
    }

    #[test]
    fn the_ends_of_the_numbers_are_no_special_case() {
        let all = RankSet::from_range(Rank(0)..=Rank(u32::MAX));
        assert_eq!(all.len(), 1 << 32);
        let mut ends = set([u32::MAX, 0]);
        assert_eq!(all.difference(&ends).to_string(), "1-4294967294");
        ends.insert_range(Rank(1)..=Rank(u32::MAX - 1));
        assert_eq!(ends, all);
        assert!(RankSet::first_n(0).is_empty());
        let (start, end) = (Rank(1), Rank(0));
        assert!(RankSet::from_range(start..=end).is_empty());
    }

    #[test]
    fn only_the_canonical_list_is_read_from_the_wire() {
        let read = |json: &str| serde_json::from_str::<RankSet>(json);
        assert_eq!(serde_json::to_string(&set([0, 1, 2, 7])).unwrap(), "[[0,2],[7,7]]");
        assert_eq!(read("[[0,2],[7,7]]").unwrap(), set([0, 1, 2, 7]));
        for bad in ["[[2,0]]", "[[7,7],[0,2]]", "[[0,2],[3,4]]", "[[0,2],[1,4]]", "[[0,4294967295],[5,6]]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let spans =
            |count: u32| postcard::to_stdvec(&(0..count).map(|n| (2 * n, 2 * n)).collect::<Vec<Span>>());
        assert!(postcard::from_bytes::<RankSet>(&spans(1_000_000).unwrap()).is_ok());
        assert!(postcard::from_bytes::<RankSet>(&spans(1_000_001).unwrap()).is_err());
    }

    fn numbers() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(prop_oneof![0_u32..40, u32::MAX - 5..=u32::MAX], 0..40)
    }

    proptest! {
        #[test]
        fn a_set_behaves_as_the_standard_one(left in numbers(), right in numbers(), probe in 0_u32..45) {
            let (a, b) = (set(left.clone()), set(right.clone()));
            let (x, y): (BTreeSet<_>, BTreeSet<_>) = (left.iter().copied().collect(), right.iter().copied().collect());
            prop_assert_eq!(a.iter().map(|rank| rank.0).collect::<Vec<_>>(), x.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(a.len(), x.len() as u64);
            prop_assert_eq!(a.is_empty(), x.is_empty());
            prop_assert_eq!(a.first().map(|rank| rank.0), x.first().copied());
            prop_assert_eq!(a.contains(Rank(probe)), x.contains(&probe));
            prop_assert_eq!(a.union(&b), set(x.union(&y).copied()));
            prop_assert_eq!(a.intersection(&b), set(x.intersection(&y).copied()));
            prop_assert_eq!(a.difference(&b), set(x.difference(&y).copied()));
            prop_assert_eq!(a.is_disjoint(&b), x.is_disjoint(&y));
        }

        #[test]
        fn one_by_one_by_range_and_all_at_once_agree(numbers in numbers(), ranges in prop::collection::vec((0_u32..40, 0_u32..9), 0..9)) {
            let mut single = RankSet::new();
            let mut seen = BTreeSet::new();
            for &number in &numbers {
                prop_assert_eq!(single.insert(Rank(number)), seen.insert(number));
            }
            prop_assert_eq!(&single, &set(numbers));
            for (first, count) in ranges {
                single.insert_range(Rank(first)..=Rank(first + count));
                seen.extend(first..=first + count);
            }
            prop_assert_eq!(single, set(seen));
        }

        #[test]
        fn text_and_bytes_read_back(numbers in numbers()) {
            let set = set(numbers);
            prop_assert_eq!(&set.to_string().parse::<RankSet>().unwrap(), &set);
            prop_assert_eq!(postcard::from_bytes::<RankSet>(&postcard::to_stdvec(&set).unwrap()).unwrap(), set);
        }
    }
}
