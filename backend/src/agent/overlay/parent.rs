//! The link to the parent: what comes from above.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::secret::Secret;
use gantry_shared::wire::LinkError;
use gantry_shared::wire::bulk::{BulkKey, BulkOpener, SealedChunk};
use gantry_shared::wire::frame;
use gantry_shared::wire::link::{Incoming, LinkReader};
use gantry_shared::wire::message::Down;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Input;
use super::bulk::{Piece, STREAMS};
use super::relay::{Route, SharedRelay};

/// Pieces of bulk data that this agent may have before it, untaken.
const OWN_PIECES: usize = 4;
/// A child that takes no bulk data for this long is cut off: it holds up all others, and what is ordered meanwhile.
const STALL_TIME: Duration = Duration::from_secs(30);

/// Reads the parent's link until it ends.
pub(super) fn spawn(reader: LinkReader, relay: SharedRelay, secret: Secret) {
    let streams = Streams { relay, secret, open: Vec::new(), room: Arc::new(Semaphore::new(OWN_PIECES)) };
    tokio::spawn(streams.read(reader));
}

struct Streams {
    relay: SharedRelay,
    secret: Secret,
    open: Vec<(Route, BulkOpener)>,
    room: Arc<Semaphore>,
}

impl Streams {
    async fn read(mut self, mut reader: LinkReader) {
        let (orderly, reason) = loop {
            let done = match reader.next().await {
                Ok(Some(Incoming::Frame(body))) => self.take_frame(body),
                Ok(Some(Incoming::Bulk(chunk))) => self.take_chunk(chunk).await,
                Ok(None) => break (true, "the parent has said goodbye".to_owned()),
                Err(error) if error.is_cut() => break (false, "the link to the parent was cut".to_owned()),
                Err(LinkError::Refused { reason, .. }) => {
                    break (false, format!("the parent refused: {reason}"));
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = done {
                self.relay.lock().refuse_parent(&reason);
                break (false, reason);
            }
        };
        self.relay.lock().parent_ended(orderly, reason);
    }

    fn take_frame(&mut self, body: Vec<u8>) -> Result<(), String> {
        let down: Down = frame::decode(&body).map_err(|e| format!("not understood: {e}"))?;
        if let Some(route) = self.relay.lock().pass_down(down, body) {
            if self.open.len() >= STREAMS {
                // The frontend gave it up, else it would have ended.
                self.open.remove(0);
            }
            let key = BulkKey::derive(&self.secret, route.stream);
            self.open.push((route, BulkOpener::new(key, u64::MAX)));
        }
        Ok(())
    }

    /// Proves a chunk before anybody else sees it. One that is not what the frontend sent means that the way down is not to be trusted.
    async fn take_chunk(&mut self, chunk: SealedChunk) -> Result<(), String> {
        let at = self.open.iter().position(|(route, _)| route.stream == chunk.stream());
        let Some((route, opener)) = at.and_then(|at| self.open.get_mut(at)) else {
            tracing::debug!(?chunk, "a chunk of an unknown stream");
            return Ok(());
        };
        let plain = opener.open(&chunk).map_err(|e| e.to_string())?;
        for child in &route.children {
            let queue = self.relay.lock().find_child(*child).map(gantry_shared::wire::queue::LinkQueue::bulk);
            let Some(queue) = queue else { continue };
            if timeout(STALL_TIME, queue.send(chunk.clone())).await.is_err() {
                self.relay.lock().cut_child(*child, "it took no bulk data for 30 s");
            }
        }
        if route.own {
            let room = Arc::clone(&self.room).acquire_owned().await.ok();
            let piece = Piece { stream: chunk.stream(), plain, last: chunk.is_last(), _room: room };
            self.relay.lock().give(Input::Bulk(piece));
        }
        if chunk.is_last() {
            self.open.retain(|(route, _)| route.stream != chunk.stream());
        }
        Ok(())
    }
}
