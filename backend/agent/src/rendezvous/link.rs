//! A rank's link to its job's frontend: bytes are carried in both directions, as far as there is credit.
//!
//! What the frontend says is not looked at: it comes in whole frames. Of what the rank says it is seen whom a message is for, and those for whom there is a [lane](super::lane) go on that;
//! all else goes to the frontend.

mod carrier;

use std::sync::atomic::{AtomicU32, Ordering};

use gantry_shared::wire::rendezvous::LinkWord;
use gantry_types::id::Rank;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use self::carrier::{CHUNK_BYTES, Carrier};
use super::bridges::Bridges;
use super::desk::Request;

/// Numbers of links are never used again.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Carries until either end has had enough. What the rank has written by its end is carried as well.
pub(super) async fn carry(
    stream: &mut UnixStream,
    rank: Rank,
    bridges: &Bridges,
    ask: &(dyn Fn(Request) + Send + Sync),
) {
    let link = NEXT.fetch_add(1, Ordering::Relaxed);
    let (down, mut said) = mpsc::unbounded_channel();
    let (mut reader, mut writer) = stream.split();
    let up = |word| ask(Request::Link { link, word });
    let mut carrier = Carrier::new(link, bridges, down.downgrade(), &up);
    // The frontend answers by credit: before, nothing is read, so nothing is said before this.
    ask(Request::Open { link, rank, down });
    let mut chunk = Vec::new();
    let mut closing = false;
    loop {
        carrier.advance();
        if carrier.is_done() {
            break;
        }
        if carrier.has_ended() && !std::mem::replace(&mut closing, true) {
            bridges.closing(rank);
        }
        chunk.resize(CHUNK_BYTES, 0);
        tokio::select! {
            input = said.recv() => match input {
                Some(input) => carrier.hear(input),
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
    let alone = said.is_closed();
    carrier.leave();
    bridges.forget(link);
    if !alone {
        up(LinkWord::Close);
    }
    if closing {
        bridges.closed(rank);
    }
}

#[cfg(test)]
mod tests;
