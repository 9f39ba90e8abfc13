//! Standard input, output and error of the processes that the agent starts.
//!
//! Output is read only as far as its reader has given credit, so that a slow tool makes writers wait, as on a pipe, and nothing piles up here.
//! Once nobody is left to read it, it is read and dropped: a program must not hang because its tool has let it go.

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

/// Most bytes in one message.
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
    /// Closed when nobody reads.
    credit: Semaphore,
    /// Streams that feed it. With the last one the flow ends.
    open: Cell<usize>,
}

impl Outputs {
    /// The frontend says a word of a group's flow. One whose output is through needs none.
    pub(crate) fn hear(&mut self, group: Option<DaemonId>, word: &Word) {
        let Some(Group { credit, .. }) = self.groups.get(&group).map(Rc::as_ref) else { return };
        match word {
            Word::Credit(bytes) => {
                // A reader that gives more than the window is wrong; more than the window is never on its way all the same.
                let room = (OUTPUT_WINDOW_BYTES as usize).saturating_sub(credit.available_permits());
                credit.add_permits((*bytes as usize).min(room));
            }
            Word::End => credit.close(),
            Word::Open(_) | Word::Data { .. } | Word::Drain => {}
        }
    }

    /// Forgets daemons all of whose streams have ended.
    pub(crate) fn forget_ended(&mut self) {
        self.groups.retain(|_, group| group.open.get() > 0);
    }

    /// Nobody reads any more: from now on everything is read and dropped.
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
            Rc::new(Group { credit, open: Cell::new(0) })
        });
        Rc::clone(group)
    }
}

/// Output of one process: how many of its two streams are open still.
pub(crate) type OpenStreams = watch::Receiver<usize>;

/// Forwards a process's output until both streams have ended. To be called in a local set.
///
/// # Errors
/// The descriptors are no pipes.
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
        tokio::task::spawn_local(async move {
            forward_stream(pipe, (flow, output_label(source, stream)), &group.credit, &up).await;
            group.open.set(group.open.get() - 1);
            if group.open.get() == 0 {
                up.flow(flow, Word::End);
            }
            open.send_modify(|n| *n -= 1);
        });
    }
    Ok(streams)
}

async fn forward_stream(pipe: pipe::Receiver, (flow, label): (FlowId, u64), credit: &Semaphore, up: &Uplink) {
    let mut buffer = vec![0; PIECE_BYTES];
    // Credit is asked for when there is something to read, and never kept while waiting for that: idle streams would starve the others.
    while pipe.readable().await.is_ok() {
        let overhead = OVERHEAD_BYTES as usize;
        let wanted = credit.available_permits().clamp(overhead + 1, PIECE_BYTES);
        let permit = credit.acquire_many(u32::try_from(wanted).unwrap_or(1)).await;
        let room = if permit.is_ok() { wanted - overhead } else { PIECE_BYTES };
        let length = match pipe.try_read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        // A closed credit means that nobody reads: the bytes are dropped.
        let Ok(mut permit) = permit else { continue };
        if let Some(used) = permit.split(flow.cost_of(length) as usize) {
            used.forget();
        }
        drop(permit);
        up.flow(flow, Word::Data { label, bytes: Blob(buffer[..length].to_vec()) });
    }
}

/// A rank's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    /// Bounded by the window.
    pieces: mpsc::UnboundedSender<Vec<u8>>,
    inflow: Rc<RefCell<Inflow>>,
}

impl Input {
    /// Feeds `rank` through `fd`. To be called in a local set.
    ///
    /// # Errors
    /// The descriptor is no pipe.
    pub(crate) fn start(rank: Rank, fd: OwnedFd, up: Uplink) -> io::Result<Self> {
        let mut pipe = pipe::Sender::from_owned_fd(fd)?;
        let (pieces, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
        let flow = FlowId::Input(rank);
        let inflow = Rc::new(RefCell::new(Inflow::down(flow)));
        let taking = Rc::clone(&inflow);
        tokio::task::spawn_local(async move {
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

    /// The frontend says a word of the flow.
    ///
    /// # Errors
    /// There is no room for so many bytes.
    pub(crate) fn hear(&self, word: Word) -> Result<(), Overrun> {
        let bytes = match word {
            Word::Data { bytes, .. } => bytes.0,
            // Behind all the bytes.
            Word::End => Vec::new(),
            Word::Open(_) | Word::Credit(_) | Word::Drain => return Ok(()),
        };
        self.inflow.borrow_mut().arrive(bytes.len())?;
        // A rank that reads no more has said so.
        drop(self.pieces.send(bytes));
        Ok(())
    }
}
