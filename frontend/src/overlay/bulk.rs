//! Bulk data for many nodes: sealed once here, forwarded as it is by every agent.

use gantry_shared::id::NodeId;
use gantry_shared::wire::bulk::{BulkError, BulkSealer, SealedChunk};
use gantry_shared::wire::limits::MAX_BULK_CHUNK_BYTES;
use gantry_shared::wire::message::{Order, To};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Overlay;
use super::requests::Reply;
use crate::error::{Error, Result};

const PHASE: &str = "sending bulk data";

impl Overlay {
    /// Sends all that `source` gives to every node of `to`, which answers with length and hash.
    ///
    /// Never holds more than a few chunks: it waits for the slowest of the root's own children, and they for theirs.
    ///
    /// # Errors
    /// As [`Overlay::request`], and [`Error::Io`] where `source` fails.
    pub(crate) async fn broadcast_bulk(
        &self,
        to: To,
        source: impl AsyncRead + Unpin,
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Reply)>> {
        let started = Instant::now();
        let sealer = BulkSealer::start(self.secret()).map_err(|e| broken(&e))?;
        let links = self.find_links(&to).into_iter().map(|link| link.bulk()).collect();
        // The announcement is queued before the first chunk, and control overtakes bulk: every agent sees it first.
        let asked = self.ask(to, Order::Sink { stream: sealer.stream() })?;
        let fed = timeout_at(deadline, feed(sealer, source, links)).await;
        // When the time is over, the answers that are missing say where it went.
        fed.unwrap_or(Ok(()))?;
        asked.settled(PHASE, started, deadline).await
    }
}

async fn feed(
    mut sealer: BulkSealer,
    mut source: impl AsyncRead + Unpin,
    mut links: Vec<mpsc::Sender<SealedChunk>>,
) -> Result<()> {
    let mut plain = Vec::with_capacity(MAX_BULK_CHUNK_BYTES);
    loop {
        plain.clear();
        let mut piece = (&mut source).take(MAX_BULK_CHUNK_BYTES as u64);
        let read = piece.read_to_end(&mut plain).await;
        read.map_err(|e| Error::io("cannot read what is to be sent", e))?;
        let last = plain.len() < MAX_BULK_CHUNK_BYTES;
        let chunk = sealer.seal(&plain, last).map_err(|e| broken(&e))?;
        let mut alive = Vec::with_capacity(links.len());
        for link in links {
            // A link that has ended is told of as lost nodes.
            if link.send(chunk.clone()).await.is_ok() {
                alive.push(link);
            }
        }
        links = alive;
        if last || links.is_empty() {
            return Ok(());
        }
    }
}

fn broken(error: &BulkError) -> Error {
    Error::Protocol(format!("cannot seal bulk data: {error}"))
}
