//! Section "the channel to daemons": results of operations.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::ptr::null_mut;

use gantry_frontend::filter::numbers::Numbers;
use gantry_frontend::filter::{Filter, PrefixTree, key_ranks, prefix_tree, ranks};
use gantry_frontend::{self as library, Missing};
use gantry_shared_capi::data::{self, Member};
use gantry_shared_capi::memory::{Given, allocate, array, release, string};
use gantry_shared_capi::{Fault, enter, fault, text};
use gantry_types::rank_set::RankSet;

/// `gantry_contribution_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Contribution {
    member: Member,
    size: usize,
    bytes: *mut u8,
}

/// `gantry_missing_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Absent {
    member: Member,
    host: *mut c_char,
    kind: c_int,
    why: *mut c_char,
}

/// `gantry_outcome_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    contributed: u64,
    num_parts: c_int,
    parts: *mut Contribution,
    num_missing: c_int,
    missing: *mut Absent,
}

static GIVEN: Given<Outcome> = Given::new();

/// Allocations for C in progress. On failure they are freed again.
#[derive(Default)]
struct Making {
    parts: Vec<Contribution>,
    missing: Vec<Absent>,
}

impl Making {
    fn add_part(&mut self, member: Member, bytes: &[u8]) -> Result<(), Fault> {
        self.parts.push(Contribution { member, size: bytes.len(), bytes: data::copy(bytes)? });
        Ok(())
    }

    fn add_missing(&mut self, missing: &Missing) -> Result<(), Fault> {
        let kind = fault::number_of(missing.why.kind());
        let member = missing.member.into();
        self.missing.push(Absent { member, host: null_mut(), kind, why: null_mut() });
        let Some(made) = self.missing.last_mut() else { return Ok(()) };
        made.host = string(missing.host.as_bytes())?;
        made.why = string(missing.why.message().replace('\0', "").as_bytes())?;
        Ok(())
    }

    fn give(mut self, contributed: u64) -> Result<*mut Outcome, Fault> {
        let outcome = allocate::<Outcome>(1)?;
        let given = (|| {
            let (num_parts, num_missing) =
                (data::to_int(self.parts.len())?, data::to_int(self.missing.len())?);
            let parts = array(&self.parts, 0)?;
            let missing = array(&self.missing, 0).inspect_err(|_| {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(parts) };
            })?;
            Ok(Outcome { contributed, num_parts, parts, num_missing, missing })
        })();
        match given {
            Ok(given) => {
                // SAFETY: fresh memory of this size.
                unsafe { outcome.write(given) };
                // From here on they are C's.
                self.parts.clear();
                self.missing.clear();
                Ok(GIVEN.note(outcome))
            }
            Err(fault) => {
                // SAFETY: allocated above, and this is the only pointer to it.
                unsafe { release(outcome) };
                Err(fault)
            }
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        release_all(&self.parts, &self.missing);
    }
}

fn release_all(parts: &[Contribution], missing: &[Absent]) {
    for part in parts {
        // SAFETY: made by `Making`, and freed with the outcome or where that could not be made.
        unsafe { release(part.bytes) };
    }
    for absent in missing {
        // SAFETY: as above.
        unsafe { release(absent.host) };
        // SAFETY: as above.
        unsafe { release(absent.why) };
    }
}

/// Converts an operation's outcome for C.
pub(super) fn give<'a>(
    parts: impl IntoIterator<Item = (library::channel::Member, &'a [u8])>,
    missing: &[Missing],
    contributed: u64,
) -> Result<*mut Outcome, Fault> {
    let mut making = Making::default();
    parts.into_iter().try_for_each(|(member, bytes)| making.add_part(member.into(), bytes))?;
    missing.iter().try_for_each(|missing| making.add_missing(missing))?;
    making.give(contributed)
}

/// As [`give`], for one result without a member.
pub(super) fn give_result(
    bytes: &[u8],
    missing: &[Missing],
    contributed: u64,
) -> Result<*mut Outcome, Fault> {
    let mut making = Making::default();
    making.add_part(Member::default(), bytes)?;
    missing.iter().try_for_each(|missing| making.add_missing(missing))?;
    making.give(contributed)
}

/// Frees an outcome.
///
/// # Safety
/// It is null, or came from this library and no part of it was freed otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_destroyOutcome(outcome: *mut Outcome) {
    if outcome.is_null() {
        return;
    }
    enter("gantry_destroyOutcome", (), || {
        GIVEN.take_back(outcome)?;
        // SAFETY: it was on the list of allocations, so it is valid and complete.
        let Outcome { num_parts, parts, num_missing, missing, .. } = unsafe { outcome.read() };
        // SAFETY: as many as were made with it.
        let made = unsafe { data::values(parts, data::count(num_parts)?) }?;
        // SAFETY: as above.
        let absent = unsafe { data::values(missing, data::count(num_missing)?) }?;
        release_all(made, absent);
        // SAFETY: made with the outcome, and freed with it.
        unsafe { release(parts) };
        // SAFETY: as above.
        unsafe { release(missing) };
        // SAFETY: as above.
        unsafe { release(outcome) };
        Ok(())
    });
}

/// The result of a reduction.
///
/// # Safety
/// `outcome` is null or came from this library and was not freed.
unsafe fn result<'a>(outcome: *const Outcome) -> Result<&'a [u8], Fault> {
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { outcome.as_ref() }.ok_or_else(|| Fault::invalid("the outcome is NULL"))?;
    // SAFETY: as many as were made with it.
    match unsafe { data::values(outcome.parts, data::count(outcome.num_parts)?) }? {
        // SAFETY: made with it.
        [one] => unsafe { data::bytes(one.bytes, one.size) },
        parts => Err(Fault::invalid(format!("a reduction has one result, this outcome has {}", parts.len()))),
    }
}

/// Copies as many values to C as there is room for. Returns their total number.
///
/// # Safety
/// `to` points to `room` places.
unsafe fn copy_out<T: Copy>(values: &[T], to: *mut T, room: c_int) -> Result<c_int, Fault> {
    let count = values.len().min(data::count(room)?);
    if count > 0 && to.is_null() {
        return Err(Fault::invalid("the place for the values is NULL"));
    }
    if count > 0 {
        // SAFETY: not null, and there is room. Our memory does not overlap memory that C may write.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, count) };
    }
    data::to_int(values.len())
}

/// The integers of a reduction.
///
/// # Safety
/// `outcome` came from this library; `values` points to `room` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_getIntegers(outcome: *const Outcome, values: *mut i64, room: c_int) -> c_int {
    enter("gantry_getIntegers", -1, || {
        // SAFETY: guaranteed by the caller.
        let found = match Numbers::decode(unsafe { result(outcome) }?).map_err(Fault::from)? {
            None => Vec::new(),
            Some(Numbers::Integers(found)) => found,
            Some(Numbers::Floats(_)) => return Err(Fault::invalid("these are reals")),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&found, values, room) }
    })
}

/// The floating point numbers of a reduction.
///
/// # Safety
/// As [`gantry_getIntegers`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_getReals(outcome: *const Outcome, values: *mut f64, room: c_int) -> c_int {
    enter("gantry_getReals", -1, || {
        // SAFETY: guaranteed by the caller.
        let found = match Numbers::decode(unsafe { result(outcome) }?).map_err(Fault::from)? {
            None => Vec::new(),
            Some(Numbers::Floats(found)) => found,
            Some(Numbers::Integers(_)) => return Err(Fault::invalid("these are integers")),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&found, values, room) }
    })
}

/// The ranks of a reduction.
///
/// # Safety
/// As [`gantry_getIntegers`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_getRanks(outcome: *const Outcome, values: *mut c_int, room: c_int) -> c_int {
    enter("gantry_getRanks", -1, || {
        // SAFETY: guaranteed by the caller.
        let set = ranks::decode(unsafe { result(outcome) }?).map_err(Fault::from)?;
        let found: Result<Vec<c_int>, _> = set.iter().map(|rank| c_int::try_from(rank.0)).collect();
        let found = found.map_err(|_| Fault::invalid("a rank is too large for an int"))?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(&found, values, room) }
    })
}

/// The result of a reduction as text.
///
/// # Safety
/// `outcome` came from this library; `filter` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gantry_describeResult(
    outcome: *const Outcome,
    filter: *const c_char,
) -> *mut c_char {
    enter("gantry_describeResult", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let filter = Filter::by_name(unsafe { text::required_name(filter, "the filter's name") }?);
        // SAFETY: guaranteed by the caller.
        let said = describe(&filter, unsafe { result(outcome) }?)?;
        string(said.as_bytes())
    })
}

fn describe(filter: &Filter, result: &[u8]) -> Result<String, Fault> {
    let mut said = String::new();
    match filter {
        Filter::Sum | Filter::Min | Filter::Max => {
            let words: Vec<String> = match Numbers::decode(result).map_err(Fault::from)? {
                None => Vec::new(),
                Some(Numbers::Integers(values)) => values.iter().map(ToString::to_string).collect(),
                Some(Numbers::Floats(values)) => values.iter().map(ToString::to_string).collect(),
            };
            said = words.join(" ");
        }
        Filter::RankSetUnion => said = ranks::decode(result).map_err(Fault::from)?.to_string(),
        Filter::KeyRanks => {
            for (key, ranks) in key_ranks::decode(result).map_err(Fault::from)? {
                add_line(&mut said, &String::from_utf8_lossy(&key), &ranks);
            }
        }
        Filter::PrefixTree => {
            let tree = PrefixTree::decode(result).map_err(Fault::from)?;
            describe_frames(&mut said, &tree);
        }
        Filter::Concatenate | Filter::Custom(_) => {
            return Err(Fault::invalid("only results of sum, min, max, ranks, keys and stacks have a text"));
        }
    }
    said.retain(|letter| letter != '\0');
    Ok(said)
}

fn add_line(said: &mut String, what: &str, ranks: &RankSet) {
    // Writing to a string cannot fail.
    writeln!(said, "{what} [{ranks}]").unwrap_or_default();
}

/// One line for each frame in which ranks have called no further function, with the whole path to it.
fn describe_frames(said: &mut String, tree: &PrefixTree) {
    let mut ways: Vec<(String, prefix_tree::Frame<'_>)> =
        tree.outermost().map(|frame| (frame.name().to_owned(), frame)).collect();
    ways.reverse();
    while let Some((way, frame)) = ways.pop() {
        let calls: Vec<_> = frame.calls().collect();
        let called = calls.iter().fold(RankSet::new(), |all, call| all.union(call.ranks()));
        let here = frame.ranks().difference(&called);
        if !here.is_empty() {
            add_line(said, &way, &here);
        }
        for call in calls.into_iter().rev() {
            ways.push((format!("{way} > {}", call.name()), call));
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_frontend::filter::numbers::Numbers;
    use gantry_types::id::Rank;

    use super::*;

    fn check(filter: &str, part: &[u8], expected: &str) {
        assert_eq!(describe(&Filter::by_name(filter), part).expect("a text"), expected);
    }

    #[test]
    fn results_have_a_text() {
        let range = |from, to| RankSet::from_range(Rank(from)..=Rank(to));
        check("sum", &Numbers::Integers(vec![3, -4]).encode().expect("a part"), "3 -4");
        check("min", &Numbers::Floats(vec![0.5]).encode().expect("a part"), "0.5");
        check("max", b"", "");
        check("ranks", &ranks::encode(&range(3, 9)).expect("a part"), "3-9");
        let keys = [(b"a".to_vec(), range(0, 1)), (b"b".to_vec(), range(2, 2))].into();
        check("keys", &key_ranks::encode(&keys).expect("a part"), "a [0-1]\nb [2]\n");
        let mut tree = PrefixTree::new();
        tree.add(["main", "solve"], &range(0, 2)).expect("a path");
        tree.add(["main"], &range(3, 3)).expect("a path");
        tree.add(["main", "wait"], &range(4, 4)).expect("a path");
        let said = "main [3]\nmain > solve [0-2]\nmain > wait [4]\n";
        check("stacks", &tree.encode().expect("a part"), said);
        assert!(describe(&Filter::by_name("mine"), b"").is_err() && describe(&Filter::Sum, b"\x09").is_err());
    }
}
