//! Standard input, output and error of the processes that the agent starts.
//!
//! The agent reads output only as far as the frontend has granted credit. So a slow tool makes writers wait, as on a
//! pipe, and no output gathers here. When the frontend is gone, the agent reads output and drops it: a program must not
//! hang because its tool has left.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use gantry_shared::wire::flow::{FlowId, Inflow, OUTPUT_WINDOW_BYTES, Source, Word, output_label, output_of};
use gantry_shared::wire::message::Blob;
use gantry_shared::wire::window::{OVERHEAD_BYTES, Overrun};
use gantry_types::id::{DaemonId, Rank};
use gantry_types::output::Stream;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::overlay::Uplink;
use crate::task;

/// The most bytes in one message.
const PIECE_BYTES: usize = 32 * 1024;

/// The flows of output: one for each daemon, and one for all ranks.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    groups: HashMap<Option<DaemonId>, Rc<Group>>,
    unlimited: bool,
}

/// A flow of output, for the tasks that feed it.
#[derive(Debug)]
struct Group {
    /// Closed when no one reads the output.
    credit: Semaphore,
    /// The number of streams that feed the flow. The flow ends with the last one.
    open: Cell<usize>,
    /// Where a stream's next bytes are read. One for all streams: hundreds of ranks are silent most of the time.
    piece: RefCell<Box<[u8]>>,
}

impl Outputs {
    /// The frontend sends a word of a group's flow. A group whose output has ended ignores it.
    pub(crate) fn hear(&mut self, group: Option<DaemonId>, word: &Word) {
        let Some(Group { credit, .. }) = self.groups.get(&group).map(Rc::as_ref) else { return };
        match word {
            Word::Credit(bytes) => {
                // A reader must not grant more than the window. In any case the agent sends no more than that.
                let room = (OUTPUT_WINDOW_BYTES as usize).saturating_sub(credit.available_permits());
                credit.add_permits((*bytes as usize).min(room));
            }
            Word::End => credit.close(),
            Word::Open(_) | Word::Data { .. } | Word::Drain => {}
        }
    }

    /// Forgets daemons with no open stream.
    pub(crate) fn forget_ended(&mut self) {
        self.groups.retain(|_, group| group.open.get() > 0);
    }

    /// The reader is gone: from now on the agent reads all output and drops it.
    pub(crate) fn drop_everything(&mut self) {
        self.unlimited = true;
        for group in self.groups.values() {
            group.credit.close();
        }
    }

    fn group(&mut self, group: Option<DaemonId>) -> Rc<Group> {
        let group = self.groups.entry(group).or_insert_with(|| {
            let credit = Semaphore::new(OUTPUT_WINDOW_BYTES as usize);
            if self.unlimited {
                credit.close();
            }
            let piece = RefCell::new(vec![0; PIECE_BYTES].into_boxed_slice());
            Rc::new(Group { credit, open: Cell::new(0), piece })
        });
        Rc::clone(group)
    }
}

/// The output of one process: how many of its two streams are still open.
pub(crate) type OpenStreams = watch::Receiver<usize>;

/// Forwards a process's output until both streams have ended. Call it in a local set.
///
/// # Errors
/// The descriptors are not pipes.
pub(crate) fn forward(
    source: Source,
    stdout: OwnedFd,
    stderr: OwnedFd,
    outputs: &mut Outputs,
    up: &Uplink,
) -> io::Result<OpenStreams> {
    let (open, streams) = watch::channel(2);
    let open = Rc::new(open);
    let flow = output_of(source);
    let group = outputs.group(match source {
        Source::Rank(_) => None,
        Source::Daemon(daemon) => Some(daemon),
    });
    for (stream, fd) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
        let pipe = pipe::Receiver::from_owned_fd(fd)?;
        let (group, up, open) = (Rc::clone(&group), up.clone(), Rc::clone(&open));
        group.open.set(group.open.get() + 1);
        task::spawn_local(async move {
            forward_stream(pipe, (flow, output_label(source, stream)), &group, &up).await;
            group.open.set(group.open.get() - 1);
            if group.open.get() == 0 {
                up.flow(flow, Word::End);
            }
            open.send_modify(|n| *n -= 1);
        });
    }
    Ok(streams)
}

async fn forward_stream(pipe: pipe::Receiver, (flow, label): (FlowId, u64), group: &Group, up: &Uplink) {
    let Group { credit, piece, .. } = group;
    // The task takes credit only when there is something to read: idle streams that hold credit would starve others.
    while pipe.readable().await.is_ok() {
        let overhead = OVERHEAD_BYTES as usize;
        let wanted = credit.available_permits().clamp(overhead + 1, PIECE_BYTES);
        let permit = credit.acquire_many(u32::try_from(wanted).unwrap_or(1)).await;
        let room = if permit.is_ok() { wanted - overhead } else { PIECE_BYTES };
        let mut piece = piece.borrow_mut();
        let bytes = match pipe.try_read(&mut piece[..room]) {
            Ok(0) => break,
            Ok(length) => &piece[..length],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        // Closed credit means that the reader is gone: the bytes are dropped.
        let Ok(mut permit) = permit else { continue };
        if let Some(used) = permit.split(flow.cost_of(bytes.len()) as usize) {
            used.forget();
        }
        drop(permit);
        up.flow(flow, Word::Data { label, bytes: Blob(bytes.to_vec()) });
    }
}

/// A rank's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    /// Pieces for the rank. The window bounds them.
    pieces: mpsc::UnboundedSender<Vec<u8>>,
    inflow: Rc<RefCell<Inflow>>,
}

impl Input {
    /// Feeds `rank` through `fd`. Call it in a local set.
    ///
    /// # Errors
    /// The descriptor is not a pipe.
    pub(crate) fn start(rank: Rank, fd: OwnedFd, up: Uplink) -> io::Result<Self> {
        let mut pipe = pipe::Sender::from_owned_fd(fd)?;
        let (pieces, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
        let flow = FlowId::Input(rank);
        let inflow = Rc::new(RefCell::new(Inflow::down(flow)));
        let taking = Rc::clone(&inflow);
        task::spawn_local(async move {
            while let Some(piece) = waiting.recv().await {
                if piece.is_empty() {
                    return;
                }
                if pipe.write_all(&piece).await.is_err() {
                    return up.flow(flow, Word::End);
                }
                let due = taking.borrow_mut().take(piece.len());
                if let Some(due) = due {
                    up.flow(flow, Word::Credit(due));
                }
            }
        });
        Ok(Self { pieces, inflow })
    }

    /// The frontend sends a word of the flow.
    ///
    /// # Errors
    /// The bytes overrun the window.
    pub(crate) fn hear(&self, word: Word) -> Result<(), Overrun> {
        let bytes = match word {
            Word::Data { bytes, .. } => bytes.0,
            // The end comes after all bytes.
            Word::End => Vec::new(),
            Word::Open(_) | Word::Credit(_) | Word::Drain => return Ok(()),
        };
        self.inflow.borrow_mut().arrive(bytes.len())?;
        // If the rank no longer reads, the agent has reported that already.
        drop(self.pieces.send(bytes));
        Ok(())
    }
}
