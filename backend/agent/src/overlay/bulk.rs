//! Bulk data that is meant for this node.

use gantry_shared::wire::message::{Answer, Consumer, Reply};
use gantry_types::error::Failure;
use gantry_types::id::RequestId;
use tokio::sync::OwnedSemaphorePermit;

/// The next bytes of a bulk stream: authenticated as the app's, complete and in order.
///
/// The consumer gets pieces after the order that announced the stream. The last piece is [`last`](Piece::last) or
/// [`aborted`](Piece::aborted). The consumer answers the order once. After an early failure it drops later pieces.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The stream's number.
    pub(crate) stream: u64,
    /// The consumer of the stream.
    pub(crate) consumer: Consumer,
    /// The bytes.
    pub(crate) plain: Vec<u8>,
    /// Whether the stream is complete with this piece.
    pub(crate) last: bool,
    /// The stream ends here incomplete. The consumer discards what it has, and answers with this failure.
    pub(crate) aborted: Option<Failure>,
    /// Dropping the piece makes room for the next one.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl Piece {
    /// Bytes that came whole, without a stream.
    pub(crate) fn alone(plain: Vec<u8>) -> Self {
        Self { stream: 0, consumer: Consumer::Channel, plain, last: true, aborted: None, _room: None }
    }

    pub(super) fn aborted(stream: u64, consumer: Consumer, why: Failure) -> Self {
        Self { stream, consumer, plain: Vec::new(), last: false, aborted: Some(why), _room: None }
    }
}

#[cfg(test)]
impl Piece {
    /// A piece for tests, without a real stream.
    pub(crate) fn of(stream: u64, plain: &[u8], last: bool) -> Self {
        let (consumer, plain) = (Consumer::Sink, plain.to_vec());
        Self { stream, consumer, plain, last, aborted: None, _room: None }
    }
}

/// Receives announced streams and computes their length and hash.
#[derive(Debug, Default)]
pub(crate) struct BulkReceiver {
    streams: Vec<(u64, Received)>,
}

#[derive(Debug)]
struct Received {
    request: Option<RequestId>,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl BulkReceiver {
    /// A stream was announced. Its end is certain, and yields the answer to `request`.
    pub(crate) fn expect(&mut self, stream: u64, request: Option<RequestId>) {
        self.streams.push((stream, Received { request, bytes: 0, hasher: blake3::Hasher::new() }));
    }

    /// Takes the next bytes of a stream. At its end, returns the request and the answer.
    pub(crate) fn take(&mut self, piece: &Piece) -> Option<(Option<RequestId>, Reply)> {
        let at = self.streams.iter().position(|(stream, _)| *stream == piece.stream)?;
        let received = &mut self.streams.get_mut(at)?.1;
        received.bytes += piece.plain.len() as u64;
        received.hasher.update(&piece.plain);
        if !piece.last && piece.aborted.is_none() {
            return None;
        }
        let (_, received) = self.streams.remove(at);
        let hash = *received.hasher.finalize().as_bytes();
        let complete = Answer::Received { bytes: received.bytes, hash };
        Some((received.request, piece.aborted.clone().map_or(Ok(complete), Err)))
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::error::Kind;

    use super::*;

    #[test]
    fn a_stream_is_answered_at_its_end_with_length_and_hash() {
        let mut bulk = BulkReceiver::default();
        bulk.expect(1, Some(RequestId(5)));
        bulk.expect(2, None);
        assert!(bulk.take(&Piece::of(1, b"some ", false)).is_none());
        assert!(bulk.take(&Piece::of(3, b"other", true)).is_none());
        let (request, answer) = bulk.take(&Piece::of(1, b"bytes", true)).unwrap();
        let hash = *blake3::hash(b"some bytes").as_bytes();
        assert_eq!((request, answer), (Some(RequestId(5)), Ok(Answer::Received { bytes: 10, hash })));
        assert!(bulk.take(&Piece::of(1, b"", true)).is_none());
        assert!(bulk.take(&Piece::of(2, b"", true)).is_some());
    }

    #[test]
    fn an_aborted_stream_is_answered_with_the_reason_and_forgotten() {
        let mut bulk = BulkReceiver::default();
        bulk.expect(1, Some(RequestId(5)));
        assert!(bulk.take(&Piece::of(1, b"some", false)).is_none());
        let why = Failure::new(Kind::Gone, "given up");
        let (request, answer) = bulk.take(&Piece::aborted(1, Consumer::Sink, why.clone())).unwrap();
        assert_eq!((request, answer), (Some(RequestId(5)), Err(why)));
        assert!(bulk.take(&Piece::of(1, b"", true)).is_none());
    }
}
