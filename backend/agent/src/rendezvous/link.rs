//! A rank's link to its job's frontend. It carries bytes in both directions, as far as there is credit, and does not
//! interpret them.

mod carrier;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gantry_shared::wire::flow::Word;
use gantry_types::id::Rank;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use self::carrier::{CHUNK_BYTES, Carrier};
use super::desk::Request;

/// Numbers of links are never reused.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Ranks that have closed a link whose bytes are still on their way to the frontend.
#[derive(Debug, Default)]
pub(super) struct Closing(watch::Sender<Vec<Rank>>);

impl Closing {
    /// Waits until no link of the rank is closing, or for `patience`.
    pub(super) async fn wait(&self, rank: Rank, patience: Duration) {
        let mut closing = self.0.subscribe();
        drop(timeout(patience, closing.wait_for(|ranks| !ranks.contains(&rank))).await);
    }

    fn begin(&self, rank: Rank) {
        self.0.send_modify(|ranks| ranks.push(rank));
    }

    fn end(&self, rank: Rank) {
        self.0.send_modify(|ranks| {
            ranks.iter().position(|known| *known == rank).map(|at| ranks.swap_remove(at));
        });
    }
}

/// Carries bytes until either end closes. It also carries what the rank has written before its end.
pub(super) async fn carry(
    stream: &mut UnixStream,
    rank: Rank,
    closing: &Closing,
    ask: &(dyn Fn(Request) + Send + Sync),
) {
    let link = NEXT.fetch_add(1, Ordering::Relaxed);
    let (down, mut said) = mpsc::unbounded_channel();
    let (mut reader, mut writer) = stream.split();
    let up = |word| ask(Request::Word { link, word });
    let mut carrier = Carrier::new(link, &up);
    // The frontend accepts the link with credit. Until then nothing is read, so this is the link's first word.
    ask(Request::Open { link, rank, down });
    let mut chunk = Vec::new();
    let mut ending = false;
    while !carrier.is_done() {
        if carrier.has_ended() && !std::mem::replace(&mut ending, true) {
            closing.begin(rank);
        }
        chunk.resize(CHUNK_BYTES, 0);
        tokio::select! {
            word = said.recv() => match word {
                Some(word) => carrier.hear(word),
                None => break,
            },
            read = reader.read(&mut chunk), if carrier.wants_bytes() => match read {
                Ok(count @ 1..) => carrier.take(chunk.get(..count).unwrap_or_default()),
                _ => carrier.end(),
            },
            written = writer.write(carrier.out()), if !carrier.out().is_empty() => match written {
                Ok(count) => carrier.written(count),
                Err(_) => carrier.deafen(),
            },
        }
    }
    if !said.is_closed() {
        up(Word::End);
    }
    if ending {
        closing.end(rank);
    }
}

#[cfg(test)]
mod tests;
