//! Bulk data through agents, over both kinds of links.

use gantry_link::bulk::BulkSealer;
use gantry_shared::wire::message::{Attached, BulkCount, Feeder};

use super::super::BulkReceiver;
use super::*;

const CHUNK: usize = 256 * 1024;

/// A stall time for tests in which a node stalls.
const SHORT: Duration = Duration::from_secs(1);

fn seat(node: u32, feeder: Feeder, children: &[u32], relayed: &[u32]) -> BulkSeat {
    let nodes = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect();
    BulkSeat { node: NodeId(node), own: true, feeder, children: nodes(children), relayed: nodes(relayed) }
}

fn not_own(seat: BulkSeat) -> BulkSeat {
    BulkSeat { own: false, ..seat }
}

fn peer(node: u32, listen: SocketAddr) -> Feeder {
    Feeder::Peer { node: NodeId(node), listen: vec![listen] }
}

fn sink(sealer: &BulkSealer) -> Order {
    Order::Sink { stream: sealer.stream() }
}

/// Reads the next piece. The order that announces it arrives before.
async fn piece(agent: &mut Joined) -> crate::overlay::Piece {
    match input(agent).await {
        Input::Bulk(piece) => piece,
        other => panic!("{other:?}"),
    }
}

/// Takes inputs until the announced stream has ended.
async fn receive(agent: &mut Joined) -> Reply {
    let mut bulk = BulkReceiver::default();
    loop {
        match input(agent).await {
            Input::Order { request, order: Order::Sink { stream } } => bulk.expect(stream, request),
            Input::Bulk(piece) => {
                if let Some((Some(request), answer)) = bulk.take(&piece) {
                    agent.up.answer(request, answer.clone());
                    return answer;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Sends a stream to nodes 0 and 2 of a chain with these seats.
///
/// It arrives unchanged, and each node has forwarded `sent_on` times its bytes.
async fn check(seats: impl Fn(&[SocketAddr]) -> Vec<BulkSeat>, sent_on: [u64; 3]) {
    const BYTES: usize = 20 * 200_000;
    let (front, mut root, mut agents, listens) = chain(3).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    root.link(sealer.stream(), seats(&listens)).await;
    root.order(1, To::Nodes("0,2".parse().unwrap()), sink(&sealer)).await;
    let data: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let middle = agents.remove(1);
    let mut sinks = agents.into_iter();
    let (mut first, mut last) = (sinks.next().unwrap(), sinks.next().unwrap());
    let sending = async {
        // No order has announced this one.
        let stray = BulkSealer::start(&front.secret).unwrap().seal(b"stray", true).unwrap();
        root.feed(&stray).await;
        for piece in data.chunks(200_000) {
            root.feed(&sealer.seal(piece, false).unwrap()).await;
        }
        root.feed(&sealer.seal(&[], true).unwrap()).await;
    };
    let ((), received, passed_on) = tokio::join!(sending, receive(&mut first), receive(&mut last));
    let expected = Answer::Received { bytes: BYTES as u64, hash: *blake3::hash(&data).as_bytes() };
    assert_eq!((received.as_ref(), passed_on.as_ref()), (Ok(&expected), Ok(&expected)));
    let mut inputs = middle.inputs;
    assert!(inputs.try_recv().is_err(), "it only passed on");
    root.order(2, To::All, Order::Bulk(BulkOrder::Count)).await;
    let mut sent = [u64::MAX; 3];
    while sent.contains(&u64::MAX) {
        let (request, answers) = root.answers().await;
        for (node, answer) in answers {
            match answer.unwrap() {
                Answer::Bulk(BulkCount { sent: bytes, .. }) => sent[node as usize] = bytes / BYTES as u64,
                other => assert_eq!((request, other), (1, expected.clone())),
            }
        }
    }
    assert_eq!(sent, sent_on);
}

#[tokio::test]
async fn bulk_data_reaches_whom_it_was_announced_to_along_the_tree_of_orders() {
    let seats = |_: &[SocketAddr]| {
        let middle = not_own(seat(1, Feeder::Parent, &[], &[2]));
        vec![seat(0, Feeder::Parent, &[], &[1]), middle, seat(2, Feeder::Parent, &[], &[])]
    };
    check(seats, [1, 1, 0]).await;
}

#[tokio::test]
async fn bulk_data_reaches_whom_it_was_announced_to_over_links_of_its_own() {
    let seats = |listens: &[SocketAddr]| {
        vec![seat(0, Feeder::Parent, &[2], &[]), seat(2, peer(0, listens[0]), &[], &[])]
    };
    check(seats, [1, 0, 0]).await;
    // A node may be fed by one with a greater number, which takes its place only after the dial.
    let seats = |listens: &[SocketAddr]| {
        let middle = not_own(seat(1, Feeder::Parent, &[2], &[]));
        vec![seat(0, Feeder::Parent, &[], &[1]), middle, seat(2, peer(1, listens[1]), &[], &[])]
    };
    check(seats, [1, 1, 0]).await;
}

/// Takes inputs until that many pieces and orders have arrived.
async fn take_until(agent: &mut Joined, pieces: usize, orders: usize, mut take: impl FnMut(Input)) {
    let mut taken = (0, 0);
    while taken.0 + taken.1 < pieces + orders {
        let input = input(agent).await;
        match &input {
            Input::Bulk(_) => taken.0 += 1,
            _ => taken.1 += 1,
        }
        take(input);
    }
    assert_eq!(taken, (pieces, orders));
}

#[tokio::test]
async fn a_node_that_takes_no_bulk_data_holds_the_stream_back_and_nothing_else() {
    let (front, mut root, mut agents, listens) = chain(2).await;
    let sealer = BulkSealer::start(&front.secret).unwrap();
    let seats = vec![seat(0, Feeder::Parent, &[1], &[]), seat(1, peer(0, listens[0]), &[], &[])];
    root.link(sealer.stream(), seats).await;
    root.order(1, To::All, sink(&sealer)).await;
    let (mut slow, mut quick) = (agents.pop().unwrap(), agents.pop().unwrap());
    // More chunks than all places on the path.
    let chunks = 60;
    let last = tokio::spawn(async move {
        let (mut root, mut sealer) = (root, sealer);
        for number in 1..=chunks {
            root.feed(&sealer.seal(&[1; CHUNK], number == chunks).unwrap()).await;
            // An order behind every chunk.
            root.order(100, To::All, Order::Release).await;
        }
        root
    });
    // All orders arrive, the announcement among them. The slow agent keeps its four pieces. Eight more wait on the
    // link to it, and four before that. The quick agent holds the next piece, with seven behind it.
    let mut kept = Vec::new();
    let (slow_takes, quick_takes) =
        (take_until(&mut slow, 4, 25, |input| kept.push(input)), take_until(&mut quick, 16, 25, drop));
    tokio::join!(slow_takes, quick_takes);
    for agent in [&mut slow, &mut quick] {
        assert!(
            timeout(Duration::from_millis(200), agent.inputs.recv()).await.is_err(),
            "nothing more comes"
        );
    }
    assert!(!last.is_finished());
    drop(kept);
    let drained = |mut agent: Joined| {
        tokio::spawn(
            async move { while !matches!(input(&mut agent).await, Input::Bulk(piece) if piece.last) {} },
        )
    };
    let (slow, quick) = (drained(slow), drained(quick));
    timeout(SOON, async { (last.await.unwrap(), slow.await.unwrap(), quick.await.unwrap()) }).await.unwrap();
}

#[tokio::test]
async fn a_consumer_that_hangs_is_answered_for_and_the_node_goes_on_to_feed() {
    let (front, mut root, mut agents, listens) = chain_with(2, SHORT).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    let seats = vec![seat(0, Feeder::Parent, &[1], &[]), seat(1, peer(0, listens[0]), &[], &[])];
    root.link(sealer.stream(), seats).await;
    root.order(1, To::All, sink(&sealer)).await;
    let (mut fed, mut hung) = (agents.pop().unwrap(), agents.pop().unwrap());
    let sending = async {
        for number in 1..=30 {
            root.feed(&sealer.seal(&[1; CHUNK], number == 30).unwrap()).await;
        }
        root
    };
    let hanging = async {
        order(&mut hung).await;
        let mut kept = Vec::new();
        loop {
            let piece = piece(&mut hung).await;
            if let Some(why) = piece.aborted {
                return why;
            }
            kept.push(piece);
        }
    };
    let (mut root, received, why) = tokio::join!(sending, receive(&mut fed), hanging);
    assert_eq!((why.kind(), why.message()), (Kind::TimedOut, "take bulk data: it accepted none for 1 s"));
    assert!(matches!(received, Ok(Answer::Received { bytes, .. }) if bytes == 30 * CHUNK as u64));
    let (mut answered, mut answers) = (BTreeSet::new(), Vec::new());
    while answered.len() < 2 {
        for (node, answer) in root.answers().await.1 {
            answered.insert(node);
            answers.push((node, answer));
        }
    }
    assert!(answers.contains(&(0, Err(why))) && answers.contains(&(1, received)));
}

#[tokio::test]
async fn a_fed_node_that_gives_no_sign_is_reported_and_the_rest_goes_on() {
    let (front, mut root, mut agents, listens) = chain_with(2, SHORT).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    let stream = sealer.stream();
    let to = only(0);
    let seats = vec![seat(0, Feeder::Parent, &[1], &[])];
    root.link(stream, seats).await;
    root.order(1, to, sink(&sealer)).await;
    // The agent refuses a node that it does not feed.
    let mut other = front.dial(listens[0], &front.secret).await.unwrap();
    other.say(&Dial::Bulk { node: NodeId(7), stream }).await;
    assert!(matches!(other.end().await, Err(LinkError::Refused { .. })));
    let mut hung = front.dial(listens[0], &front.secret).await.unwrap();
    hung.say(&Dial::Bulk { node: NodeId(1), stream }).await;
    assert_eq!(hung.hear::<Attached>().await.stream, stream);
    let sending = async {
        for number in 1..=30 {
            root.feed(&sealer.seal(&[1; CHUNK], number == 30).unwrap()).await;
        }
        root
    };
    let (mut root, received) = tokio::join!(sending, receive(&mut agents[0]));
    assert!(received.is_ok());
    assert_eq!(root.notice().await, (0, Notice::BulkStalled { stream, fed: NodeId(1) }));
    assert_eq!(root.answers().await, (1, vec![(0, received)]));
    let mut chunks = 0;
    let cut = loop {
        match timeout(SOON, hung.reader.next()).await.unwrap() {
            Ok(Some(Incoming::Bulk(_))) => chunks += 1,
            other => break other,
        }
    };
    assert!(cut.unwrap_err().is_cut());
    assert_eq!(chunks, WINDOW_CHUNKS);
}

#[tokio::test]
async fn a_node_whose_feeder_is_lost_fails_and_so_do_those_behind_it() {
    let (front, mut root, mut agents, _) = chain(3).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    let stream = sealer.stream();
    // The test plays node 0 for this stream.
    let seats = vec![seat(1, peer(0, front.address()), &[], &[2]), seat(2, Feeder::Parent, &[], &[])];
    let feeding = async {
        let mut feeder = front.accept().await.unwrap();
        assert_eq!(feeder.hear::<Dial>().await, Dial::Bulk { node: NodeId(1), stream });
        feeder.say(&Attached { stream }).await;
        feeder
    };
    let ((), mut feeder) = tokio::join!(root.link(stream, seats), feeding);
    feeder.feed(&sealer.seal(&[1; CHUNK], false).unwrap()).await;
    root.order(1, To::Nodes("1-2".parse().unwrap()), sink(&sealer)).await;
    for agent in &mut agents[1..] {
        order(agent).await;
        assert_eq!(piece(agent).await.plain.len(), CHUNK);
    }
    drop(feeder);
    for agent in &mut agents[1..] {
        let why = piece(agent).await.aborted.unwrap();
        let text = "take bulk data: node 0, which feeds this node, was lost: its link was cut";
        assert_eq!((why.kind(), why.message()), (Kind::Lost, text));
    }
}

#[tokio::test]
async fn a_node_that_cannot_reach_its_feeder_says_so_and_takes_the_stream_no_more() {
    let (front, mut root, mut agents, _) = chain(1).await;
    let sealer = BulkSealer::start(&front.secret).unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let seats = vec![seat(0, peer(5, nobody), &[], &[])];
    root.order(1, To::All, Order::Bulk(BulkOrder::Link { stream: sealer.stream(), seats })).await;
    match &root.answers().await.1[..] {
        [(0, Err(why))] => {
            assert!(why.message().starts_with("reach node 5 for bulk data: 127.0.0.1:"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    // If it is announced all the same, its consumer does not wait forever. The same for an unknown stream.
    for (request, stream) in [(2, sealer.stream()), (3, 77)] {
        root.order(request, To::All, Order::Sink { stream }).await;
        order(&mut agents[0]).await;
        assert_eq!(piece(&mut agents[0]).await.aborted.unwrap().kind(), Kind::Lost);
    }
}

#[tokio::test]
async fn a_stream_that_the_frontend_ends_is_forgotten_even_while_it_waits() {
    let (front, mut root, mut agents, listens) = chain(2).await;
    for round in 0..20 {
        let mut sealer = BulkSealer::start(&front.secret).unwrap();
        let stream = sealer.stream();
        let seats = vec![seat(0, Feeder::Parent, &[1], &[]), seat(1, peer(0, listens[0]), &[], &[])];
        root.link(stream, seats).await;
        root.order(1, To::All, sink(&sealer)).await;
        for agent in &mut agents {
            order(agent).await;
        }
        let mut kept = Vec::new();
        if round % 2 == 0 {
            for _ in 0..WINDOW_CHUNKS {
                root.feed(&sealer.seal(&[1; CHUNK], false).unwrap()).await;
            }
            kept.push(piece(&mut agents[1]).await);
        }
        let why = Failure::new(Kind::Gone, "given up");
        let end = Order::Bulk(BulkOrder::End { stream, why: why.clone() });
        root.say(&Down { request: None, to: To::All, order: end }).await;
        for agent in &mut agents {
            let ended = loop {
                let piece = piece(agent).await;
                match piece.aborted {
                    Some(why) => break why,
                    None => kept.push(piece),
                }
            };
            assert!([Kind::Gone, Kind::Lost].contains(&ended.kind()), "{ended}");
        }
        // All credit comes back, also for chunks that arrive too late.
        root.feed(&sealer.seal(&[1; CHUNK], true).unwrap()).await;
        while root.free < WINDOW_CHUNKS {
            root.listen().await;
        }
    }
}

#[tokio::test]
async fn a_chunk_that_was_altered_is_passed_to_nobody() {
    let (front, mut root, mut agents, _) = chain(2).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    let seats = vec![seat(0, Feeder::Parent, &[], &[1]), seat(1, Feeder::Parent, &[], &[])];
    root.link(sealer.stream(), seats).await;
    root.order(1, To::All, sink(&sealer)).await;
    let chunk = sealer.seal(b"bytes", true).unwrap();
    let mut sealed = chunk.sealed().to_vec();
    *sealed.last_mut().unwrap() ^= 1;
    root.feed(&SealedChunk::build(chunk.header(), sealed).unwrap()).await;
    for agent in &mut agents {
        let why = receive(agent).await.unwrap_err();
        assert_eq!((why.kind(), why.message()), (Kind::Protocol, "open a chunk: its seal is broken"));
    }
}

#[tokio::test]
async fn bulk_data_without_credit_costs_the_link() {
    let (front, mut root, mut agents, _) = chain(1).await;
    let mut sealer = BulkSealer::start(&front.secret).unwrap();
    root.link(sealer.stream(), vec![seat(0, Feeder::Parent, &[], &[])]).await;
    // No order announces the stream, so no consumer takes any of it.
    for _ in 0..=2 * WINDOW_CHUNKS {
        root.writer.send_bulk(sealer.seal(&[1], false).unwrap()).unwrap();
    }
    root.writer.flush().await.unwrap();
    let gone = gone(&mut agents[0]).await;
    assert!(!gone.0 && gone.1.ends_with("it sends bulk data without credit"), "{gone:?}");
}
