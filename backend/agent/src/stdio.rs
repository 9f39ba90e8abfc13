//! Standard input, output and error of the processes that the agent starts.
//!
//! Output is read only as far as its reader has given credit, so that a slow tool makes writers wait, as on a pipe, and nothing piles up here.
//! Once nobody is left to read it, it is read and dropped: a program must not hang because its tool has let it go.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use gantry_shared::wire::message::{Blob, Notice, OUTPUT_WINDOW_BYTES, Source};
use gantry_shared::wire::window::{OVERHEAD_BYTES, Overrun, Receiver, cost_of};
use gantry_types::id::{DaemonId, Rank};
use gantry_types::output::Stream;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::overlay::Uplink;

/// Most bytes in one notice.
const PIECE_BYTES: usize = 32 * 1024;

/// Credit by group: one daemon, or all ranks.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    groups: HashMap<Option<DaemonId>, Rc<Semaphore>>,
    unlimited: bool,
}

impl Credits {
    /// The reader has taken that many bytes of a group.
    pub(crate) fn give(&mut self, group: Option<DaemonId>, bytes: u32) {
        // One that has ended and whose output is through needs none.
        let Some(credit) = self.groups.get(&group) else { return };
        // A reader that gives more than the window is wrong; more than the window is never on its way all the same.
        let room = (OUTPUT_WINDOW_BYTES as usize).saturating_sub(credit.available_permits());
        credit.add_permits((bytes as usize).min(room));
    }

    /// Forgets daemons all of whose streams have ended.
    pub(crate) fn forget_ended(&mut self) {
        self.groups.retain(|group, credit| group.is_none() || Rc::strong_count(credit) > 1);
    }

    /// Nobody reads any more: from now on everything is read and dropped.
    pub(crate) fn drop_everything(&mut self) {
        self.unlimited = true;
        for credit in self.groups.values() {
            credit.close();
        }
    }

    fn group(&mut self, group: Option<DaemonId>) -> Rc<Semaphore> {
        let credit = self.groups.entry(group).or_insert_with(|| {
            let credit = Rc::new(Semaphore::new(OUTPUT_WINDOW_BYTES as usize));
            if self.unlimited {
                credit.close();
            }
            credit
        });
        Rc::clone(credit)
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
    credits: &mut Credits,
    up: &Uplink,
) -> io::Result<OpenStreams> {
    let (open, streams) = watch::channel(2);
    let open = Rc::new(open);
    let group = match source {
        Source::Rank(_) => None,
        Source::Daemon(daemon) => Some(daemon),
    };
    for (stream, fd) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
        let pipe = pipe::Receiver::from_owned_fd(fd)?;
        let (credit, up, open) = (credits.group(group), up.clone(), Rc::clone(&open));
        tokio::task::spawn_local(async move {
            forward_stream(pipe, source, stream, &credit, &up).await;
            open.send_modify(|n| *n -= 1);
        });
    }
    Ok(streams)
}

async fn forward_stream(
    pipe: pipe::Receiver,
    source: Source,
    stream: Stream,
    credit: &Semaphore,
    up: &Uplink,
) {
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
        if let Some(used) = permit.split(cost_of(length) as usize) {
            used.forget();
        }
        drop(permit);
        up.notice(Notice::Output { source, stream, bytes: Blob(buffer[..length].to_vec()) });
    }
    up.notice(Notice::Output { source, stream, bytes: Blob::default() });
}

/// A rank's standard input.
#[derive(Debug)]
pub(crate) struct Input {
    /// Bounded by the window.
    pieces: mpsc::UnboundedSender<Vec<u8>>,
    window: Rc<Cell<Receiver>>,
}

impl Input {
    /// Feeds `rank` through `fd`. To be called in a local set.
    ///
    /// # Errors
    /// The descriptor is no pipe.
    pub(crate) fn start(rank: Rank, fd: OwnedFd, up: Uplink) -> io::Result<Self> {
        let mut pipe = pipe::Sender::from_owned_fd(fd)?;
        let (pieces, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
        let window = Rc::new(Cell::new(Receiver::new(OUTPUT_WINDOW_BYTES)));
        let granted = Rc::clone(&window);
        tokio::task::spawn_local(async move {
            while let Some(piece) = waiting.recv().await {
                if piece.is_empty() {
                    return;
                }
                let taken = pipe.write_all(&piece).await;
                let bytes = taken.map_or(0, |()| u32::try_from(piece.len()).unwrap_or(0));
                let mut window = granted.get();
                window.grant(bytes);
                granted.set(window);
                up.notice(Notice::StdinTaken { rank, bytes });
                if bytes == 0 {
                    return;
                }
            }
        });
        Ok(Self { pieces, window })
    }

    /// Passes bytes on; empty: the end.
    ///
    /// # Errors
    /// There is no room for so many.
    pub(crate) fn push(&self, bytes: Vec<u8>) -> Result<(), Overrun> {
        let mut window = self.window.get();
        window.take(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
        self.window.set(window);
        // A rank that reads no more has said so by a notice.
        drop(self.pieces.send(bytes));
        Ok(())
    }
}
