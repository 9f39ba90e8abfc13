//! What ranks and daemons write, on its way to where the tool wants it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use gantry_shared::wire::message::{OUTPUT_WINDOW_BYTES, Order, Source, To};
use gantry_shared::wire::owed::Owed;
use gantry_types::id::{AppId, DaemonId, NodeId};
use gantry_types::output::Stream;
use gantry_types::rank_set::NodeSet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{mpsc, watch};

use crate::event::{Data, Output};
use crate::lock::lock;
use crate::overlay::Overlay;

/// A piece of output and where its credit goes when it is taken.
#[derive(Debug)]
struct Piece {
    node: NodeId,
    output: Output,
}

/// Where one group's output goes.
#[derive(Debug)]
struct Sink {
    /// Bounded by the window of each node, to which the overlay holds it.
    to: mpsc::UnboundedSender<Piece>,
    /// Streams that are open still, by node; the last one's end ends the sink.
    open: OpenStreams,
}

/// How many streams of a group are open on each node: two for every process.
pub(crate) type OpenStreams = BTreeMap<NodeId, usize>;

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

    /// Sends a group's output to the caller.
    pub(crate) fn stream(&self, group: Option<DaemonId>, open: OpenStreams) -> OutputStream {
        let (to, from) = mpsc::unbounded_channel();
        lock(&self.sinks).insert(group, Sink { to, open });
        OutputStream { from: Feed::Agents { from, credits: Credits::new(self.overlay.clone(), group) } }
    }

    /// Has a thread write a group's output to two descriptors.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn write_to(
        &self,
        group: Option<DaemonId>,
        open: OpenStreams,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> io::Result<()> {
        let stream = self.stream(group, open);
        self.write_stream(stream, stdout, stderr)
    }

    /// Has a thread write a stream to two descriptors.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn write_stream(
        &self,
        mut stream: OutputStream,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> io::Result<()> {
        // Nothing else of ours: the thread must end when the app does, or its runtime.
        let writers = Arc::clone(&self.writers);
        self.writers.send_modify(|n| *n += 1);
        let thread = std::thread::Builder::new().name("gantry-output".to_owned());
        let spawned = thread.spawn(move || {
            let (mut stdout, mut stderr) = (File::from(stdout), File::from(stderr));
            while let Some(output) = stream.blocking_next() {
                let to = match output.stream {
                    Stream::Stdout => &mut stdout,
                    Stream::Stderr => &mut stderr,
                };
                // A reader that is gone is no concern of the app's: the rest is dropped and the app goes on.
                drop(write_patiently(to, &output.data.0));
            }
            writers.send_modify(|n| *n -= 1);
        });
        if spawned.is_err() {
            self.writers.send_modify(|n| *n -= 1);
        }
        spawned.map(drop)
    }

    /// Hands a piece to its group's sink. Without one it is dropped, and its credit given back; `origin` is asked for when there is one.
    pub(crate) fn deliver(
        &self,
        node: NodeId,
        origin: impl FnOnce() -> (AppId, String),
        source: Source,
        stream: Stream,
        bytes: Vec<u8>,
    ) {
        let group = output_group(source);
        let (rank, daemon) = match source {
            Source::Rank(rank) => (Some(rank), None),
            Source::Daemon(daemon) => (None, Some(daemon)),
        };
        let is_end = bytes.is_empty();
        let length = bytes.len();
        let mut sinks = lock(&self.sinks);
        let Some(sink) = sinks.get_mut(&group) else {
            if !is_end {
                self.give_back(group, node, length);
            }
            return;
        };
        if is_end {
            if let Some(open) = sink.open.get_mut(&node) {
                *open = open.saturating_sub(1);
            }
            sink.open.retain(|_, open| *open > 0);
            if sink.open.is_empty() {
                sinks.remove(&group);
            }
            return;
        }
        let (app, host) = origin();
        let output = Output { app, rank, daemon, host, stream, data: Data(bytes) };
        if sink.to.send(Piece { node, output }).is_err() {
            sinks.remove(&group);
            self.give_back(group, node, length);
        }
    }

    /// The credit of a piece that nobody wants.
    fn give_back(&self, group: Option<DaemonId>, node: NodeId, bytes: usize) {
        let mut credits = Credits::new(self.overlay.clone(), group);
        credits.give(node, bytes);
        credits.flush();
    }

    /// Nothing more comes from these nodes.
    pub(crate) fn lost(&self, nodes: &NodeSet) {
        lock(&self.sinks).retain(|_, sink| {
            sink.open.retain(|node, _| !nodes.contains(*node));
            !sink.open.is_empty()
        });
    }

    /// No output of that group comes, or nobody wants it.
    pub(crate) fn forget(&self, group: Option<DaemonId>) {
        lock(&self.sinks).remove(&group);
    }

    /// No more output comes: sinks end when what they have is taken.
    pub(crate) fn close(&self) {
        lock(&self.sinks).clear();
    }

    /// Waits until everything that came before [`Outputs::close`] is written.
    pub(crate) async fn written(&self) {
        // The sender lives in `self`: waiting cannot fail.
        drop(self.writers.subscribe().wait_for(|n| *n == 0).await);
    }
}

/// Output of one daemon, or of all ranks, in the order in which each process wrote it.
///
/// Taking a piece lets its writer go on; a stream that is kept and not read stops the writers.
#[derive(Debug)]
pub struct OutputStream {
    from: Feed,
}

#[derive(Debug)]
enum Feed {
    /// Agents send as much as they have credit for.
    Agents { from: mpsc::UnboundedReceiver<Piece>, credits: Credits },
    /// A launcher's pipes are read as long as there is room.
    Launcher(mpsc::Receiver<Output>),
}

impl OutputStream {
    /// The next piece; none when all writers have closed their output or are out of reach, or the app is gone. Waits for it; may be cancelled without loss.
    pub async fn next(&mut self) -> Option<Output> {
        match &mut self.from {
            Feed::Agents { from, credits } => from.recv().await.map(|piece| credits.taken(piece)),
            Feed::Launcher(from) => from.recv().await,
        }
    }

    pub(crate) fn of_launcher(from: mpsc::Receiver<Output>) -> Self {
        Self { from: Feed::Launcher(from) }
    }

    fn blocking_next(&mut self) -> Option<Output> {
        match &mut self.from {
            Feed::Agents { from, credits } => from.blocking_recv().map(|piece| credits.taken(piece)),
            Feed::Launcher(from) => from.blocking_recv(),
        }
    }
}

impl Drop for OutputStream {
    /// What is not taken any more must not stop its writers.
    fn drop(&mut self) {
        // A launcher's reader sees by itself that nobody listens.
        let Feed::Agents { from, credits } = &mut self.from else { return };
        from.close();
        while let Ok(piece) = from.try_recv() {
            drop(credits.taken(piece));
        }
        credits.flush();
    }
}

/// Credit that is given back in portions.
#[derive(Debug)]
struct Credits {
    overlay: Overlay,
    group: Option<DaemonId>,
    owed: HashMap<NodeId, Owed>,
}

impl Credits {
    fn new(overlay: Overlay, group: Option<DaemonId>) -> Self {
        Self { overlay, group, owed: HashMap::new() }
    }

    fn taken(&mut self, piece: Piece) -> Output {
        self.give(piece.node, piece.output.data.0.len());
        piece.output
    }

    fn give(&mut self, node: NodeId, bytes: usize) {
        let owed = self.owed.entry(node).or_insert(Owed::of(OUTPUT_WINDOW_BYTES));
        if let Some(bytes) = owed.take_message(bytes) {
            self.send(node, bytes);
        }
    }

    fn flush(&mut self) {
        for (node, mut owed) in std::mem::take(&mut self.owed) {
            if let Some(bytes) = owed.rest() {
                self.send(node, bytes);
            }
        }
    }

    fn send(&self, node: NodeId, bytes: u32) {
        let to = To::Nodes(NodeSet::from_range(node..=node));
        self.overlay.tell(to, Order::OutputCredit { daemon: self.group, bytes });
    }
}

/// Writes all of `bytes`, waiting where the descriptor is one that does not wait by itself.
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

/// The key under which output is accounted for: one daemon's, or all ranks'.
fn output_group(source: Source) -> Option<DaemonId> {
    match source {
        Source::Rank(_) => None,
        Source::Daemon(daemon) => Some(daemon),
    }
}
