//! A node's channel with words of a daemon, of nodes below and of the tool in any order. Nothing goes up without credit.
//! Each step is six bytes: what it is, a small number, and a size.
#![no_main]

use gantry_agent::channel_trial::Trial;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut trial = Trial::default();
    let (steps, _) = bytes.as_chunks::<6>();
    for [what, number, size @ ..] in steps {
        trial.step((*what, *number, u32::from_le_bytes(*size))).expect("a rule is broken");
    }
});
