//! Links of ranks; the test plays the frontend.

use super::*;

/// The result of `coming`, within a deadline.
async fn soon<T>(coming: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), coming).await.expect("nothing comes")
}

/// A rank's link with the frontend's end of it.
struct Played {
    rank: UnixStream,
    requests: mpsc::UnboundedReceiver<Request>,
    down: mpsc::UnboundedSender<Word>,
    closing: std::sync::Arc<Closing>,
}

impl Played {
    async fn start() -> Self {
        let (mut ours, rank) = UnixStream::pair().unwrap();
        let (asked, mut requests) = mpsc::unbounded_channel();
        let closing = std::sync::Arc::<Closing>::default();
        let shared = std::sync::Arc::clone(&closing);
        tokio::spawn(async move {
            carry(&mut ours, Rank(0), &shared, &move |request| drop(asked.send(request))).await;
        });
        let Some(Request::Open { down, .. }) = soon(requests.recv()).await else { panic!("it is not there") };
        Self { rank, requests, down, closing }
    }

    fn tell(&self, word: Word) {
        self.down.send(word).unwrap();
    }

    /// The next word to the frontend.
    async fn word(&mut self) -> Word {
        match soon(self.requests.recv()).await {
            Some(Request::Word { word, .. }) => word,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the frontend gets no word for a moment.
    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(100), self.requests.recv()).await.is_err()
    }
}

fn bytes(text: &str) -> Word {
    Word::data(text.as_bytes().to_vec())
}

#[tokio::test]
async fn what_a_rank_has_written_comes_though_it_hears_nothing_any_more() {
    let (mut ours, mut rank) = UnixStream::pair().unwrap();
    rank.write_all(b"last words").await.unwrap();
    drop(rank);
    let (asked, mut requests) = mpsc::unbounded_channel();
    let (ask, closing) = (move |request| drop(asked.send(request)), Closing::default());
    let frontend = async {
        let Some(Request::Open { down, .. }) = soon(requests.recv()).await else { panic!("it is not there") };
        for word in [bytes("not heard"), bytes("not heard")] {
            down.send(word).unwrap();
            tokio::task::yield_now().await;
        }
        down.send(Word::Credit(1000)).unwrap();
        let mut words = Vec::new();
        while words.last() != Some(&Word::End) {
            let Some(Request::Word { word, .. }) = soon(requests.recv()).await else {
                panic!("no end: {words:?}")
            };
            words.push(word);
        }
        assert_eq!(words, [bytes("last words"), Word::End]);
    };
    tokio::join!(carry(&mut ours, Rank(0), &closing, &ask), frontend);
}

#[tokio::test]
async fn a_rank_is_heard_as_far_as_there_is_credit_and_its_last_words_without() {
    let mut link = Played::start().await;
    link.rank.write_all(b"one two").await.unwrap();
    assert!(link.is_silent().await, "the frontend has not answered yet");
    link.tell(Word::Credit(4));
    assert_eq!(link.word().await, bytes("one "));
    assert!(link.is_silent().await, "more than there is credit for");
    link.tell(Word::Credit(100));
    assert_eq!(link.word().await, bytes("two"));
    link.rank.write_all(&[b'x'; 97]).await.unwrap();
    assert_eq!(link.word().await, bytes(&"x".repeat(97)));
    link.rank.write_all(b"six").await.unwrap();
    assert!(link.is_silent().await, "there is no credit left");
    link.tell(Word::Drain);
    assert_eq!(link.word().await, bytes("six"));
}

#[tokio::test]
async fn what_a_rank_reads_gives_room_back() {
    use gantry_shared::wire::runtime::LINK_WINDOW_BYTES;
    let mut link = Played::start().await;
    let portion = usize::try_from(LINK_WINDOW_BYTES / 4).unwrap();
    link.tell(Word::data(vec![7; portion]));
    let mut heard = vec![0; portion];
    soon(link.rank.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, vec![7; portion]);
    assert_eq!(link.word().await, Word::Credit(LINK_WINDOW_BYTES / 4));
    // More than the window is refused.
    link.tell(Word::data(vec![7; 4 * portion + 1]));
    assert_eq!(link.word().await, Word::End);
}

#[tokio::test]
async fn a_link_that_closes_is_waited_for_until_all_of_it_has_come() {
    let mut link = Played::start().await;
    link.tell(Word::Credit(1));
    link.rank.write_all(b"ab").await.unwrap();
    assert_eq!(link.word().await, bytes("a"));
    link.rank.shutdown().await.unwrap();
    // The rank reads the end only once there is room for the bytes before it.
    link.tell(Word::Credit(1));
    assert_eq!(link.word().await, bytes("b"));
    assert_eq!(link.word().await, Word::End);
    soon(link.closing.wait(Rank(0), Duration::from_secs(60))).await;
}
