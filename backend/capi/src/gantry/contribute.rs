//! Section "the channel to the tool": contributions for the predefined filters.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};

use gantry_backend::filter::numbers::Numbers;
use gantry_backend::filter::{PrefixTree, key_ranks, ranks};
use gantry_backend::{Failure, Rank};
use gantry_shared_capi::data::{count, values};
use gantry_shared_capi::{Fault, enter, text};
use gantry_types::rank_set::RankSet;

use super::channel::contribute;

/// `gantry_be_stack_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stack {
    rank: c_int,
    frames: *const *const c_char,
}

fn encoded(part: Result<Vec<u8>, Failure>) -> Result<Vec<u8>, Fault> {
    part.map_err(Fault::from)
}

/// Ranks from C.
///
/// # Safety
/// `ranks` points to `number` ints.
unsafe fn read_ranks(ranks: *const c_int, number: c_int) -> Result<RankSet, Fault> {
    // SAFETY: guaranteed by the caller.
    let ranks = unsafe { values(ranks, count(number)?) }?;
    ranks.iter().map(|rank| to_rank(*rank)).collect()
}

fn to_rank(rank: c_int) -> Result<Rank, Fault> {
    u32::try_from(rank).map(Rank).map_err(|_| Fault::invalid(format!("{rank} is not a rank")))
}

/// Contributes integers.
///
/// # Safety
/// `numbers` points to `number` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contributeIntegers(tag: u32, numbers: *const i64, number: c_int) -> c_int {
    enter("gantry_be_contributeIntegers", 1, || {
        // SAFETY: guaranteed by the caller.
        let numbers = unsafe { values(numbers, count(number)?) }?.to_vec();
        contribute(tag, &encoded(Numbers::Integers(numbers).encode())?)
    })
}

/// Contributes floating point numbers.
///
/// # Safety
/// `numbers` points to `number` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contributeReals(tag: u32, numbers: *const f64, number: c_int) -> c_int {
    enter("gantry_be_contributeReals", 1, || {
        // SAFETY: guaranteed by the caller.
        let numbers = unsafe { values(numbers, count(number)?) }?.to_vec();
        contribute(tag, &encoded(Numbers::Floats(numbers).encode())?)
    })
}

/// Contributes a set of ranks.
///
/// # Safety
/// `numbers` points to `number` ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contributeRanks(tag: u32, numbers: *const c_int, number: c_int) -> c_int {
    enter("gantry_be_contributeRanks", 1, || {
        // SAFETY: guaranteed by the caller.
        let set = unsafe { read_ranks(numbers, number) }?;
        contribute(tag, &encoded(ranks::encode(&set))?)
    })
}

/// Contributes a key for each of some ranks.
///
/// # Safety
/// `keys` and `numbers` point to `number` strings and ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contributeKeys(
    tag: u32,
    keys: *const *const c_char,
    numbers: *const c_int,
    number: c_int,
) -> c_int {
    enter("gantry_be_contributeKeys", 1, || {
        // SAFETY: guaranteed by the caller.
        let keys = unsafe { values(keys, count(number)?) }?;
        // SAFETY: guaranteed by the caller.
        let ranks = unsafe { values(numbers, count(number)?) }?;
        let mut map: BTreeMap<Vec<u8>, RankSet> = BTreeMap::new();
        for (key, rank) in keys.iter().zip(ranks) {
            // SAFETY: guaranteed by the caller.
            let key = unsafe { text::required(*key, "a key") }?;
            map.entry(key.as_encoded_bytes().to_vec()).or_default().insert(to_rank(*rank)?);
        }
        contribute(tag, &encoded(key_ranks::encode(&map))?)
    })
}

/// Contributes call paths.
///
/// # Safety
/// `stacks` points to `number` of them, each with a list of strings that ends with a null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_be_contributeStacks(tag: u32, stacks: *const Stack, number: c_int) -> c_int {
    enter("gantry_be_contributeStacks", 1, || {
        let mut tree = PrefixTree::new();
        // SAFETY: guaranteed by the caller.
        for stack in unsafe { values(stacks, count(number)?) }? {
            // SAFETY: guaranteed by the caller.
            let frames = unsafe { text::list(stack.frames) }?;
            let rank = to_rank(stack.rank)?;
            let frames: Vec<String> =
                frames.iter().map(|frame| frame.to_string_lossy().into_owned()).collect();
            let own = RankSet::from_range(rank..=rank);
            tree.add(frames.iter().map(String::as_str), &own).map_err(Fault::from)?;
        }
        contribute(tag, &encoded(tree.encode())?)
    })
}
