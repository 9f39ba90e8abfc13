//! A rank's link to its job's frontend: bytes are carried in both directions, as far as there is credit, and not looked at.

use std::sync::atomic::{AtomicU32, Ordering};

use gantry_shared::id::Rank;
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::rendezvous::LinkWord;
use gantry_shared::wire::runtime::LINK_WINDOW_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::desk::Request;

/// The most bytes that are taken at a time.
const CHUNK_BYTES: u32 = 128 * 1024;

/// Numbers of links are never used again.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Carries until either end has had enough. What the rank has written by its end is carried as well.
pub(super) async fn carry(stream: &mut UnixStream, rank: Rank, ask: &(dyn Fn(Request) + Send + Sync)) {
    let link = NEXT.fetch_add(1, Ordering::Relaxed);
    let (down, mut said) = mpsc::unbounded_channel();
    let (mut reader, mut writer) = stream.split();
    let up = |word| ask(Request::Link { link, word });
    // The frontend answers by credit: before, nothing is read, so nothing is said before this.
    ask(Request::Open { link, rank, down });
    let (mut credit, mut owed) = (0_u32, 0_u32);
    let (mut out, mut chunk) = (Vec::new(), Vec::new());
    // It reads no more, and may have written something all the same that is still to come.
    let mut deaf = false;
    let mut closing = false;
    while !(closing && out.is_empty()) {
        chunk.resize(usize::try_from(credit.min(CHUNK_BYTES)).unwrap_or_default(), 0);
        tokio::select! {
            word = said.recv() => match word {
                Some(LinkWord::Bytes(_)) if deaf => {}
                Some(LinkWord::Bytes(Blob(bytes))) => out.extend_from_slice(&bytes),
                Some(LinkWord::Credit(more)) => credit = credit.saturating_add(more),
                Some(LinkWord::Close | LinkWord::Open(_)) => closing = true,
                None => return,
            },
            read = reader.read(&mut chunk), if credit > 0 => match read {
                Ok(count @ 1..) => {
                    credit -= u32::try_from(count).unwrap_or(credit).min(credit);
                    up(LinkWord::Bytes(Blob(chunk.get(..count).unwrap_or_default().to_vec())));
                }
                _ => break,
            },
            written = writer.write(&out), if !out.is_empty() => match written {
                Ok(count) => {
                    out.drain(..count);
                    owed += u32::try_from(count).unwrap_or_default();
                    if owed >= LINK_WINDOW_BYTES / 4 {
                        up(LinkWord::Credit(std::mem::take(&mut owed)));
                    }
                }
                Err(_) => {
                    deaf = true;
                    out.clear();
                }
            },
        }
    }
    up(LinkWord::Close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_rank_has_written_comes_though_it_hears_nothing_any_more() {
        let (mut ours, mut rank) = UnixStream::pair().unwrap();
        rank.write_all(b"last words").await.unwrap();
        drop(rank);
        let (asked, mut requests) = mpsc::unbounded_channel();
        let ask = move |request| drop(asked.send(request));
        let frontend = async {
            let Some(Request::Open { down, .. }) = requests.recv().await else { panic!("it is not there") };
            for word in [LinkWord::Bytes(Blob(vec![1; 100])), LinkWord::Bytes(Blob(vec![1; 100]))] {
                down.send(word).unwrap();
                tokio::task::yield_now().await;
            }
            down.send(LinkWord::Credit(1000)).unwrap();
            let mut words = Vec::new();
            while words.last() != Some(&LinkWord::Close) {
                let Some(Request::Link { word, .. }) = requests.recv().await else {
                    panic!("no end: {words:?}")
                };
                words.push(word);
            }
            assert_eq!(words, [LinkWord::Bytes(Blob(b"last words".to_vec())), LinkWord::Close]);
        };
        tokio::join!(carry(&mut ours, Rank(0), &ask), frontend);
    }
}
