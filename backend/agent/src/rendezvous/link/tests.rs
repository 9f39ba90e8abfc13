//! Links of ranks, with a frontend that the test plays.

use std::time::Duration;

use gantry_shared::wire::bridge::{BridgeOrder, OWN_BRIDGE};
use gantry_shared::wire::frame::{self, FrameBuffer};
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::runtime::{Hear, Piece, Say, Scope, Then};
use gantry_types::runtime::Peer;
use tokio::time::timeout;

use super::*;
use crate::rendezvous::input::Input;

/// What comes, if it comes in time.
async fn soon<T>(coming: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), coming).await.expect("nothing comes")
}

#[tokio::test]
async fn what_a_rank_has_written_comes_though_it_hears_nothing_any_more() {
    let bridges = Bridges::default();
    let (mut ours, mut rank) = UnixStream::pair().unwrap();
    rank.write_all(b"last words").await.unwrap();
    drop(rank);
    let (asked, mut requests) = mpsc::unbounded_channel();
    let ask = move |request| drop(asked.send(request));
    let frontend = async {
        let Some(Request::Open { down, .. }) = soon(requests.recv()).await else { panic!("it is not there") };
        for word in [LinkWord::Bytes(Blob(vec![1; 100])), LinkWord::Bytes(Blob(vec![1; 100]))] {
            down.send(Input::Word(word)).unwrap();
            tokio::task::yield_now().await;
        }
        down.send(Input::Word(LinkWord::Credit(1000))).unwrap();
        let mut words = Vec::new();
        while words.last() != Some(&LinkWord::Close) {
            let Some(Request::Link { word, .. }) = soon(requests.recv()).await else {
                panic!("no end: {words:?}")
            };
            words.push(word);
        }
        assert_eq!(words, [LinkWord::Bytes(Blob(b"last words".to_vec())), LinkWord::Close]);
    };
    tokio::join!(carry(&mut ours, Rank(0), &bridges, &ask), frontend);
}

/// A rank's link with the frontend's end of it.
struct Played {
    rank: UnixStream,
    requests: mpsc::UnboundedReceiver<Request>,
    link: u32,
    down: mpsc::UnboundedSender<Input>,
}

impl Played {
    async fn start(bridges: &Bridges) -> Self {
        let (mut ours, rank) = UnixStream::pair().unwrap();
        let (asked, mut requests) = mpsc::unbounded_channel();
        let bridges = bridges.clone();
        tokio::spawn(async move {
            carry(&mut ours, Rank(0), &bridges, &move |request| drop(asked.send(request))).await;
        });
        let Some(Request::Open { link, down, .. }) = soon(requests.recv()).await else {
            panic!("it is not there")
        };
        down.send(Input::Word(LinkWord::Credit(100_000))).unwrap();
        Self { rank, requests, link, down }
    }

    async fn say(&mut self, text: &str) {
        self.rank.write_all(&frame::encode(&Say::Piece(piece(receiver(), text))).unwrap()).await.unwrap();
    }

    /// What the frontend is told next.
    async fn word(&mut self) -> LinkWord {
        match timeout(Duration::from_secs(60), self.requests.recv()).await {
            Ok(Some(Request::Link { word, .. })) => word,
            other => panic!("{other:?}"),
        }
    }

    /// Whether it is told nothing for a moment.
    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(100), self.requests.recv()).await.is_err()
    }

    async fn texts(&mut self) -> Vec<String> {
        let LinkWord::Bytes(Blob(bytes)) = self.word().await else { panic!("not a message") };
        let mut buffer = FrameBuffer::new();
        buffer.push(&bytes).unwrap();
        std::iter::from_fn(|| buffer.next_message().unwrap())
            .map(|said| match said {
                Say::Piece(piece) => piece.tag,
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

impl Played {
    /// So many, in however many pieces they come.
    async fn all_texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            texts.extend(self.texts().await);
        }
        texts
    }
}

fn receiver() -> Peer {
    Peer { subjob: 1, rank: Rank(3) }
}

fn piece(peer: Peer, text: &str) -> Piece {
    Piece {
        scope: Scope::Job,
        peer,
        message: 1,
        tag: text.to_owned(),
        then: Then::Complete,
        bytes: Blob(vec![7; 10]),
    }
}

/// A link of which a lane has begun, and one message has gone by the frontend; the marker is on its way.
async fn marked(bridges: &Bridges) -> Played {
    let mut sender = Played::start(bridges).await;
    sender.say("one").await;
    assert_eq!(sender.texts().await, ["one"]);
    let (lane, bridge, scope) = (4, OWN_BRIDGE, Scope::Job);
    let order = BridgeOrder::Lane { lane, bridge, link: sender.link, scope, peer: receiver() };
    bridges.obey(order, &[(sender.link, sender.down.clone())]);
    let marker = sender.word().await;
    assert_eq!(marker, LinkWord::Lane { lane, bridge, scope, peer: receiver() });
    sender.say("two").await;
    assert!(sender.is_silent().await, "it has gone before the marker has come");
    sender
}

#[tokio::test]
async fn messages_take_their_lane_when_all_before_them_have_come() {
    let bridges = Bridges::default();
    let mut sender = marked(&bridges).await;
    let mut other = Played::start(&bridges).await;
    let from = Peer { subjob: 0, rank: Rank(9) };
    let marker = LinkWord::Lane { lane: 4, bridge: OWN_BRIDGE, scope: Scope::Job, peer: from };
    other.down.send(Input::Word(marker)).unwrap();
    let expected = frame::encode(&Hear::Piece(piece(from, "two"))).unwrap();
    let mut heard = vec![0; expected.len()];
    soon(other.rank.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, expected);
    // Its end is told behind all that it has said, and nothing of that goes by the frontend.
    sender.say("three").await;
    let Played { rank, mut requests, .. } = sender;
    drop(rank);
    let closed = soon(requests.recv()).await;
    assert!(matches!(closed, Some(Request::Link { word: LinkWord::Close, .. })), "{closed:?}");
    let expected = frame::encode(&Hear::Piece(piece(from, "three"))).unwrap();
    let mut heard = vec![0; expected.len()];
    soon(other.rank.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, expected);
}

#[tokio::test]
async fn last_words_do_not_wait_for_a_lane_that_has_not_begun() {
    let bridges = Bridges::default();
    let mut sender = marked(&bridges).await;
    sender.say("three").await;
    // The frontend knows that the rank has ended.
    sender.down.send(Input::Word(LinkWord::LastWords)).unwrap();
    assert_eq!(sender.all_texts(2).await, ["two", "three"]);
    let Played { rank, mut requests, .. } = sender;
    drop(rank);
    let closed = soon(requests.recv()).await;
    assert!(matches!(closed, Some(Request::Link { word: LinkWord::Close, .. })), "{closed:?}");
}

#[tokio::test]
async fn what_has_not_come_by_a_lane_goes_by_the_frontend_and_nothing_twice() {
    let bridges = Bridges::default();
    let mut sender = marked(&bridges).await;
    sender.down.send(Input::Go(4)).unwrap();
    sender.say("three").await;
    assert!(sender.is_silent().await);
    sender.down.send(Input::Broken(4)).unwrap();
    sender.say("four").await;
    assert!(sender.is_silent().await, "what has come is not known yet");
    let first = frame::encode(&Say::Piece(piece(receiver(), "two"))).unwrap().len() as u64;
    sender.down.send(Input::Resume { lane: 4, come: first }).unwrap();
    assert_eq!(sender.all_texts(2).await, ["three", "four"]);
    assert!(sender.is_silent().await);
}
