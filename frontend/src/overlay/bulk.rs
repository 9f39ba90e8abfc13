//! Bulk data for many nodes: sealed once here, forwarded as it is by every node that has a place in the stream's own tree ([`plan`](super::plan)).
//!
//! First the nodes take their places and link with each other; the stream starts when all of them stand ready, so nobody has to wait in the
//! middle of it for somebody who does not come. Those that cannot link are fed another way, and that is remembered. Then the stream is announced and fed.
//! Who gives it up in the middle (a source that fails, a deadline, a dropped future) ends it by an order, which overtakes the data and finds also those
//! behind a node that hangs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_link::bulk::{BulkError, BulkSealer};
use gantry_link::limits::MAX_BULK_CHUNK_BYTES;
use gantry_link::queue::{LinkQueue, NotTaken};
use gantry_shared::wire::frame;
use gantry_shared::wire::message::{BulkOrder, Down, Order, To};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, RequestId};
use gantry_types::rank_set::NodeSet;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::Overlay;
use super::plan::{Plan, Site, build_plan};
use super::requests::Reply;
use super::root::{Asked, Root, Transfer};
use crate::error::{Error, Result};
use crate::lock::lock;

const PHASE: &str = "sending bulk data";
const LINKING: &str = "linking nodes for bulk data";
/// How long nodes may take to link with each other. Agents give up before.
const LINK_PATIENCE: Duration = Duration::from_secs(8);
/// So often a narrow tree is tried; then bulk data goes along the tree of orders.
const NARROW_ATTEMPTS: u32 = 3;

impl Overlay {
    /// Sends all that `source` gives to the nodes `to`, and gives their answers to the order by which `announce` makes the stream known to them.
    /// `progress` is told how many bytes of it have left the frontend so far.
    ///
    /// Never holds more than a few chunks: the slowest node sets the pace. A node that takes no data for 30 s is left out and answers
    /// [`Kind::TimedOut`], and so do, if all of it hangs, those that it was to feed. Those that were fed by a node that is lost in the middle answer [`Kind::Lost`] and
    /// may be sent the same again. Dropped before its end, no node keeps anything of the stream that has not all of it.
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
        // The announcement is queued before the first chunk, and control overtakes bulk: every link carries it first.
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

    /// Gives nodes their places in the tree of a new stream, until all that have one stand ready.
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

/// A stream whose nodes stand ready. Dropped before it is over, it is ended everywhere.
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

    /// Feeds all of `source`, says so in `complete`, and stays until the nodes have taken it.
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
            // With nobody left to feed, all that is left is to hear what became of them.
            *complete = last || outlets.is_empty();
        }
        for (node, queue) in outlets {
            if let Err(not_taken) = queue.bulk_taken().await {
                self.give_up(node, not_taken);
            }
        }
        Ok(())
    }

    /// A link that has ended is told of as lost nodes.
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
    /// Tells nodes their places, and gives the links over which the frontend itself feeds.
    fn send_seats(&self, stream: u64, request: RequestId, plan: &Plan) -> Result<Vec<(NodeId, LinkQueue)>> {
        let members = plan.members();
        let encode = |(child, link)| {
            let to = members.intersection(&self.find_subtree(child));
            let order = Order::Bulk(BulkOrder::Link { stream, seats: plan.seats_of(&to) });
            let body = frame::encode_body(&Down { request: Some(request), to: To::Nodes(to), order });
            let body = body.map_err(|e| Error::invalid(format!("too many nodes for one stream: {e}")))?;
            Ok((link, body))
        };
        // All or nobody hears of it.
        let bodies: Vec<(&LinkQueue, Vec<u8>)> =
            self.links_to(&members).map(encode).collect::<Result<_>>()?;
        bodies.into_iter().for_each(|(link, body)| link.send(body.into()));
        let links = self.links_to(&members).filter(|(child, _)| plan.tops().contains(child));
        Ok(links.map(|(child, link)| (child, link.clone())).collect())
    }

    /// Some nodes get no more of a stream.
    fn end_stream(&mut self, stream: u64, nodes: &NodeSet, why: Failure) {
        let to = nodes.difference(self.away());
        let order = Order::Bulk(BulkOrder::End { stream, why });
        let down = Down { request: None, to: To::Nodes(to.clone()), order };
        match frame::encode_body(&down) {
            Ok(body) => self.send(&to, &down.order, &body.into()),
            Err(error) => tracing::warn!(%error, "a stream was not ended everywhere"),
        }
    }

    /// `feeder` (none: the frontend) says that a node that it feeds gives no sign. It is answered for, and those behind it are told.
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
            // The request was made, and it was asked.
            drop(self.requests.answer(request, fed, answer));
        }
    }
}

fn broken(error: &BulkError) -> Error {
    Error::Internal(format!("cannot seal bulk data: {error}"))
}
