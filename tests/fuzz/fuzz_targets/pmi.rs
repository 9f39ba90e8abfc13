//! Messages of a rank to its MPI server. The first byte selects the size of the pieces. The messages must not depend on
//! it.
#![no_main]

use gantry_agent::pmi::message::{Malformed, Message, Reply};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let (mut inbox, mut heard) = (Vec::new(), Vec::new());
    let mut failed = None;
    for piece in bytes.chunks(usize::from(*piece) + 1) {
        inbox.extend_from_slice(piece);
        failed = hear(&mut inbox, &mut heard);
        if failed.is_some() {
            break;
        }
    }
    let (mut whole, mut at_once) = (bytes.to_vec(), Vec::new());
    assert_eq!((hear(&mut whole, &mut at_once), at_once), (failed, heard));
});

/// Takes all complete messages, and writes an answer to each.
fn hear(inbox: &mut Vec<u8>, heard: &mut Vec<Vec<u8>>) -> Option<Malformed> {
    loop {
        let taken = match Message::take(inbox) {
            Ok(None) => return None,
            Err(malformed) => return Some(malformed),
            Ok(Some((message, taken))) => {
                let reply = Reply::ok(&message, "answer").with_bytes("value", message.get(b"key").unwrap_or_default());
                heard.push([message.command(), &reply.into_bytes()].concat());
                taken
            }
        };
        inbox.drain(..taken);
    }
}
