use proptest::prelude::*;

use super::*;

/// A body of exactly `length` bytes; the type encodes no length of its own.
struct Raw(usize);

impl Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0)?;
        for _ in 0..self.0 {
            tuple.serialize_element(&7_u8)?;
        }
        tuple.end()
    }
}

const SIZES: [usize; 9] = [0, 1, 3, 4, 65_519, 65_520, 65_535, MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES];

#[test]
fn every_boundary_size_goes_round() {
    for size in SIZES {
        let frame = encode(&Raw(size)).unwrap();
        assert_eq!(frame.len(), PREFIX_BYTES + size);
        let mut buffer = FrameBuffer::new();
        buffer.push(&frame).unwrap();
        assert_eq!(buffer.pop().unwrap().unwrap(), vec![7; size], "{size} bytes");
        assert!(buffer.is_empty() && buffer.pop().unwrap().is_none());
        let mut stream = Vec::new();
        write_frame(&mut stream, &Raw(size)).unwrap();
        assert_eq!(stream, frame);
        let mut stream = stream.as_slice();
        assert_eq!(read_frame(&mut stream).unwrap().unwrap(), vec![7; size]);
        assert!(read_frame(&mut stream).unwrap().is_none());
    }
}

#[test]
fn one_byte_too_many_is_refused_by_every_way() {
    let too_many = MAX_FRAME_BYTES + 1;
    assert!(matches!(encode(&Raw(too_many)), Err(FrameError::Oversized { .. })));
    assert!(matches!(encode_body(&Raw(too_many)), Err(FrameError::Oversized { .. })));
    assert!(matches!(decode::<()>(&vec![0; too_many]), Err(FrameError::Oversized { .. })));
    let prefix = u32::try_from(too_many).unwrap().to_be_bytes();
    assert!(matches!(
        read_frame(&mut &prefix[..]),
        Err(FrameError::Oversized { bytes: Some(1_048_577), .. })
    ));
    let mut buffer = FrameBuffer::new();
    buffer.push(&prefix).unwrap();
    assert!(matches!(buffer.pop(), Err(FrameError::Oversized { .. })));
    assert!(matches!(buffer.pop(), Err(FrameError::Oversized { .. })), "and stays refused");
}

#[test]
fn a_failed_encode_leaves_what_was_there() {
    let mut onto = b"before".to_vec();
    assert!(encode_onto(&Raw(MAX_FRAME_BYTES + 1), &mut onto).is_err());
    assert_eq!(onto, b"before");
}

#[test]
fn a_claim_takes_no_memory() {
    let claim = u32::try_from(MAX_FRAME_BYTES).unwrap().to_be_bytes();
    let mut buffer = FrameBuffer::new();
    buffer.push(&claim).unwrap();
    assert!(buffer.pop().unwrap().is_none());
    assert!(buffer.bytes.capacity() < 64, "{} bytes", buffer.bytes.capacity());
    assert!(matches!(read_frame(&mut &claim[..]), Err(FrameError::Cut)));
}

#[test]
fn a_buffer_that_nobody_pops_is_bounded() {
    let mut buffer = FrameBuffer::new();
    buffer.push(&vec![0; MAX_BUFFERED_BYTES]).unwrap();
    assert!(matches!(buffer.push(&[0]), Err(FrameError::Overfull { .. })));
    assert_eq!(buffer.pop().unwrap().unwrap(), Vec::<u8>::new());
    buffer.push(&[0]).unwrap();
}

#[test]
fn a_drained_buffer_gives_memory_back() {
    let mut buffer = FrameBuffer::new();
    buffer.push(&encode(&Raw(MAX_FRAME_BYTES)).unwrap()).unwrap();
    assert!(buffer.pop().unwrap().is_some());
    assert!(buffer.bytes.capacity() <= KEPT_BYTES);
}

#[test]
fn what_is_left_after_the_value_is_refused() {
    assert!(matches!(decode::<u8>(&[1, 2, 3]), Err(FrameError::Trailing { bytes: 2 })));
    assert!(matches!(decode::<u8>(&[]), Err(FrameError::Decode(_))));
    assert!(matches!(decode::<bool>(&[9]), Err(FrameError::Decode(_))));
}

#[test]
fn a_stream_that_ends_inside_a_frame_is_cut() {
    let frame = encode("hello").unwrap();
    for kept in 1..frame.len() {
        assert!(matches!(read_frame(&mut &frame[..kept]), Err(FrameError::Cut)), "{kept} bytes");
    }
}

/// Returns one byte per read, and an interruption before each.
struct Dribble<'a>(&'a [u8], bool);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = into.len().min(1);
        self.0.read(&mut into[..count])
    }
}

#[test]
fn short_and_interrupted_reads_are_gone_on_with() {
    let stream = [encode("one").unwrap(), encode("two").unwrap()].concat();
    let mut reader = Dribble(&stream, false);
    for expected in ["one", "two"] {
        assert_eq!(decode::<String>(&read_frame(&mut reader).unwrap().unwrap()).unwrap(), expected);
    }
    assert!(read_frame(&mut reader).unwrap().is_none());
}

type Message = (u64, Option<String>, Vec<i32>);

proptest! {
    #[test]
    fn frames_cut_anywhere_come_out_whole(
        messages: Vec<Message>,
        cuts in prop::collection::vec(1_usize..40, 1..50),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(|message| encode(message).unwrap()).collect();
        let mut buffer = FrameBuffer::new();
        let mut came = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (piece, later) = rest.split_at(rest.len().min(*cut));
            rest = later;
            buffer.push(piece).unwrap();
            while let Some(body) = buffer.pop().unwrap() {
                came.push(decode::<Message>(&body).unwrap());
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(came, messages);
    }

    #[test]
    fn any_bytes_are_taken_without_a_panic(bytes: Vec<u8>) {
        let mut buffer = FrameBuffer::new();
        buffer.push(&bytes).unwrap();
        while let Ok(Some(body)) = buffer.pop() {
            drop(decode::<Message>(&body));
        }
        drop(read_frame(&mut bytes.as_slice()));
        drop(decode::<Message>(&bytes));
    }
}
