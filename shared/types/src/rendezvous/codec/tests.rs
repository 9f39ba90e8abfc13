use proptest::prelude::*;

use super::*;

/// Data that owns its items.
#[derive(Debug, Clone)]
enum Owned {
    Item(Vec<u8>),
    Group(Vec<Owned>),
}

impl Owned {
    fn borrow(&self) -> Data<'_> {
        match self {
            Self::Item(bytes) => Data::Item(bytes),
            Self::Group(parts) => Data::Group(parts.iter().map(Self::borrow).collect()),
        }
    }
}

fn of_level(level: u8) -> BoxedStrategy<Owned> {
    match level {
        0 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Owned::Item).boxed(),
        _ => prop::collection::vec(of_level(level - 1), 0..4).prop_map(Owned::Group).boxed(),
    }
}

fn any_data() -> impl Strategy<Value = (u8, Owned)> {
    (0_u8..5).prop_flat_map(|level| (Just(level), of_level(level)))
}

fn encoded(data: &Data) -> Vec<u8> {
    let mut bytes = Vec::new();
    data.encode(&mut bytes).unwrap();
    bytes
}

/// Decodes data in pieces, and encodes the result again.
fn through_decoder<'a>(level: u8, pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, DataError> {
    let mut decoder = Decoder::new(level, Limits::default())?;
    let mut again = Vec::new();
    for mut piece in pieces {
        while let Some(token) = decoder.next(&mut piece)? {
            match token {
                Token::Group { count: number, .. } | Token::Item { bytes: number } => {
                    again.extend_from_slice(Head::new(number).as_bytes());
                }
                Token::Bytes(bytes) => again.extend_from_slice(bytes),
            }
        }
        assert!(piece.is_empty());
    }
    decoder.finish().map(|()| again)
}

proptest! {
    #[test]
    fn data_of_any_nesting_reads_back((level, owned) in any_data(), size in 1_usize..9) {
        let data = owned.borrow();
        let bytes = encoded(&data);
        prop_assert_eq!(Data::decode(level, &bytes, Limits::default()).unwrap(), data);
        prop_assert_eq!(through_decoder(level, bytes.chunks(size)).unwrap(), bytes.clone());
        for end in 0..bytes.len() {
            let cut = Data::decode(level, &bytes[..end], Limits::default());
            prop_assert_eq!(cut, Err(DataError::Cut { at: end as u64 }));
        }
        let more = [&bytes[..], b"0"].concat();
        let trailing = Err(DataError::Trailing { at: bytes.len() as u64 });
        prop_assert_eq!(Data::decode(level, &more, Limits::default()), trailing);
    }

    #[test]
    fn whatever_is_read_is_written_as_the_same_bytes(level in 0_u8..4, bytes in "[0-3 a]{0,24}", size in 1_usize..5) {
        let bytes = bytes.as_bytes();
        let whole = Data::decode(level, bytes, Limits::default());
        prop_assert_eq!(through_decoder(level, bytes.chunks(size)).is_ok(), whole.is_ok());
        prop_assert_eq!(check(level, bytes, Limits::default()).is_ok(), whole.is_ok());
        if let Ok(data) = whole {
            prop_assert_eq!(encoded(&data), bytes);
        }
    }

    #[test]
    fn a_head_is_the_number_and_a_space(number: u64) {
        prop_assert_eq!(Head::new(number).as_bytes().to_vec(), format!("{number} ").into_bytes());
    }
}

#[test]
fn the_examples_of_the_format_are_read_and_written() {
    let job = Data::Group(vec![Data::Item(b"ab"), Data::Item(b"xyz")]);
    assert_eq!(encoded(&job), b"2 2 ab3 xyz");
    let multijob = Data::Group(vec![job.clone(), job.clone()]);
    assert_eq!(encoded(&multijob), b"2 2 2 ab3 xyz2 2 ab3 xyz");
    assert_eq!(Data::decode(2, b"2 2 2 ab3 xyz2 2 ab3 xyz", Limits::default()), Ok(multijob.clone()));
    assert_eq!(multijob.get(&[1, 1]).and_then(Data::as_item), Some(&b"xyz"[..]));
    assert_eq!(multijob.get(&[1]).and_then(Data::as_group).map(<[_]>::len), Some(2));
    assert_eq!((multijob.get(&[2]), multijob.get(&[0, 0, 0])), (None, None));
    assert_eq!(check(1, b"2 2 ab3 xyz", Limits::default()), Ok(2));
}

#[test]
fn malformed_data_is_refused_at_the_right_position() {
    let check = |level: u8, bytes: &[u8], expected: DataError| {
        assert_eq!(Data::decode(level, bytes, Limits::default()), Err(expected), "{}", bytes.escape_ascii());
    };
    check(0, b"", DataError::Cut { at: 0 });
    check(0, b" ", DataError::NoNumber { at: 0 });
    check(0, b"+1 a", DataError::NoNumber { at: 0 });
    check(0, b"-1 a", DataError::NoNumber { at: 0 });
    check(0, b"01 a", DataError::NoNumber { at: 1 });
    check(0, b"1\ta", DataError::NoNumber { at: 1 });
    check(0, b"1  a", DataError::Trailing { at: 3 });
    check(0, b"3 ab", DataError::Cut { at: 4 });
    check(0, b"1 ab", DataError::Trailing { at: 3 });
    check(1, b"2 2 ab3 xy", DataError::Cut { at: 10 });
    check(1, b"1 2 ab3 xyz", DataError::Trailing { at: 6 });
    check(1, b"2 2 ab 3 xyz", DataError::NoNumber { at: 6 });
    check(MAX_LEVEL + 1, b"0 ", DataError::Level { level: MAX_LEVEL + 1 });
    let huge = DataError::TooLarge { at: 19, what: "a number", limit: u64::MAX };
    check(0, b"99999999999999999999 ", huge);
}

#[test]
fn a_claim_is_refused_before_anything_is_taken_for_it() {
    let limits = Limits { parts: 10, item_bytes: 100, bytes: 200 };
    let check = |level: u8, bytes: &[u8], what: &str| match Data::decode(level, bytes, limits) {
        Err(DataError::TooLarge { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    };
    check(0, b"101 ", "an item");
    check(1, b"11 ", "the number of parts");
    check(1, b"18446744073709551615 ", "the number of parts");
    check(2, b"4 4 0 0 0 0 4 ", "the number of parts");
    let three = [&b"3 "[..], b"100 ", &[0; 100], b"90 ", &[0; 90], b"90 "].concat();
    check(1, &three, "the data");
    let within = [&b"1 100 "[..], &[0; 100]].concat();
    assert!(Data::decode(1, &within, limits).is_ok());
}
