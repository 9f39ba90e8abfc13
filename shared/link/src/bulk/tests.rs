use proptest::prelude::*;

use super::*;

fn secret() -> Secret {
    Secret::from([0x5a; 32])
}

fn sealed(pieces: &[&[u8]]) -> (BulkOpener, Vec<SealedChunk>) {
    let mut sealer = BulkSealer::start(&secret()).unwrap();
    let last = pieces.len() - 1;
    let chunks = pieces.iter().enumerate().map(|(i, piece)| sealer.seal(piece, i == last).unwrap()).collect();
    (BulkOpener::new(&secret(), sealer.stream()), chunks)
}

fn encode(chunk: &SealedChunk) -> Vec<u8> {
    let encoded = [&chunk.header()[..], chunk.sealed()].concat();
    assert_eq!(encoded.len(), chunk.encoded_bytes());
    encoded
}

fn parse(encoded: &[u8]) -> Result<SealedChunk, BulkError> {
    let (header, sealed) = encoded.split_first_chunk().expect("a header");
    SealedChunk::build(*header, sealed.to_vec())
}

#[test]
fn a_stream_goes_round_at_every_boundary_size() {
    for size in [0, 1, 65_519, 65_520, MAX_BULK_CHUNK_BYTES - 1, MAX_BULK_CHUNK_BYTES] {
        let piece = vec![3; size];
        let (mut opener, chunks) = sealed(&[&piece, &piece, b""]);
        for (index, chunk) in chunks.iter().enumerate() {
            let arrived = parse(&encode(chunk)).unwrap();
            assert_eq!(&arrived, chunk);
            assert_eq!(opener.open(arrived.clone()).unwrap().len(), if index == 2 { 0 } else { size });
            assert_eq!(opener.is_complete(), index == 2);
        }
    }
}

#[test]
fn one_byte_too_many_is_refused() {
    let mut sealer = BulkSealer::start(&secret()).unwrap();
    let piece = vec![0; MAX_BULK_CHUNK_BYTES + 1];
    assert!(matches!(sealer.seal(&piece, false), Err(BulkError::Oversized { .. })));
    assert!(matches!(parse(&vec![0; MAX_ENCODED_BYTES + 1]), Err(BulkError::Oversized { .. })));
    assert_eq!(sealer.seal(b"", false).unwrap().sequence(), 0, "what was refused took no number");
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let (mut opener, chunks) = sealed(&[b"some bytes", b"end"]);
    let good = encode(&chunks[0]);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let refused = parse(&bad).and_then(|chunk| opener.open(chunk.clone()));
        assert!(refused.is_err(), "bit {bit}");
    }
    opener.open(chunks[0].clone()).unwrap();
}

#[test]
fn missing_repeated_reordered_and_late_chunks_are_refused() {
    let (mut opener, chunks) = sealed(&[b"0", b"1", b"2"]);
    assert!(matches!(opener.open(chunks[1].clone()), Err(BulkError::OutOfOrder { expected: 0, got: 1 })));
    opener.open(chunks[0].clone()).unwrap();
    assert!(matches!(opener.open(chunks[0].clone()), Err(BulkError::OutOfOrder { expected: 1, got: 0 })));
    assert!(matches!(opener.open(chunks[2].clone()), Err(BulkError::OutOfOrder { expected: 1, got: 2 })));
    opener.open(chunks[1].clone()).unwrap();
    opener.open(chunks[2].clone()).unwrap();
    assert!(matches!(opener.open(chunks[2].clone()), Err(BulkError::AfterEnd)));
}

#[test]
fn a_chunk_under_another_number_or_stream_is_refused() {
    let (mut opener, chunks) = sealed(&[b"0", b"1"]);
    let renumbered = SealedChunk { sequence: 0, ..chunks[1].clone() };
    assert!(matches!(opener.open(renumbered.clone()), Err(BulkError::BrokenSeal)));
    let shortened = SealedChunk { last: true, ..chunks[0].clone() };
    assert!(matches!(opener.open(shortened.clone()), Err(BulkError::BrokenSeal)));
    let (_, others) = sealed(&[b"0"]);
    assert!(matches!(opener.open(others[0].clone()), Err(BulkError::OtherStream { .. })));
    let renamed = SealedChunk { stream: chunks[0].stream, ..others[0].clone() };
    assert!(matches!(opener.open(renamed.clone()), Err(BulkError::BrokenSeal)));
}

#[test]
fn another_app_cannot_open() {
    let (opener, chunks) = sealed(&[b"0"]);
    let other = Secret::from([0x5b; 32]);
    let mut other = BulkOpener::new(&other, opener.key.stream);
    assert!(matches!(other.open(chunks[0].clone()), Err(BulkError::BrokenSeal)));
}

#[test]
fn nothing_is_sealed_after_the_last() {
    let mut sealer = BulkSealer::start(&secret()).unwrap();
    sealer.seal(b"", true).unwrap();
    assert!(matches!(sealer.seal(b"", true), Err(BulkError::AfterEnd)));
}

#[test]
fn a_numbered_stream_never_wraps() {
    let mut sealer = BulkSealer::start(&secret()).unwrap();
    sealer.next = u64::MAX;
    sealer.seal(b"", false).unwrap();
    assert!(matches!(sealer.seal(b"", false), Err(BulkError::AfterEnd)));
}

#[test]
fn debug_shows_no_key_and_no_contents() {
    let key = BulkKey::derive(&secret(), 7);
    assert_eq!(format!("{key:?}"), "BulkKey { stream: 7, .. }");
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(header: [u8; HEADER_BYTES], sealed: Vec<u8>) {
        if let Ok(chunk) = SealedChunk::build(header, sealed.clone()) {
            prop_assert_eq!(encode(&chunk), [&header[..], &sealed].concat());
        }
    }
}
