//! Messages of ranks in any order, with the ranks' ends and the results of fences in between. The world must keep its
//! rules. Each step consists of a byte that selects the event and the rank, a byte with a length, and as many bytes.
#![no_main]

use gantry_agent::pmi::trial::Trial;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((shared, mut rest)) = bytes.split_first() else { return };
    let mut trial = Trial::new(shared % 2 == 1);
    while let [what, length, behind @ ..] = rest {
        let (said, next) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = next;
        let rank = u32::from(what / 4);
        let done = match what % 4 {
            0 => trial.end(rank, i32::from(*length)),
            1 if said.is_empty() => trial.fence(None),
            1 => trial.fence(Some(said)),
            _ => trial.say(rank, said),
        };
        done.expect("a rule is broken");
    }
});
