//! Properties of every filter: the result does not depend on the tree, and a bad part is refused without effect.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::concatenate::{Member, Part};
use super::numbers::Numbers;
use super::*;
use crate::id::{DaemonId, NodeId, Rank};
use crate::rank_set::RankSet;

fn set(ranks: impl IntoIterator<Item = u32>) -> RankSet {
    ranks.into_iter().map(Rank).collect()
}

fn merge(filter: &Filter, parts: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
    let mut reduction = filter.start()?;
    parts.iter().try_for_each(|part| reduction.take(part))?;
    reduction.give()
}

/// Merges neighbours group by group, `sizes` at a time, until one part is left, as a tree of agents would.
fn merge_as_tree(filter: &Filter, mut parts: Vec<Vec<u8>>, sizes: &[usize]) -> Result<Vec<u8>, Failure> {
    let mut sizes = sizes.iter().cycle();
    while parts.len() > 1 {
        let mut above = Vec::new();
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            let (group, others) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            above.push(merge(filter, group)?);
            rest = others;
        }
        parts = above;
    }
    merge(filter, &parts)
}

fn ranks() -> impl Strategy<Value = RankSet> {
    prop::collection::vec(prop_oneof![0_u32..20, u32::MAX - 3..=u32::MAX], 0..8).prop_map(set)
}

fn floats(any_size: bool) -> impl Strategy<Value = f64> {
    let wide = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite());
    prop_oneof![wide, -9.0..9.0, Just(0.0), Just(-0.0), Just(if any_size { f64::INFINITY } else { 1.0 })]
}

fn encoded(numbers: Numbers) -> Vec<u8> {
    numbers.encode().unwrap()
}

fn parts_of<T: std::fmt::Debug>(
    one: impl Strategy<Value = T>,
    encode: impl Fn(T) -> Vec<u8>,
) -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(one.prop_map(encode), 1..12)
}

fn vectors<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Vec<Vec<T>>> {
    (0_usize..4).prop_flat_map(move |places| {
        prop::collection::vec(prop::collection::vec(value.clone(), places), 1..12)
    })
}

fn trees() -> impl Strategy<Value = PrefixTree> {
    let path = prop::collection::vec(prop::sample::select(vec!["main", "work", "wait", "", "é"]), 0..5);
    prop::collection::vec((path, ranks()), 0..6).prop_map(|paths| {
        let mut tree = PrefixTree::new();
        for (path, ranks) in paths {
            tree.add(path, &ranks).unwrap();
        }
        tree
    })
}

/// A filter, contributions for it, and whether their order matters.
fn reductions() -> impl Strategy<Value = (Filter, Vec<Vec<u8>>, bool)> {
    let members =
        (0_u32..6, 0_u32..3, prop::collection::vec(any::<u8>(), 0..4)).prop_map(|(node, daemon, bytes)| {
            Part { member: Member { node: NodeId(node), daemon: DaemonId(daemon) }, bytes }
        });
    let maps = prop::collection::btree_map(prop::collection::vec(0_u8..3, 0..3), ranks(), 0..5);
    let integers = || {
        vectors(any::<i64>())
            .prop_map(|all| all.into_iter().map(|one| encoded(Numbers::Integers(one))).collect())
    };
    let reals = |any_size| {
        vectors(floats(any_size).boxed())
            .prop_map(|all| all.into_iter().map(|one| encoded(Numbers::Floats(one))).collect())
    };
    let with = |filter: Filter, ordered| move |parts| (filter.clone(), parts, ordered);
    prop_oneof![
        parts_of(prop::collection::vec(members, 0..4), |parts| concatenate::encode(&parts).unwrap())
            .prop_map(with(Filter::Concatenate, true)),
        integers().prop_map(with(Filter::Sum, false)),
        integers().prop_map(with(Filter::Min, false)),
        integers().prop_map(with(Filter::Max, false)),
        reals(false).prop_map(with(Filter::Sum, false)),
        reals(true).prop_map(with(Filter::Min, false)),
        reals(true).prop_map(with(Filter::Max, false)),
        parts_of(ranks(), |set| ranks::encode(&set).unwrap()).prop_map(with(Filter::RankSetUnion, false)),
        parts_of(maps, |map| key_ranks::encode(&map).unwrap()).prop_map(with(Filter::KeyRanks, false)),
        parts_of(trees(), |tree| tree.encode().unwrap()).prop_map(with(Filter::PrefixTree, false)),
    ]
}

proptest! {
    #[test]
    fn any_tree_gives_what_a_flat_merge_gives(
        (filter, parts, ordered) in reductions(),
        sizes in prop::collection::vec(2_usize..5, 1..6),
        nothing in 0_usize..12,
        swaps in prop::collection::vec(any::<prop::sample::Index>(), 12),
    ) {
        let flat = merge(&filter, &parts).unwrap();
        prop_assert_eq!(merge_as_tree(&filter, parts.clone(), &sizes).unwrap(), flat.clone());
        // An empty contribution changes nothing, at any place.
        let mut with_nothing = parts.clone();
        with_nothing.insert(nothing.min(parts.len()), Vec::new());
        prop_assert_eq!(merge_as_tree(&filter, with_nothing, &sizes).unwrap(), flat.clone());
        // A result is a contribution, and merged alone it is itself.
        prop_assert_eq!(merge(&filter, std::slice::from_ref(&flat)).unwrap(), flat.clone());
        if !ordered {
            let mut shuffled = parts;
            for (at, swap) in (1..shuffled.len()).zip(swaps) {
                shuffled.swap(at, swap.index(at + 1));
            }
            prop_assert_eq!(merge_as_tree(&filter, shuffled, &sizes).unwrap(), flat);
        }
    }

    #[test]
    fn bad_parts_are_refused_and_spoil_nothing(
        (filter, parts, _) in reductions(),
        garbage in prop::collection::vec(any::<u8>(), 1..40),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let expected = merge(&filter, &parts).unwrap();
        let mut changed = parts[0].clone();
        if let Some(changed) = (!changed.is_empty()).then(|| at.get_mut(changed.as_mut_slice())) {
            *changed = byte;
        }
        let cut = &parts[0][..at.index(parts[0].len() + 1)];
        for bad in [garbage.as_slice(), &changed, cut] {
            let mut reduction = filter.start().unwrap();
            for part in &parts {
                reduction.take(part).unwrap();
            }
            if reduction.take(bad).is_err() {
                prop_assert_eq!(reduction.give().unwrap(), expected.clone());
            }
        }
    }

    /// Any bytes that are taken as a set, a map, a list or a tree are its only form.
    #[test]
    fn each_value_has_one_form(
        (filter, parts, _) in reductions(),
        garbage in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 1..20),
        at in any::<prop::sample::Index>(),
        byte in 0_u8..4,
    ) {
        let numbers = matches!(filter, Filter::Sum);
        let mut changed = parts[0].clone();
        if let Some(changed) = (!changed.is_empty()).then(|| at.get_mut(changed.as_mut_slice())) {
            *changed = byte;
        }
        for part in [garbage, changed] {
            if let Ok(again) = merge(&filter, std::slice::from_ref(&part)) {
                prop_assert!(numbers || again == part, "{:?}: {:?} becomes {:?}", filter, part, again);
            }
        }
    }

    #[test]
    fn values_read_back(set in ranks(), tree in trees(), values in prop::collection::vec(floats(true), 0..5), whole: Vec<i64>) {
        prop_assert_eq!(ranks::decode(&ranks::encode(&set).unwrap()).unwrap(), set.clone());
        let map = BTreeMap::from([(b"a".to_vec(), set), (Vec::new(), RankSet::new())]);
        prop_assert_eq!(key_ranks::decode(&key_ranks::encode(&map).unwrap()).unwrap(), map);
        prop_assert_eq!(PrefixTree::decode(&tree.encode().unwrap()).unwrap(), tree);
        for numbers in [Numbers::Floats(values), Numbers::Integers(whole)] {
            prop_assert_eq!(Numbers::decode(&encoded(numbers.clone())).unwrap(), Some(numbers));
        }
    }
}

#[test]
fn numbers_are_put_together_place_by_place() {
    let check = |filter: Filter, vectors: &[Numbers], expected: Numbers| {
        let parts: Vec<_> = vectors.iter().cloned().map(encoded).collect();
        let merged = merge(&filter, &parts).unwrap();
        assert_eq!(Numbers::decode(&merged).unwrap(), Some(expected), "{filter:?}");
    };
    let whole = [Numbers::Integers(vec![1, -5, i64::MAX]), Numbers::Integers(vec![2, -6, -1])];
    check(Filter::Sum, &whole, Numbers::Integers(vec![3, -11, i64::MAX - 1]));
    check(Filter::Min, &whole, Numbers::Integers(vec![1, -6, -1]));
    check(Filter::Max, &whole, Numbers::Integers(vec![2, -5, i64::MAX]));
    let real = [
        Numbers::Floats(vec![1e300, 0.5]),
        Numbers::Floats(vec![1.0, -0.25]),
        Numbers::Floats(vec![-1e300, 0.0]),
    ];
    check(Filter::Sum, &real, Numbers::Floats(vec![1.0, 0.25]));
    check(Filter::Min, &real, Numbers::Floats(vec![-1e300, -0.25]));
    check(Filter::Max, &real, Numbers::Floats(vec![1e300, 0.5]));
}

#[test]
fn a_sum_that_does_not_fit_is_an_error_wherever_it_is_read() {
    let check = |values: &[Numbers], expected: Result<Numbers, &str>| {
        let parts: Vec<_> = values.iter().cloned().map(encoded).collect();
        let merged = merge(&Filter::Sum, &parts).unwrap();
        let read = Numbers::decode(&merged)
            .map(Option::unwrap)
            .map_err(|failure| (failure.kind(), failure.to_string()));
        let expected =
            expected.map_err(|problem| (Kind::Invalid, format!("merge parts of a reduction: {problem}")));
        assert_eq!(read, expected);
    };
    let large = "the sum at place 0 (counted from 0) is too large";
    let whole = |value| Numbers::Integers(vec![value]);
    check(&[whole(i64::MAX), whole(1)], Err(large));
    check(&[whole(i64::MIN), whole(-1)], Err(large));
    check(&[whole(i64::MAX), whole(1), whole(-1)], Ok(whole(i64::MAX)));
    let real = |value| Numbers::Floats(vec![value]);
    check(&[real(f64::MAX), real(f64::MAX)], Err(large));
    check(&[real(f64::MAX), real(f64::MAX), real(-f64::MAX)], Ok(real(f64::MAX)));
}

#[test]
fn incompatible_parts_are_refused() {
    let check = |filter: Filter, first: &[u8], second: &[u8], kind: Kind, expected: &str| {
        let mut reduction = filter.start().unwrap();
        reduction.take(first).unwrap();
        let failure = reduction.take(second).unwrap_err();
        assert_eq!((failure.kind(), failure.message().contains(expected)), (kind, true), "{failure}");
        assert_eq!(reduction.give().unwrap(), merge(&filter, &[first.to_vec()]).unwrap());
    };
    let whole = |values: &[i64]| encoded(Numbers::Integers(values.to_vec()));
    let real = |values: &[f64]| encoded(Numbers::Floats(values.to_vec()));
    for filter in [Filter::Sum, Filter::Min, Filter::Max] {
        check(filter.clone(), &whole(&[1]), &whole(&[1, 2]), Kind::Invalid, "of 1 and of 2 values");
        check(filter.clone(), &whole(&[1]), &real(&[1.0]), Kind::Invalid, "integers and of floating point");
        check(filter, &whole(&[1]), &[9, 0], Kind::Protocol, "9 is not a number type");
    }
    check(Filter::Sum, &real(&[1.0]), &real(&[f64::INFINITY]), Kind::Invalid, "infinity");
    let mut nan = vec![1];
    nan.extend(f64::NAN.to_le_bytes());
    check(Filter::Max, &real(&[1.0]), &nan, Kind::Protocol, "NaN");
    assert!(Numbers::Floats(vec![f64::NAN]).encode().is_err());
    // The largest sums that can be sent, twice: no room, and no number that is wrong.
    let mut widest = vec![2];
    bytes::write_number(u128::MAX, &mut widest);
    check(Filter::Sum, &widest, &widest, Kind::Invalid, "too large");
}

#[test]
fn a_custom_filter_is_refused_by_its_name() {
    let failure = Filter::Custom("histogram".into()).start().map(|_| ()).unwrap_err();
    assert_eq!(failure.kind(), Kind::Unsupported);
    assert!(failure.message().contains("histogram"), "{failure}");
}

#[test]
fn concatenated_parts_come_in_the_order_of_their_members() {
    let part = |node, daemon, bytes: &[u8]| Part {
        member: Member { node: NodeId(node), daemon: DaemonId(daemon) },
        bytes: bytes.to_vec(),
    };
    let one = concatenate::encode(&[part(2, 0, b"c"), part(0, 1, b"b")]).unwrap();
    let two = concatenate::encode(&[part(1, 0, b""), part(0, 0, b"a"), part(2, 0, b"d")]).unwrap();
    let merged = merge(&Filter::Concatenate, &[one, two]).unwrap();
    let expected = [part(0, 0, b"a"), part(0, 1, b"b"), part(1, 0, b""), part(2, 0, b"c"), part(2, 0, b"d")];
    assert_eq!(concatenate::decode(&merged).unwrap(), expected);
}

#[test]
fn a_million_ranks_are_few_bytes_and_a_million_holes_some() {
    let all = ranks::encode(&RankSet::first_n(1_000_000)).unwrap();
    assert_eq!(all.len(), 4);
    let even = ranks::encode(&(0..1_000_000).map(|n| Rank(2 * n)).collect()).unwrap();
    let odd = ranks::encode(&(0..1_000_000).map(|n| Rank(2 * n + 1)).collect()).unwrap();
    assert_eq!(even.len(), 2_000_000);
    let merged = merge(&Filter::RankSetUnion, &[even, odd]).unwrap();
    assert_eq!(ranks::decode(&merged).unwrap(), RankSet::first_n(2_000_000));
}

#[test]
fn parts_have_a_largest_size_and_results_too() {
    let part = |node, bytes: usize| {
        let member = Member { node: NodeId(node), daemon: DaemonId(0) };
        concatenate::encode(&[Part { member, bytes: vec![7; bytes] }]).unwrap()
    };
    let mut reduction = Filter::Concatenate.start().unwrap();
    let failure = reduction.take(&part(0, MAX_PART_BYTES)).unwrap_err();
    assert_eq!(failure.kind(), Kind::Invalid);
    // Two and a half exceed the limit, in any order.
    let half = MAX_PART_BYTES / 2;
    let outcome: Vec<bool> = (1..9).map(|node| reduction.take(&part(node, half)).is_ok()).collect();
    assert!(outcome.starts_with(&[true, true]) && outcome.ends_with(&[false, false]), "{outcome:?}");
    assert_eq!(reduction.give().unwrap_err().kind(), Kind::Invalid);
    // Parts that overlap may come without end.
    let mut reduction = Filter::RankSetUnion.start().unwrap();
    let holes = ranks::encode(&(0..1_000_000).map(|n| Rank(2 * n)).collect()).unwrap();
    for _ in 0..20 {
        reduction.take(&holes).unwrap();
    }
    assert_eq!(reduction.give().unwrap(), holes);
}
