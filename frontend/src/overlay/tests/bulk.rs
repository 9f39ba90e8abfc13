//! Streams of bulk data, from the agents' side.

use gantry_link::bulk::BulkOpener;
use gantry_link::credit::WINDOW_CHUNKS;

use super::*;

#[tokio::test]
async fn bulk_data_is_announced_sealed_and_complete() {
    let stage = Stage::new(&["a"], 1, SOON).await;
    let mut peer = stage.agent("a").await;
    peer.seat().await;
    let secret = stage.secret.clone();
    let (overlay, _events) = stage.assembled().await.unwrap();
    for length in [0_usize, 1, 256 * 1024, 700_000] {
        let data: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let (sent, sender) = (data.clone(), overlay.clone());
        let sending = tokio::spawn(async move {
            let (mut progress, deadline) = (0, Instant::now() + SOON);
            let all = NodeSet::first_n(1);
            let sent = sender.send_bulk(all, sink, sent.as_slice(), |bytes| progress = bytes, deadline).await;
            (sent, progress)
        });
        let stream = peer.linked(0).await;
        let request = peer.announced(stream).await;
        let mut opener = BulkOpener::new(&secret, stream);
        let mut received = Vec::new();
        while !opener.is_complete() {
            match peer.reader.next().await.unwrap() {
                Some(Incoming::Bulk(chunk)) => received.extend(opener.open(chunk.clone()).unwrap()),
                other => panic!("{other:?}"),
            }
            peer.owed += 1;
            peer.give_credit().await;
        }
        assert_eq!(received, data);
        let answer = Answer::Received { bytes: length as u64, hash: [0; 32] };
        peer.answer(request, 0, Ok(answer.clone())).await;
        let (sent, progress) = sending.await.unwrap();
        assert_eq!((sent.unwrap(), progress), (vec![(NodeId(0), Ok(answer))], length as u64));
    }
}

fn sink(stream: u64) -> Order {
    Order::Sink { stream }
}

/// Sends endless bulk data to these nodes, concurrently with the test.
fn send_endless(overlay: &Overlay, to: &str, patience: Duration) -> JoinHandle<Result<Vec<(NodeId, Reply)>>> {
    let (overlay, to) = (overlay.clone(), to.parse().unwrap());
    tokio::spawn(async move {
        overlay.send_bulk(to, sink, tokio::io::repeat(7), |_| {}, Instant::now() + patience).await
    })
}

#[tokio::test]
async fn bulk_data_waits_for_credit_and_orders_do_not() {
    let (overlay, _events, mut peers) = flat(&["a"]).await;
    let peer = &mut peers[0];
    let endless = send_endless(&overlay, "0", SOON);
    let stream = peer.linked(0).await;
    peer.announced(stream).await;
    for _ in 0..3 {
        // Everything covered by credit has arrived, and nothing more does.
        while peer.owed < WINDOW_CHUNKS {
            match timeout(SOON, peer.reader.next()).await.unwrap().unwrap() {
                Some(Incoming::Bulk(_)) => peer.owed += 1,
                other => panic!("{other:?}"),
            }
        }
        overlay.tell(To::All, Order::Release);
        assert_eq!(peer.hear::<Down>().await.order, Order::Release);
        peer.give_credit().await;
    }
    assert!(!endless.is_finished());
    endless.abort();
    assert_eq!(peer.ended(stream).await.kind(), Kind::Gone);
    assert!(overlay.has_no_requests());
}

#[tokio::test]
async fn a_stream_that_is_given_up_is_ended_everywhere() {
    struct Breaks(usize);
    impl tokio::io::AsyncRead for Breaks {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let count = self.0.min(into.remaining());
            self.0 -= count;
            into.put_slice(&vec![1; count]);
            std::task::Poll::Ready(if count > 0 { Ok(()) } else { Err(std::io::Error::other("it changed")) })
        }
    }
    let (overlay, _events, mut peers) = flat(&["a", "b"]).await;
    let sender = overlay.clone();
    let sending = tokio::spawn(async move {
        let to = NodeSet::first_n(2);
        sender.send_bulk(to, sink, Breaks(600_000), |_| {}, Instant::now() + SOON).await
    });
    let (mut stream, mut seen) = (0, 0);
    for peer in &mut peers {
        stream = peer.linked(seen).await;
        seen += 1;
    }
    for peer in &mut peers {
        peer.announced(stream).await;
        peer.ended(stream).await;
        assert!(peer.owed <= 2);
    }
    assert!(matches!(sending.await.unwrap(), Err(Error::Io { .. })));
    assert!(overlay.has_no_requests());
}

#[tokio::test]
async fn a_stream_whose_deadline_passes_is_ended_and_names_who_has_not_answered() {
    let (overlay, _events, mut peers) = flat(&["a", "b"]).await;
    let sending = send_endless(&overlay, "0-1", Duration::from_millis(500));
    let mut stream = 0;
    for (peer, node) in peers.iter_mut().zip(0..) {
        stream = peer.linked(node).await;
    }
    let request = peers[0].announced(stream).await;
    // One node's early failure does not end the stream.
    peers[0].answer(request, 0, Err(Failure::new(Kind::NoAccess, "disk full"))).await;
    peers[1].announced(stream).await;
    for peer in &mut peers {
        peer.ended(stream).await;
    }
    assert!(matches!(sending.await.unwrap(), Err(Error::TimedOut { missing, .. }) if missing == ["b"]));
    // A node that does not even link: the frontend cancels the stream.
    let sending = send_endless(&overlay, "1", Duration::from_millis(500));
    let (_, stream, _) = peers[1].seats().await;
    peers[1].ended(stream).await;
    assert!(matches!(sending.await.unwrap(), Err(Error::TimedOut { missing, .. }) if missing == ["b"]));
}

#[tokio::test]
async fn when_all_nodes_have_failed_nothing_more_is_sent() {
    let (overlay, _events, mut peers) = flat(&["a"]).await;
    let sending = send_endless(&overlay, "0", SOON);
    let stream = peers[0].linked(0).await;
    let request = peers[0].announced(stream).await;
    let full = Err(Failure::new(Kind::NoAccess, "disk full"));
    peers[0].answer(request, 0, full.clone()).await;
    peers[0].ended(stream).await;
    assert_eq!(sending.await.unwrap().unwrap(), [(NodeId(0), full)]);
}

#[tokio::test]
async fn who_cannot_reach_its_feeder_is_fed_by_its_parent_from_then_on() {
    let (overlay, _events, mut peers) = flat(&["a", "b", "c"]).await;
    for first in [true, false] {
        let sending = send_endless(&overlay, "0-2", SOON);
        let mut last = 0;
        if first {
            for (peer, node) in peers.iter_mut().zip(0..) {
                let (request, stream, seats) = peer.seats().await;
                last = stream;
                let feeder = Feeder::Peer { node: NodeId(0), listen: vec![NOWHERE.parse().unwrap()] };
                let (feeder, answer) = match node {
                    2 => (feeder, Err(Failure::new(Kind::Lost, "no route"))),
                    _ => (Feeder::Parent, Ok(Answer::Done)),
                };
                assert_eq!(seats[0].feeder, feeder);
                peer.answer(request, node, answer).await;
            }
        }
        for (peer, node) in peers.iter_mut().zip(0..) {
            if first {
                peer.ended(last).await;
            }
            let (request, _, seats) = peer.seats().await;
            assert_eq!((&seats[0].feeder, seats[0].children.len()), (&Feeder::Parent, 0));
            peer.answer(request, node, Ok(Answer::Done)).await;
        }
        for peer in &mut peers {
            assert!(peer.order_past_bulk().await.order.announces().is_some());
        }
        sending.abort();
        for peer in &mut peers {
            while !matches!(peer.order_past_bulk().await.order, Order::Bulk(BulkOrder::End { .. })) {}
            peer.give_credit().await;
        }
    }
}

#[tokio::test]
async fn a_node_that_hangs_is_answered_for_and_the_others_get_all() {
    // The frontend feeds 0 and 1, and 0 feeds 2.
    let (overlay, _events, mut peers) = flat(&["a", "b", "c"]).await;
    let sender = overlay.clone();
    let sending = tokio::spawn(async move {
        let source = tokio::io::repeat(7).take(20 * 256 * 1024);
        sender.send_bulk(NodeSet::first_n(3), sink, source, |_| {}, Instant::now() + SOON).await
    });
    let mut stream = 0;
    for (peer, node) in peers.iter_mut().zip(0..) {
        stream = peer.linked(node).await;
    }
    let [a, b, c] = &mut peers[..] else { panic!() };
    a.announced(stream).await;
    let (for_b, for_c) = (b.announced(stream).await, c.announced(stream).await);
    // Only the node that feeds another one may report it as stalled.
    b.notice(1, Notice::BulkStalled { stream, fed: NodeId(2) }).await;
    loop {
        match timeout(SOON, b.reader.next()).await.unwrap().unwrap() {
            Some(Incoming::Bulk(chunk)) => {
                b.owed += 1;
                b.give_credit().await;
                if chunk.is_last() {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    b.answer(for_b, 1, Ok(Answer::Done)).await;
    let why = c.ended(stream).await;
    assert_eq!(why.to_string(), "take bulk data: a, which feeds this node, accepted none for 2 s");
    c.answer(for_c, 2, Err(why.clone())).await;
    a.ended(stream).await;
    let answers = timeout(SOON, sending).await.unwrap().unwrap().unwrap();
    let hung = Failure::new(Kind::TimedOut, "take bulk data: a accepted none for 2 s");
    let hung = hung.with_hint("its agent sends no heartbeat: check that node");
    assert_eq!(answers, [(NodeId(0), Err(hung)), (NodeId(1), Ok(Answer::Done)), (NodeId(2), Err(why))]);
}
