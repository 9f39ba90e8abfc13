//! Carries the output of ranks and daemons to where the tool wants it.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::wire::flow::{FlowId, OUTPUT_WINDOW_BYTES, Source, Word, parse_output_label};
use gantry_shared::wire::window::OVERHEAD_BYTES;
use gantry_types::id::{AppId, DaemonId, NodeId};
use gantry_types::output::Stream;
use gantry_types::rank_set::NodeSet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;

use crate::event::{Data, Output};
use crate::lock::lock;
use crate::overlay::Overlay;

/// While an app is closed: how long a reader may take nothing although nodes wait for that.
const READER_STANDS: Duration = Duration::from_secs(1);

/// A piece of output, and the room that it takes until it is dropped: its writer may then send more.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) output: Output,
    pub(super) _room: Room,
}

/// The room of a piece of output.
#[derive(Debug)]
pub(super) enum Room {
    /// Of a launcher's pipe, which is read while there is room.
    Pipe { _taken: OwnedSemaphorePermit },
    /// Of the window of a node, which sends as much as it has credit for.
    Window {
        overlay: Overlay,
        node: NodeId,
        flow: FlowId,
        bytes: usize,
        backlog: Arc<watch::Sender<Backlog>>,
    },
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Window { overlay, node, flow, bytes, backlog } = self {
            backlog.send_modify(|it| {
                it.taken += 1;
                let cost = it.costs.entry(*node).or_default();
                *cost = cost.saturating_sub(flow.cost_of(*bytes));
            });
            overlay.taken(*node, *flow, *bytes);
        }
    }
}

/// What has come of a group's output, and the tool has not taken.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Its cost, by node.
    costs: HashMap<NodeId, u32>,
    /// How many pieces the tool has taken.
    taken: u64,
    /// A thread writes it to descriptors.
    is_written: bool,
}

impl Backlog {
    /// Whether a node may have used up its window. Of what was taken, up to a quarter of it is not returned yet.
    fn is_full(&self) -> bool {
        let owed = if self.taken == 0 { 0 } else { OUTPUT_WINDOW_BYTES / 4 };
        self.costs.values().any(|cost| *cost >= OUTPUT_WINDOW_BYTES - OVERHEAD_BYTES - owed)
    }
}

/// Waits until a reader that is no thread of ours takes nothing, while nodes wait for it. False: the flow is over.
async fn stands_still(mut backlog: watch::Receiver<Backlog>) -> bool {
    loop {
        let Ok(taken) = backlog.wait_for(|it| it.is_full() && !it.is_written).await.map(|it| it.taken) else {
            return false;
        };
        // A reader that has taken nothing before the close will take nothing.
        let patience = if taken == 0 { Duration::ZERO } else { READER_STANDS };
        match tokio::time::timeout(patience, backlog.wait_for(|it| it.taken > taken)).await {
            Err(_) => return true,
            Ok(Err(_)) => return false,
            Ok(Ok(_)) => {}
        }
    }
}

/// The destination of one group's output.
#[derive(Debug)]
struct Sink {
    /// Bounded by the window of each node, which the overlay enforces.
    to: mpsc::UnboundedSender<Piece>,
    /// Nodes whose flow has not ended. The end of the last one ends the sink.
    open: NodeSet,
    backlog: Arc<watch::Sender<Backlog>>,
}

/// The groups' sinks. A group is one daemon, or all ranks.
#[derive(Debug)]
pub(crate) struct Outputs {
    overlay: Overlay,
    sinks: Mutex<HashMap<Option<DaemonId>, Sink>>,
    writers: Arc<watch::Sender<usize>>,
}

impl Outputs {
    pub(crate) fn new(overlay: Overlay) -> Self {
        Self { overlay, sinks: Mutex::default(), writers: Arc::new(watch::Sender::new(0)) }
    }

    /// Sends a group's output on these nodes to the caller.
    pub(crate) fn stream(&self, group: Option<DaemonId>, open: NodeSet) -> OutputStream {
        let (to, from) = mpsc::unbounded_channel();
        let backlog = Arc::new(watch::Sender::default());
        lock(&self.sinks).insert(group, Sink { to, open, backlog: Arc::clone(&backlog) });
        OutputStream { from, backlog: Some(backlog) }
    }

    /// Has a thread write a stream to two descriptors. The thread calls `lost` when one of them cannot be written to,
    /// once for each.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn write_stream(
        &self,
        mut stream: OutputStream,
        (stdout, stderr): (OwnedFd, OwnedFd),
        lost: impl Fn(Stream, &io::Error) + Send + 'static,
    ) -> io::Result<()> {
        // The thread holds only this: it must end when the app or its runtime does.
        let writers = Arc::clone(&self.writers);
        self.writers.send_modify(|n| *n += 1);
        if let Some(backlog) = &stream.backlog {
            backlog.send_modify(|it| it.is_written = true);
        }
        let thread = std::thread::Builder::new().name("gantry-output".to_owned());
        let spawned = thread.spawn(move || {
            let (mut stdout, mut stderr) = (File::from(stdout), File::from(stderr));
            let mut told = BTreeSet::new();
            while let Some(output) = stream.blocking_next() {
                let to = match output.stream {
                    Stream::Stdout => &mut stdout,
                    Stream::Stderr => &mut stderr,
                };
                // The app does not depend on its reader: what cannot be written is dropped and the app continues.
                // A reader that has closed its pipe, such as `head`, wants no more. So a broken pipe is no loss.
                if let Err(error) = write_patiently(to, &output.data.0)
                    && error.kind() != io::ErrorKind::BrokenPipe
                    && told.insert(output.stream)
                {
                    lost(output.stream, &error);
                }
            }
            writers.send_modify(|n| *n -= 1);
        });
        if spawned.is_err() {
            self.writers.send_modify(|n| *n -= 1);
        }
        spawned.map(drop)
    }

    /// Handles a node's message of a group's flow. Bytes go to the group's sink; without a sink the node is told to
    /// stop sending. `origin` is called only if there is a sink.
    pub(crate) fn hear(
        &self,
        node: NodeId,
        group: Option<DaemonId>,
        word: Word,
        origin: impl FnOnce() -> (AppId, String),
    ) {
        let (label, bytes) = match word {
            Word::Data { label, bytes } => (label, bytes.0),
            Word::End => return self.lost_of(&NodeSet::from_range(node..=node), |known| known == group),
            Word::Open(_) | Word::Credit(_) | Word::Drain => return,
        };
        // The overlay has already refused labels without a meaning.
        let Some((source, stream)) = parse_output_label(group, label) else { return };
        let (rank, daemon) = match source {
            Source::Rank(rank) => (Some(rank), None),
            Source::Daemon(daemon) => (None, Some(daemon)),
        };
        let mut sinks = lock(&self.sinks);
        let taken = sinks.get(&group).is_some_and(|sink| {
            let (app, host) = origin();
            let (overlay, flow, backlog) =
                (self.overlay.clone(), FlowId::Output(group), Arc::clone(&sink.backlog));
            let cost = flow.cost_of(bytes.len());
            backlog.send_modify(|it| *it.costs.entry(node).or_default() += cost);
            let _room = Room::Window { overlay, node, flow, bytes: bytes.len(), backlog };
            let output = Output { app, rank, daemon, host, stream, data: Data(bytes) };
            sink.to.send(Piece { output, _room }).is_ok()
        });
        if !taken {
            self.refuse(&mut sinks, group, &NodeSet::from_range(node..=node));
        }
    }

    /// Takes no more of a group's output: these nodes drop the rest, and all whose flow has not ended.
    fn refuse(&self, sinks: &mut HashMap<Option<DaemonId>, Sink>, group: Option<DaemonId>, nodes: &NodeSet) {
        let open = sinks.remove(&group).map(|sink| sink.open).unwrap_or_default();
        open.union(nodes).iter().for_each(|node| self.overlay.say(node, FlowId::Output(group), Word::End));
    }

    /// Ends each stream whose reader stands still, as long as the caller keeps the result. What has come of it stays
    /// readable. Without this, agents would wait for the reader before they leave.
    pub(crate) fn end_unread(self: &Arc<Self>) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        for (group, sink) in lock(&self.sinks).iter() {
            let (group, stands, outputs) = (*group, stands_still(sink.backlog.subscribe()), Arc::clone(self));
            watching.spawn(async move {
                if stands.await {
                    outputs.refuse(&mut lock(&outputs.sinks), group, &NodeSet::default());
                }
            });
        }
        watching
    }

    /// Ends the flows of lost nodes.
    pub(crate) fn lost(&self, nodes: &NodeSet) {
        self.lost_of(nodes, |_| true);
    }

    fn lost_of(&self, nodes: &NodeSet, of: impl Fn(Option<DaemonId>) -> bool) {
        lock(&self.sinks).retain(|group, sink| {
            if of(*group) {
                sink.open = sink.open.difference(nodes);
            }
            !sink.open.is_empty()
        });
    }

    /// Removes a group's sink: no output of the group follows, or it is not wanted.
    pub(crate) fn forget(&self, group: Option<DaemonId>) {
        lock(&self.sinks).remove(&group);
    }

    /// Ends all flows: each sink ends once its queued output is taken.
    pub(crate) fn close(&self) {
        lock(&self.sinks).clear();
    }

    /// Waits until everything that arrived before [`Outputs::close`] is written.
    pub(crate) async fn written(&self) {
        // `self` owns the sender, so waiting cannot fail.
        drop(self.writers.subscribe().wait_for(|n| *n == 0).await);
    }
}

/// Output of one daemon, or of all ranks, in the order in which each process wrote it.
///
/// Taking a piece lets its writer continue. A stream that is not read stops the writers. After a drop they continue
/// without a reader: with their next bytes they learn that nothing reads them.
#[derive(Debug)]
pub struct OutputStream {
    pub(super) from: mpsc::UnboundedReceiver<Piece>,
    /// None: it is a launcher's.
    pub(super) backlog: Option<Arc<watch::Sender<Backlog>>>,
}

impl OutputStream {
    /// The next piece. None: all writers have closed their output or are unreachable, or the app is gone. Cancel-safe:
    /// no output is lost.
    pub async fn next(&mut self) -> Option<Output> {
        self.from.recv().await.map(|piece| piece.output)
    }

    fn blocking_next(&mut self) -> Option<Output> {
        self.from.blocking_recv().map(|piece| piece.output)
    }
}

/// Writes all of `bytes`. Waits where the descriptor is a non-blocking one.
fn write_patiently(to: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(cost: u32, taken: u64) -> Backlog {
        Backlog { costs: HashMap::from([(NodeId(3), cost)]), taken, is_written: false }
    }

    #[test]
    fn a_node_has_used_up_its_window_when_it_cannot_send_a_byte() {
        let all = OUTPUT_WINDOW_BYTES - OVERHEAD_BYTES;
        assert!(full(all, 0).is_full() && !full(all - 1, 0).is_full());
        let rest = all - OUTPUT_WINDOW_BYTES / 4;
        assert!(full(rest, 1).is_full() && !full(rest - 1, 1).is_full() && !Backlog::default().is_full());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_stands_still_when_it_takes_nothing_though_nodes_wait() {
        let stands = async |backlog: Backlog| {
            let (_sender, backlog) = watch::channel(backlog);
            tokio::time::timeout(READER_STANDS * 2, stands_still(backlog)).await.ok()
        };
        assert_eq!(stands(full(OUTPUT_WINDOW_BYTES, 0)).await, Some(true));
        assert_eq!(stands(full(OUTPUT_WINDOW_BYTES, 7)).await, Some(true));
        assert_eq!(stands(full(OUTPUT_WINDOW_BYTES / 2, 7)).await, None, "the nodes can send");
        let written = Backlog { is_written: true, ..full(OUTPUT_WINDOW_BYTES, 0) };
        assert_eq!(stands(written).await, None, "a terminal may stand for long");
        let (sender, backlog) = watch::channel(full(OUTPUT_WINDOW_BYTES, 1));
        let standing = tokio::spawn(stands_still(backlog));
        for _ in 0..3 {
            tokio::time::sleep(READER_STANDS * 3 / 4).await;
            sender.send_modify(|it| it.taken += 1);
        }
        assert!(!standing.is_finished(), "a slow reader is none that stands");
        drop(sender);
        assert!(!standing.await.unwrap(), "the flow is over");
    }
}
