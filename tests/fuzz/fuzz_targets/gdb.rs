//! The output of a gdb, and the part of it that is sent. The first byte selects the size of the pieces. The records
//! must not depend on it.
#![no_main]

use gantry_debug::fold::fold;
use gantry_debug::statistic::describe;
use gantry_gdb::answer::{Answer, Words};
use gantry_gdb::mi::{Parser, Record};
use gantry_gdb::order::Order;
use gantry_types::rank_set::RankSet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let (mut pieces, mut whole) = (Vec::new(), Vec::new());
    let mut parser = Parser::default();
    bytes.chunks(usize::from(*piece) + 1).for_each(|piece| parser.push(piece, |record| pieces.push(record)));
    Parser::default().push(bytes, |record| whole.push(record));
    assert_eq!(pieces, whole);
    let texts: Vec<&str> = whole
        .iter()
        .filter_map(|record| match record {
            Record::Console(text) | Record::Log(text) | Record::Other(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let ranks: Vec<RankSet> = (0..).zip(&texts).map(|(rank, _)| format!("{rank}").parse().expect("a rank")).collect();
    let classes = fold(texts.iter().copied().zip(&ranks));
    // Each rank belongs to one class.
    assert_eq!(classes.iter().map(|class| class.ranks.len()).sum::<u64>(), texts.len() as u64);
    describe(texts.iter().copied().zip(&ranks));
    drop(gantry_gdb::decode::<Order>(bytes));
    drop(gantry_gdb::decode::<Answer>(bytes));
    drop(gantry_gdb::decode::<Words>(bytes));
});
