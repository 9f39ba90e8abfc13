//! Parts of reductions, from any bytes. If a reduction refuses a part, its result is unchanged. If it accepts a part,
//! its result is a part that it accepts again.
//!
//! The first byte selects the filter. The second one selects where the rest is divided into two parts.

#![no_main]

use gantry_types::filter::{Filter, MAX_PART_BYTES};
use libfuzzer_sys::fuzz_target;

const FILTERS: [Filter; 7] = [
    Filter::Concatenate,
    Filter::Sum,
    Filter::Min,
    Filter::Max,
    Filter::RankSetUnion,
    Filter::KeyRanks,
    Filter::PrefixTree,
];

fuzz_target!(|bytes: &[u8]| {
    let [choice, cut, parts @ ..] = bytes else { return };
    let filter = &FILTERS[usize::from(*choice) % FILTERS.len()];
    let (one, two) = parts.split_at(usize::from(*cut).min(parts.len()));
    let Some(first) = merge(filter, &[one]) else { return };
    assert_eq!(merge(filter, &[&first]).as_ref(), Some(&first));
    let mut reduction = filter.start().expect("it is built in");
    reduction.take(one).expect("it was taken before");
    let taken = reduction.take(two).is_ok();
    let merged = reduction.give().expect("small parts make small results");
    assert!(merged.len() < MAX_PART_BYTES);
    if !taken {
        assert_eq!(merged, first);
        return;
    }
    assert_eq!(merge(filter, &[&merged]).as_ref(), Some(&merged));
    if *filter != Filter::Concatenate {
        assert_eq!(merge(filter, &[two, one]), Some(merged));
    }
});

fn merge(filter: &Filter, parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut reduction = filter.start().expect("it is built in");
    parts.iter().try_for_each(|part| reduction.take(part)).ok()?;
    reduction.give().ok()
}
