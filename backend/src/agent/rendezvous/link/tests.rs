//! Links of ranks, with a frontend that the test plays.

use gantry_shared::wire::message::Blob;

use super::*;

#[tokio::test]
async fn what_a_rank_has_written_comes_though_it_hears_nothing_any_more() {
    let bridges = Bridges::default();
    let (mut ours, mut rank) = UnixStream::pair().unwrap();
    rank.write_all(b"last words").await.unwrap();
    drop(rank);
    let (asked, mut requests) = mpsc::unbounded_channel();
    let ask = move |request| drop(asked.send(request));
    let frontend = async {
        let Some(Request::Open { down, .. }) = requests.recv().await else { panic!("it is not there") };
        for word in [LinkWord::Bytes(Blob(vec![1; 100])), LinkWord::Bytes(Blob(vec![1; 100]))] {
            down.send(Input::Word(word)).unwrap();
            tokio::task::yield_now().await;
        }
        down.send(Input::Word(LinkWord::Credit(1000))).unwrap();
        let mut words = Vec::new();
        while words.last() != Some(&LinkWord::Close) {
            let Some(Request::Link { word, .. }) = requests.recv().await else { panic!("no end: {words:?}") };
            words.push(word);
        }
        assert_eq!(words, [LinkWord::Bytes(Blob(b"last words".to_vec())), LinkWord::Close]);
    };
    tokio::join!(carry(&mut ours, Rank(0), &bridges, &ask), frontend);
}
