//! Rendezvous data from any bytes. The result must not depend on the pieces in which it is read. Decoded data must be
//! encoded to the same bytes. A gathering must accept valid data only.
//!
//! The first byte is the level, the second one the size of the pieces.
#![no_main]

use std::sync::Arc;

use gantry_types::rendezvous::codec::check;
use gantry_shared::rendezvous::Gathering;
use gantry_types::rendezvous::{Data, Decoder, Limits};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [level, size, bytes @ ..] = bytes else { return };
    let (level, size) = (level % 6, usize::from(*size).max(1));
    let whole = Data::decode(level, bytes, Limits::default());
    assert_eq!(whole.is_ok(), check(level, bytes, Limits::default()).is_ok());
    assert_eq!(whole.is_ok(), in_pieces(level, bytes, size));
    let mut above = Gathering::new(level + 1, 1, 1).expect("a gathering");
    above.announce(0, bytes.len() as u64, u64::MAX).expect("a place");
    let taken = above.arrive(0, Arc::new(bytes.to_vec()));
    assert_eq!(taken.is_ok(), level == 0 || whole.is_ok());
    if let Ok(data) = whole {
        let mut again = Vec::new();
        data.encode(&mut again).expect("memory");
        assert_eq!(again, bytes);
    }
});

fn in_pieces(level: u8, bytes: &[u8], size: usize) -> bool {
    let mut decoder = Decoder::new(level, Limits::default()).expect("a level");
    for mut piece in bytes.chunks(size) {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        assert!(piece.is_empty());
    }
    decoder.finish().is_ok()
}
