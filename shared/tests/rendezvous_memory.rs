//! Memory of this process for a rendezvous of many members. It is a test program of its own, so that no other test counts.

use std::sync::Arc;

use gantry_shared::rendezvous::Gathering;
use gantry_shared::rendezvous::gathering::{Part, count_bytes};

const ITEM_BYTES: usize = 1024;

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}

/// What registrations of so many take while the gathering is complete and its aggregate is being sent.
fn grown_bytes(members: u32) -> u64 {
    let before = resident_bytes();
    let mut gathering = Gathering::new(1, members, members).expect("a gathering");
    for member in (0..members).rev() {
        gathering.announce(member, ITEM_BYTES as u64, u64::MAX).expect("a place");
        gathering.arrive(member, Arc::new(vec![7; ITEM_BYTES])).expect("an item");
    }
    assert!(gathering.is_complete());
    // For every one who asks.
    let sent: Vec<Vec<Part>> = (0..16).map(|_| gathering.aggregate().expect("the aggregate")).collect();
    let heads = u64::from(members) * "1024 ".len() as u64 + members.to_string().len() as u64 + 1;
    let data = u64::from(members) * ITEM_BYTES as u64;
    assert!(sent.iter().all(|parts| count_bytes(parts) == data + heads));
    resident_bytes().saturating_sub(before)
}

#[test]
fn sixteen_thousand_registrations_take_memory_as_their_data_does() {
    for members in [64_u32, 1024, 16_384] {
        let (grown, data) = (grown_bytes(members), u64::from(members) * ITEM_BYTES as u64);
        // A fixed part, and for each who asks a pointer and a head for each item, but no data.
        let most = 2 * data + 16 * u64::from(members) * 128 + 1024 * 1024;
        assert!(grown < most, "{members} members: {grown} bytes for {data} of data");
    }
}
