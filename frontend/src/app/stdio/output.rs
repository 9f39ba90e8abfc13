//! Carries the output of ranks and daemons to where the tool wants it.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use gantry_shared::wire::flow::{FlowId, Source, Word, parse_output_label};
use gantry_types::id::{AppId, DaemonId, NodeId};
use gantry_types::output::Stream;
use gantry_types::rank_set::NodeSet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::event::{Data, Output};
use crate::lock::lock;
use crate::overlay::Overlay;

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
    Window { overlay: Overlay, node: NodeId, flow: FlowId, bytes: usize },
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Window { overlay, node, flow, bytes } = self {
            overlay.taken(*node, *flow, *bytes);
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
        lock(&self.sinks).insert(group, Sink { to, open });
        OutputStream { from }
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
            let (overlay, flow) = (self.overlay.clone(), FlowId::Output(group));
            let _room = Room::Window { overlay, node, flow, bytes: bytes.len() };
            let output = Output { app, rank, daemon, host, stream, data: Data(bytes) };
            sink.to.send(Piece { output, _room }).is_ok()
        });
        if !taken {
            let open = sinks.remove(&group).map(|sink| sink.open).unwrap_or_default();
            let unread = open.union(&NodeSet::from_range(node..=node));
            unread.iter().for_each(|node| self.overlay.say(node, FlowId::Output(group), Word::End));
        }
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
