//! Bulk data for many nodes. The frontend seals it once. Every node with a place in the stream's own tree
//! ([`plan`](super::plan)) forwards it unchanged.
//!
//! First the nodes get their places and link with each other. The stream starts when all of them are ready, so no node
//! waits in the middle of it for a missing one. Nodes that cannot link are fed along the tree of orders, and the
//! frontend remembers them. Then the stream is announced and fed.
//!
//! A failed source, a timeout or a dropped future cancels the stream by an order. That order overtakes the data, and
//! reaches nodes behind a stalled one too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_link::bulk::{BulkError, BulkSealer};
use gantry_link::limits::MAX_BULK_CHUNK_BYTES;
use gantry_link::queue::{LinkQueue, NotTaken};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{BulkOrder, Down, Order, Reply, To};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::Overlay;
use super::plan::{Plan, Site, build_plan};
use super::root::{Asked, Root, Transfer};
use crate::error::{Error, Result};
use crate::lock::lock;

const PHASE: &str = "sending bulk data";
const LINKING: &str = "linking nodes for bulk data";
/// How long nodes may take to link with each other. Agents have a shorter timeout.
const LINK_PATIENCE: Duration = Duration::from_secs(8);
/// How often a narrow tree is tried. After that, bulk data goes along the tree of orders.
const NARROW_ATTEMPTS: u32 = 3;

impl Overlay {
    /// Sends the content of `source` to the nodes `to`. Returns their answers to the order by which `announce` makes
    /// the stream known to them. `progress` gets the number of bytes that have left the frontend so far.
    ///
    /// Never holds more than a few chunks: the slowest node sets the pace. A node that takes no data for 30 s is
    /// dropped and answers [`Kind::TimedOut`]. If the whole node hangs, the nodes that it had to feed answer the same.
    /// Nodes behind one that is lost in the middle answer [`Kind::Lost`], and may be sent the same data again. If the
    /// future is dropped before its end, no node keeps an incomplete stream.
    ///
    /// # Errors
    /// As [`Overlay::request`], and [`Error::Io`] where `source` fails.
    pub(crate) async fn send_bulk(
        &self,
        to: NodeSet,
        announce: impl FnOnce(u64) -> Order,
        source: impl AsyncRead + Unpin,
        progress: impl FnMut(u64),
        deadline: Instant,
    ) -> Result<Vec<(NodeId, Reply)>> {
        let started = Instant::now();
        if to.is_empty() {
            return Ok(Vec::new());
        }
        let (sealer, mut stream) = self.link_stream(&to, started, deadline).await?;
        // The announcement is queued before the first chunk, and control overtakes bulk. So every link carries it
        // first.
        let asked = self.ask(To::Nodes(to), announce(stream.stream))?;
        stream.announced(asked.request());
        let mut complete = false;
        let settled = {
            let settled = asked.settled(PHASE, started, deadline);
            let feeding = stream.feed(sealer, source, progress, &mut complete);
            tokio::pin!(settled, feeding);
            tokio::select! {
                biased;
                settled = &mut settled => settled,
                fed = &mut feeding => match fed {
                    Ok(()) => settled.await,
                    Err(error) => Err(error),
                }
            }
        };
        stream.over = complete && matches!(settled, Ok(_) | Err(Error::Lost { .. }));
        settled
    }

    /// Gives nodes their places in the tree of a new stream, and waits until all with a place are ready.
    async fn link_stream(
        &self,
        to: &NodeSet,
        started: Instant,
        deadline: Instant,
    ) -> Result<(BulkSealer, OpenStream)> {
        let mut silent = NodeSet::default();
        for attempt in 1.. {
            let sealer = BulkSealer::start(self.secret()).map_err(|e| broken(&e))?;
            let narrow = attempt <= NARROW_ATTEMPTS;
            let (stream, asked) = self.ask_links(sealer.stream(), to, &silent, narrow)?;
            let linked = asked.outcome(deadline.min(Instant::now() + LINK_PATIENCE)).await?;
            let mut root = lock(self.root());
            if Instant::now() >= deadline {
                let after = deadline.saturating_duration_since(started);
                return Err(Error::TimedOut {
                    phase: LINKING,
                    after,
                    missing: root.find_hosts(linked.missing),
                });
            }
            let failed: NodeSet = linked.failed.iter().map(|(node, _)| *node).collect();
            for (node, failure) in &linked.failed {
                tracing::warn!(host = ?root.find_hosts([*node]), %failure, "bulk data takes the way of orders");
            }
            let missing: NodeSet = linked.missing.iter().copied().collect();
            let shy = failed.union(&missing).difference(&silent).difference(&root.unlinked);
            if linked.lost.is_empty() && (shy.is_empty() || !narrow) {
                drop(root);
                return Ok((sealer, stream));
            }
            root.unlinked = root.unlinked.union(&failed);
            silent = silent.union(&missing);
        }
        Err(Error::Internal("nodes cannot be linked".to_owned()))
    }

    fn ask_links(
        &self,
        stream: u64,
        to: &NodeSet,
        silent: &NodeSet,
        narrow: bool,
    ) -> Result<(OpenStream, Asked)> {
        let mut root = lock(self.root());
        root.check_reachable(to)?;
        let unlinked = root.unlinked.union(silent);
        let radix = if narrow { root.bulk_radix } else { 0 };
        let site =
            Site { tree: root.tree, listen: &root.listen, radix, unlinked: &unlinked, away: root.away() };
        let plan = build_plan(site, to);
        let (request, settled) = root.open_request(&plan.members());
        let asked = Asked::new(Arc::clone(self.root()), request, settled);
        let outlets = match root.send_seats(stream, request, &plan) {
            Ok(outlets) => outlets,
            Err(error) => {
                drop(root);
                return Err(error);
            }
        };
        root.transfers.insert(stream, Transfer { plan, request: None });
        drop(root);
        let stream = OpenStream { root: Arc::clone(self.root()), stream, outlets, over: false };
        Ok((stream, asked))
    }
}

/// A stream whose nodes are ready. If dropped before it is over, it is cancelled on all nodes.
#[derive(Debug)]
struct OpenStream {
    root: Arc<Mutex<Root>>,
    stream: u64,
    outlets: Vec<(NodeId, LinkQueue)>,
    over: bool,
}

impl OpenStream {
    fn announced(&self, request: RequestId) {
        if let Some(transfer) = lock(&self.root).transfers.get_mut(&self.stream) {
            transfer.request = Some(request);
        }
    }

    /// Feeds all of `source`, sets `complete`, and waits until the nodes have taken it.
    async fn feed(
        &self,
        mut sealer: BulkSealer,
        mut source: impl AsyncRead + Unpin,
        mut progress: impl FnMut(u64),
        complete: &mut bool,
    ) -> Result<()> {
        let mut outlets = self.outlets.clone();
        let mut plain = Vec::with_capacity(MAX_BULK_CHUNK_BYTES);
        let mut sent = 0;
        while !*complete {
            plain.clear();
            let mut piece = (&mut source).take(MAX_BULK_CHUNK_BYTES as u64);
            let read = piece.read_to_end(&mut plain).await;
            read.map_err(|e| Error::io("cannot read what is to be sent", e))?;
            let last = plain.len() < MAX_BULK_CHUNK_BYTES;
            let chunk = sealer.seal(&plain, last).map_err(|e| broken(&e))?;
            let mut fed = Vec::with_capacity(outlets.len());
            for (node, queue) in outlets {
                match queue.send_bulk(chunk.clone()).await {
                    Ok(()) => fed.push((node, queue)),
                    Err(not_taken) => self.give_up(node, not_taken),
                }
            }
            outlets = fed;
            sent += plain.len() as u64;
            progress(sent);
            // Without nodes to feed, only their answers are left to wait for.
            *complete = last || outlets.is_empty();
        }
        for (node, queue) in outlets {
            if let Err(not_taken) = queue.bulk_taken().await {
                self.give_up(node, not_taken);
            }
        }
        Ok(())
    }

    /// Reports a stalled node. An ended link is reported as lost nodes instead.
    fn give_up(&self, node: NodeId, not_taken: NotTaken) {
        if not_taken == NotTaken::Stalled {
            lock(&self.root).bulk_stalled(self.stream, None, node);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut root = lock(&self.root);
        if let Some(transfer) = root.transfers.remove(&self.stream)
            && !self.over
        {
            let why = Failure::new(Kind::Gone, "take bulk data: the frontend cancelled the stream");
            root.end_stream(self.stream, &transfer.plan.members(), why);
        }
    }
}

impl Root {
    /// Sends nodes their places. Returns the links over which the frontend itself feeds.
    fn send_seats(&self, stream: u64, request: RequestId, plan: &Plan) -> Result<Vec<(NodeId, LinkQueue)>> {
        let members = plan.members();
        let encode = |(child, link)| {
            let to = members.intersection(&self.tree.find_subtree(child));
            let order = Order::Bulk(BulkOrder::Link { stream, seats: plan.seats_of(&to) });
            let body = frame::encode_body(&Down { request: Some(request), to: To::Nodes(to), order });
            let body = body.map_err(|e| Error::invalid(format!("too many nodes for one stream: {e}")))?;
            Ok((link, body))
        };
        // Encode all before sending any: either every link gets its order, or none does.
        let bodies: Vec<(&LinkQueue, Vec<u8>)> =
            self.links_to(&members).map(encode).collect::<Result<_>>()?;
        bodies.into_iter().for_each(|(link, body)| link.send(body.into()));
        let links = self.links_to(&members).filter(|(child, _)| plan.tops().contains(child));
        Ok(links.map(|(child, link)| (child, link.clone())).collect())
    }

    /// Cancels a stream for some nodes.
    fn end_stream(&mut self, stream: u64, nodes: &NodeSet, why: Failure) {
        self.tell(nodes.difference(self.away()), Order::Bulk(BulkOrder::End { stream, why }));
    }

    /// Handles the report of `feeder` (none: the frontend) that a node which it feeds has stalled. Answers for that
    /// node, and cancels the stream for the nodes behind it.
    pub(super) fn bulk_stalled(&mut self, stream: u64, feeder: Option<NodeId>, fed: NodeId) {
        let Some(transfer) = self.transfers.get(&stream) else { return };
        if !transfer.plan.feeds(feeder, fed) {
            tracing::debug!(?feeder, %fed, "a node reported on a node that it does not feed");
            return;
        }
        let seconds = self.stall.as_secs_f32();
        let host = self.find_hosts([fed]).pop().unwrap_or_default();
        tracing::warn!(host, seconds, "a node accepts no bulk data");
        let hint = "its agent sends no heartbeat: check that node";
        let behind = transfer.plan.find_behind(fed);
        let own = transfer.request.filter(|_| transfer.plan.is_target(fed));
        let why = format!("take bulk data: {host}, which feeds this node, accepted none for {seconds} s");
        self.end_stream(stream, &behind, Failure::new(Kind::TimedOut, why).with_hint(hint));
        if let Some(request) = own {
            let why = format!("take bulk data: {host} accepted none for {seconds} s");
            let answer = Err(Failure::new(Kind::TimedOut, why).with_hint(hint));
            // The request exists, and the node was asked.
            drop(self.requests.answer(request, fed, answer));
        }
    }
}

fn broken(error: &BulkError) -> Error {
    Error::Internal(format!("cannot seal bulk data: {error}"))
}
