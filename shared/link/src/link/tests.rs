use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, copy_bidirectional, duplex};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout};

use super::super::bulk::{BulkOpener, BulkSealer};
use super::super::handshake::{accept, connect};
use super::*;
use crate::limits::{HANDSHAKE_DEADLINE, MAX_BULK_CHUNK_BYTES};
use gantry_shared::secret::Secret;
use gantry_shared::wire::frame::MAX_FRAME_BYTES;

const APP: &[u8] = b"app-0001";
/// A Noise record's bytes beside its piece.
const AROUND: usize = HEADER_BYTES + 1 + TAG_BYTES;

fn secret() -> Secret {
    Secret::from([0x5a; 32])
}

async fn link_over(one: impl Stream, other: impl Stream) -> (Link, Link) {
    let (secret, deadline) = (secret(), Instant::now() + HANDSHAKE_DEADLINE);
    tokio::try_join!(connect(one, &secret, APP, deadline), accept(other, &secret, APP, deadline)).unwrap()
}

async fn linked(buffer: usize) -> (Link, Link) {
    let (one, other) = duplex(buffer);
    link_over(one, other).await
}

/// Two links, with the test between them after the handshake.
struct Tapped {
    dialler: Link,
    acceptor: Link,
    near: DuplexStream,
    far: DuplexStream,
}

async fn tapped() -> Tapped {
    let (one, mut near) = duplex(1 << 22);
    let (mut far, other) = duplex(1 << 22);
    let (dialler, acceptor) = tokio::select! {
        links = link_over(one, other) => links,
        _ = copy_bidirectional(&mut near, &mut far) => unreachable!("neither side closes"),
    };
    Tapped { dialler, acceptor, near, far }
}

impl Tapped {
    /// The records that the dialler writes for these steps.
    async fn written(&mut self, chunks: &[SealedChunk]) -> Vec<Vec<u8>> {
        let link = std::mem::replace(&mut self.dialler, linked(64).await.0);
        let (_reader, mut writer) = link.split();
        for chunk in chunks {
            writer.send("hello").unwrap();
            writer.send_bulk(chunk.clone()).unwrap();
        }
        writer.close().await.unwrap();
        let mut bytes = Vec::new();
        self.near.read_to_end(&mut bytes).await.unwrap();
        split_records(&bytes)
    }

    /// The acceptor's result for these bytes, followed by the end of the stream.
    async fn read(mut self, bytes: &[u8]) -> (Vec<Incoming>, Result<(), LinkError>) {
        self.far.write_all(bytes).await.unwrap();
        self.far.shutdown().await.unwrap();
        let (mut reader, _writer) = self.acceptor.split();
        read_all(&mut reader).await
    }
}

fn split_records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some(header) = bytes.first_chunk() {
        let (_, length) = parse_header(*header, Phase::Open).unwrap();
        let (record, rest) = bytes.split_at(HEADER_BYTES + length);
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

async fn read_all(reader: &mut LinkReader) -> (Vec<Incoming>, Result<(), LinkError>) {
    let mut came = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(incoming)) => came.push(incoming),
            Ok(None) => return (came, Ok(())),
            Err(error) => return (came, Err(error)),
        }
    }
}

fn chunks(pieces: &[&[u8]]) -> (BulkOpener, Vec<SealedChunk>) {
    let mut sealer = BulkSealer::start(&secret()).unwrap();
    let opener = BulkOpener::new(&secret(), sealer.stream());
    let last = pieces.len() - 1;
    (opener, pieces.iter().enumerate().map(|(i, piece)| sealer.seal(piece, i == last).unwrap()).collect())
}

fn frame(text: &str) -> Incoming {
    Incoming::Frame(frame::encode_body(text).unwrap())
}

/// Whether everything arrived: both frames, a whole bulk stream and the goodbye.
fn is_complete(mut opener: BulkOpener, came: &[Incoming], end: &Result<(), LinkError>) -> bool {
    let frames = came.iter().filter(|incoming| **incoming == frame("hello")).count();
    let opened = came.iter().all(|incoming| match incoming {
        Incoming::Frame(_) => true,
        Incoming::Bulk(chunk) => opener.open(chunk.clone()).is_ok(),
        Incoming::Credit(_) => false,
    });
    end.is_ok() && opened && opener.is_complete() && frames == 2
}

#[tokio::test]
async fn every_boundary_size_goes_round() {
    let edges =
        [MAX_PIECE_BYTES - PREFIX_BYTES, 65_519 - PREFIX_BYTES, MAX_PIECE_BYTES, 65_519, 65_520, 65_535];
    let around = edges.into_iter().flat_map(|size| [size - 1, size, size + 1]);
    let sizes: Vec<usize> = [0, 1, MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES].into_iter().chain(around).collect();
    let (one, other) = linked(10_000).await;
    let (mut reader, (_kept, mut writer)) = (other.split().0, one.split());
    let send = async {
        for size in &sizes {
            writer.send_body(&vec![7; *size]).unwrap();
            writer.flush().await.unwrap();
            assert_eq!(writer.buffered_bytes(), 0);
        }
        writer.close().await.unwrap();
    };
    let ((), (came, end)) = tokio::join!(send, read_all(&mut reader));
    end.unwrap();
    for (incoming, size) in came.iter().zip(&sizes) {
        assert_eq!(*incoming, Incoming::Frame(vec![7; *size]), "{size} bytes");
    }
    assert_eq!(came.len(), sizes.len());
}

#[tokio::test]
async fn a_message_that_is_too_large_is_not_sent_and_the_link_goes_on() {
    let (one, other) = linked(4096).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    let too_large = vec![0; MAX_FRAME_BYTES + 1];
    assert!(matches!(writer.send_body(&too_large), Err(LinkError::Oversized { .. })));
    assert!(matches!(writer.send(&too_large), Err(LinkError::Oversized { .. })));
    assert_eq!(writer.buffered_bytes(), 0);
    writer.send("after").unwrap();
    writer.flush().await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(frame("after")));
}

#[tokio::test]
async fn a_peer_that_claims_too_large_a_frame_is_left() {
    let (one, other) = linked(4096).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    writer.plain.extend_from_slice(&u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes());
    writer.flush().await.unwrap();
    assert!(matches!(reader.next().await, Err(LinkError::Oversized { what: "frame", .. })));
    assert!(matches!(reader.next().await, Err(LinkError::Failed)));
}

#[tokio::test]
async fn records_beyond_their_limit_or_without_meaning_are_refused() {
    let cases: [(&[u8], &str); 7] = [
        (&[0, 1, 0, 0], "Oversized"),       // a Noise record of 65,536 bytes
        (&[1, 4, 0, 34], "Oversized"),      // one byte more than the largest chunk
        (&[0, 0, 0, 0], "Malformed"),       // a Noise record without a seal
        (&[1, 0, 0, 1, 9], "Malformed"),    // a chunk without a header
        (&[2, 0, 0, 0], "Malformed"),       // the handshake is over
        (&[3, 0, 0, 1, b'x'], "Malformed"), // so is the time for reasons in clear
        (&[9, 0, 0, 0], "Malformed"),
    ];
    for (bytes, expected) in cases {
        let (came, end) = tapped().await.read(bytes).await;
        assert!(came.is_empty());
        assert!(format!("{:?}", end.unwrap_err()).starts_with(expected), "{bytes:?}");
    }
}

#[tokio::test]
async fn sealed_records_without_meaning_are_refused() {
    for plain in [&[][..], &[Meaning::Confirm.code()], &[4]] {
        let (one, other) = linked(4096).await;
        let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
        writer.seal(plain).unwrap();
        writer.flush().await.unwrap();
        assert!(matches!(reader.next().await, Err(LinkError::Malformed { .. })), "{plain:?}");
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_found() {
    let bits = {
        let (_, chunks) = chunks(&[b"bulk", b"end"]);
        tapped().await.written(&chunks).await.concat().len() * 8
    };
    for bit in 0..bits {
        let mut tapped = tapped().await;
        let (opener, chunks) = chunks(&[b"bulk", b"end"]);
        let mut bytes = tapped.written(&chunks).await.concat();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (came, end) = tapped.read(&bytes).await;
        assert!(!is_complete(opener, &came, &end), "bit {bit}");
    }
}

#[tokio::test]
async fn replayed_reordered_and_missing_records_are_found() {
    let orders: [(&[usize], bool); 10] = [
        (&[0, 1, 2, 3, 4], true),
        (&[0, 0, 1, 2, 3, 4], false), // a frame twice
        (&[0, 1, 1, 2, 3, 4], false), // a chunk twice
        (&[1, 2, 3, 4], false),
        (&[0, 2, 3, 4], false),
        (&[2, 1, 0, 3, 4], false),
        (&[0, 3, 2, 1, 4], false),
        (&[4], false),          // nothing but the goodbye
        (&[0, 1, 2, 3], false), // all but the goodbye
        (&[], false),
    ];
    for (order, expected) in orders {
        let mut tapped = tapped().await;
        let (opener, chunks) = chunks(&[b"bulk", b"end"]);
        let records = tapped.written(&chunks).await;
        assert_eq!(records.len(), 5);
        let bytes: Vec<u8> = order.iter().flat_map(|index| records[*index].clone()).collect();
        let (came, end) = tapped.read(&bytes).await;
        assert_eq!(is_complete(opener, &came, &end), expected, "{order:?}: {end:?}");
    }
}

#[tokio::test]
async fn a_sides_own_records_do_not_open_when_they_come_back() {
    let (one, mut near) = duplex(4096);
    let (mut far, other) = duplex(4096);
    let (dialler, _acceptor) = tokio::select! {
        links = link_over(one, other) => links,
        _ = copy_bidirectional(&mut near, &mut far) => unreachable!("neither side closes"),
    };
    let (mut reader, mut writer) = dialler.split();
    writer.send("hello").unwrap();
    writer.flush().await.unwrap();
    let mut bytes = [0; 64];
    let count = near.read(&mut bytes).await.unwrap();
    near.write_all(&bytes[..count]).await.unwrap();
    assert!(matches!(reader.next().await, Err(LinkError::Malformed { .. })));
}

#[tokio::test]
async fn a_cut_anywhere_is_a_cut() {
    let mut first = tapped().await;
    let length = first.written(&chunks(&[b"bulk", b"end"]).1).await.concat().len();
    for kept in 0..length {
        let mut tapped = tapped().await;
        let bytes = tapped.written(&chunks(&[b"bulk", b"end"]).1).await.concat();
        let (_, end) = tapped.read(&bytes[..kept]).await;
        assert!(matches!(end, Err(LinkError::Cut { phase: Phase::Open, .. })), "{kept} bytes: {end:?}");
    }
}

#[tokio::test]
async fn a_goodbye_inside_a_frame_is_refused() {
    let (one, other) = linked(4096).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    writer.plain.extend_from_slice(&[0, 0, 0, 9, 1, 2]);
    writer.close().await.unwrap();
    assert!(matches!(reader.next().await, Err(LinkError::Malformed { .. })));
}

#[tokio::test]
async fn a_goodbye_ends_one_direction_and_a_drop_is_a_cut() {
    let (one, other) = linked(4096).await;
    let ((mut one_reads, one_writes), (mut other_reads, mut other_writes)) = (one.split(), other.split());
    one_writes.close().await.unwrap();
    assert_eq!(other_reads.next().await.unwrap(), None);
    assert_eq!(other_reads.next().await.unwrap(), None);
    other_writes.send("still here").unwrap();
    other_writes.flush().await.unwrap();
    assert_eq!(one_reads.next().await.unwrap(), Some(frame("still here")));
    drop((other_reads, other_writes));
    assert!(one_reads.next().await.unwrap_err().is_cut());
    assert!(matches!(one_reads.next().await, Err(LinkError::Failed)));
}

#[tokio::test]
async fn a_refusal_brings_its_reason() {
    let (one, other) = linked(4096).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    writer.send("first").unwrap();
    writer.refuse("a frame has 1048576 bytes at most\n").await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(frame("first")));
    let end = reader.next().await.unwrap_err();
    let expected = "a frame has 1048576 bytes at most";
    assert!(
        matches!(&end, LinkError::Refused { phase: Phase::Open, reason } if reason == expected),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_writer_whose_peer_is_gone_says_so_and_stays_failed() {
    let (one, other) = linked(4096).await;
    let (_reader, mut writer) = one.split();
    drop(other);
    writer.send("hello").unwrap();
    assert!(writer.flush().await.unwrap_err().is_cut());
    assert!(matches!(writer.send("again"), Err(LinkError::Failed)));
    assert!(matches!(writer.close().await, Err(LinkError::Failed)));
}

/// Counts calls of write.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_batch_is_one_write_and_small_messages_share_a_record() {
    let writes = Arc::new(AtomicUsize::new(0));
    let (one, other) = duplex(1 << 20);
    let (one, other) = link_over(Counted(one, Arc::clone(&writes)), other).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    writes.store(0, Ordering::Relaxed);
    for _ in 0..1000 {
        writer.send("hello").unwrap();
    }
    assert_eq!(writer.buffered_bytes(), 10_000);
    let records = writer.nonce;
    writer.flush().await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!((writes.load(Ordering::Relaxed), writer.nonce - records), (1, 1));
    for _ in 0..1000 {
        assert_eq!(reader.next().await.unwrap(), Some(frame("hello")));
    }
}

#[tokio::test]
async fn a_batch_asks_to_be_flushed_at_its_size() {
    let (one, _other) = linked(4096).await;
    let (_reader, mut writer) = one.split();
    writer.send_body(&vec![0; BATCH_BYTES / 2]).unwrap();
    assert!(!writer.wants_flush());
    writer.send_body(&vec![0; BATCH_BYTES / 2]).unwrap();
    assert!(writer.wants_flush());
    assert!(writer.buffered_bytes() > BATCH_BYTES + AROUND);
}

#[tokio::test]
async fn a_cancelled_next_loses_nothing() {
    let (one, other) = linked(3).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    let (_, chunks) = chunks(&[&[1; 100], b""]);
    let write = async {
        for chunk in &chunks {
            writer.send("hello").unwrap();
            writer.send_bulk(chunk.clone()).unwrap();
        }
        writer.flush().await.unwrap();
        writer.close().await.unwrap();
    };
    let read = async {
        let (mut came, mut cancelled) = (Vec::new(), 0);
        loop {
            tokio::select! {
                biased;
                next = reader.next() => match next.unwrap() {
                    Some(incoming) => came.push(incoming),
                    None => return (came, cancelled),
                },
                () = tokio::task::yield_now() => cancelled += 1,
            }
        }
    };
    let ((), (came, cancelled)) = tokio::join!(write, read);
    let [first, second] = [0, 1].map(|index: usize| Incoming::Bulk(chunks[index].clone()));
    assert_eq!(came, [frame("hello"), first, frame("hello"), second]);
    assert!(cancelled > 20, "{cancelled} times");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_flush_goes_on_where_it_was() {
    let (one, other) = linked(10).await;
    let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
    writer.send("before").unwrap();
    assert!(timeout(Duration::from_secs(1), writer.flush()).await.is_err(), "the peer does not read");
    let whole = AROUND + PREFIX_BYTES + frame::encode_body("before").unwrap().len();
    assert!(writer.buffered_bytes() < whole, "a part is written");
    writer.send("between").unwrap();
    let (closed, (came, end)) = tokio::join!(writer.close(), read_all(&mut reader));
    closed.and(end).unwrap();
    assert_eq!(came, [frame("before"), frame("between")]);
}

#[tokio::test]
async fn one_body_and_one_chunk_go_to_64_links_by_tasks_and_queues() {
    let body: Arc<[u8]> = frame::encode_body("to all").unwrap().into();
    let (_, chunks) = chunks(&[&[5; MAX_BULK_CHUNK_BYTES]]);
    let (mut queues, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..64 {
        let (one, other) = linked(65_536).await;
        let (queue, mut orders) = mpsc::channel::<Incoming>(4);
        queues.push(queue);
        tasks.push(tokio::spawn(async move {
            let (_reader, mut writer) = one.split();
            while let Some(order) = orders.recv().await {
                match order {
                    Incoming::Frame(body) => writer.send_body(&body)?,
                    Incoming::Bulk(chunk) => writer.send_bulk(chunk)?,
                    Incoming::Credit(places) => writer.send_credit(places)?,
                }
                writer.flush().await?;
            }
            writer.close().await.map(|()| 0)
        }));
        tasks.push(tokio::spawn(async move {
            let (mut reader, _writer) = other.split();
            let (came, end) = read_all(&mut reader).await;
            end.map(|()| came.len())
        }));
    }
    for queue in queues {
        queue.send(Incoming::Frame(body.to_vec())).await.unwrap();
        queue.send(Incoming::Bulk(chunks[0].clone())).await.unwrap();
    }
    let mut came = 0;
    for task in tasks {
        came += task.await.unwrap().unwrap();
    }
    assert_eq!(came, 128);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn frames_and_chunks_come_in_the_order_in_which_they_were_sent_and_all_credit_comes(
        steps in prop::collection::vec((0..3, any::<bool>(), 0_usize..3000), 1..20),
        buffer in 1_usize..5000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (one, other) = linked(buffer).await;
            let ((_kept, mut writer), (mut reader, _other_writer)) = (one.split(), other.split());
            let mut sealer = BulkSealer::start(&secret()).unwrap();
            let (mut sent, mut credits) = (Vec::new(), 0);
            let write = async {
                for (kind, flushes, size) in steps {
                    if kind == 2 {
                        writer.send_credit(3).unwrap();
                        credits += 1;
                    } else if kind == 1 {
                        let chunk = sealer.seal(&vec![1; size], false).unwrap();
                        sent.push(Incoming::Bulk(chunk.clone()));
                        writer.send_bulk(chunk).unwrap();
                    } else {
                        writer.send_body(&vec![2; size]).unwrap();
                        sent.push(Incoming::Frame(vec![2; size]));
                    }
                    if flushes {
                        writer.flush().await.unwrap();
                    }
                }
                writer.close().await.unwrap();
            };
            let ((), (mut came, end)) = tokio::join!(write, read_all(&mut reader));
            end.unwrap();
            let all = came.len();
            came.retain(|incoming| *incoming != Incoming::Credit(3));
            assert_eq!((all - came.len(), came), (credits, sent));
        });
    }
}
