//! Archives that arrive as bulk data and are unpacked in sessions.
//!
//! The agent's loop passes pieces on and never waits. A thread for each archive unpacks it. The pieces that wait for
//! the thread hold the stream's credit, so a slow disk slows the sender down and fills no memory. An archive ends with
//! its last piece, or when the agent cuts it off: its stream was cancelled, its session closes, or the sender is gone.
//! A cut archive is removed. The session's directory is removed only after that.

mod cut;
mod stream;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::unpack::{Limits, unpack};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{NodeId, SessionId};
use gantry_types::session_dirs::SessionDirs;

use self::cut::Cut;
use self::stream::Pieces;
use crate::failure;
use crate::jobs::Jobs;
use crate::overlay::Piece;
use crate::tree;

/// The limit on archives that arrive for a session at once. Each has a thread.
const MAX_RECEIVES: usize = 16;

/// The largest window of compressed archives, as a power of two: 8 MiB, which is what zstd uses up to level 19.
const MAX_WINDOW_LOG: u32 = 23;

/// Bytes of a compressed archive that are unpacked, and then written, in one step.
const UNPACKED_BYTES: usize = 64 * 1024;

/// An archive that is about to arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    /// The session's number.
    pub(crate) session: SessionId,
    /// The bulk stream's number.
    pub(crate) stream: u64,
    /// Limits of the unpacked archive.
    pub(crate) limits: Limits,
    /// Whether the stream is the archive compressed with zstd.
    pub(crate) compressed: bool,
}

/// The archives that are arriving.
#[derive(Debug)]
pub(crate) struct Receives {
    coming: BTreeMap<u64, Coming>,
    /// The number of the last archive. No two nodes use the same numbers, since they may share a session's directory.
    last: u64,
}

#[derive(Debug)]
struct Coming {
    session: SessionId,
    /// None when no more pieces come.
    pieces: Option<Sender<Piece>>,
    cut: Cut,
    ended: Ended,
}

impl Receives {
    /// No archives yet on this node.
    pub(crate) fn new(node: NodeId) -> Self {
        Self { coming: BTreeMap::new(), last: u64::from(node.0) << 32 }
    }

    /// An archive was announced. `settling` is locked while it moves to its place. `done` gets the outcome, once.
    pub(crate) fn begin<T: Send + 'static>(
        &mut self,
        announced: Announced,
        dirs: &SessionDirs,
        settling: Arc<Mutex<T>>,
        done: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) {
        self.coming.retain(|_, coming| !coming.ended.is_over());
        let Announced { session, stream, limits, compressed } = announced;
        if self.coming.contains_key(&stream) {
            return done(Err(Failure::new(
                Kind::Protocol,
                "receive files: this stream is already being received",
            )));
        }
        let others = self.coming.values().filter(|coming| coming.session == session).count();
        if others >= MAX_RECEIVES {
            let message = format!("receive files: this session is already receiving {others} archives");
            return done(Err(
                Failure::new(Kind::Unsupported, message).with_hint("send them one after the other")
            ));
        }
        self.last += 1;
        let (number, root, cut) = (self.last, dirs.root.clone(), Cut::default());
        let (pieces, taken) = channel();
        let (alive, ended) = channel();
        let thread_cut = cut.clone();
        // A thread of its own, since it waits as long as the sender does.
        Jobs::default().push(move |turn| {
            let may_settle = || {
                let lock = settling.lock().unwrap_or_else(PoisonError::into_inner);
                thread_cut.check().map(|()| lock)
            };
            let unpacked = turn.and_then(|()| tree::open_root(&root)).and_then(|root| {
                let pieces = Pieces::new(taken, thread_cut.clone());
                let archive = decompress(pieces, compressed)?;
                unpack(archive, &root, number, limits, may_settle)
            });
            // First mark the archive as ended: the receiver of the outcome may send the next archive at once.
            drop::<Sender<Infallible>>(alive);
            // The reason of a cut says more than the place where it was noticed.
            done(unpacked.map_err(|failure| thread_cut.check().err().unwrap_or(failure)));
        });
        self.coming.insert(stream, Coming { session, pieces: Some(pieces), cut, ended: Ended(ended) });
    }

    /// Takes the next bytes of a stream. Drops those of a refused archive or of a closed session.
    pub(crate) fn take(&mut self, mut piece: Piece) {
        let Some(coming) = self.coming.get_mut(&piece.stream) else { return };
        if let Some(why) = piece.aborted.take() {
            return coming.cut_off(why);
        }
        let last = piece.last;
        if let Some(pieces) = &coming.pieces {
            // If the archive has failed already, the piece is dropped.
            drop(pieces.send(piece));
        }
        if last {
            coming.pieces = None;
        }
    }

    /// Cuts off the archives of this session, or all.
    pub(crate) fn cut_off(&mut self, session: Option<SessionId>, why: &Failure) {
        for coming in self.coming.values_mut().filter(|coming| coming.is_for(session)) {
            coming.cut_off(why.clone());
        }
    }

    /// Cuts off the archives of this session, or all. The result tells when their threads have ended.
    pub(crate) fn end(&mut self, session: Option<SessionId>, why: &Failure) -> Vec<Ended> {
        self.cut_off(session, why);
        let all: Vec<u64> =
            self.coming.iter().filter(|(_, it)| it.is_for(session)).map(|(stream, _)| *stream).collect();
        all.iter().filter_map(|stream| self.coming.remove(stream)).map(|coming| coming.ended).collect()
    }
}

impl Coming {
    fn is_for(&self, session: Option<SessionId>) -> bool {
        session.is_none_or(|session| session == self.session)
    }

    fn cut_off(&mut self, why: Failure) {
        self.cut.set(why);
        self.pieces = None;
    }
}

/// Tells when the thread of an archive has ended and has cleaned up.
#[derive(Debug)]
pub(crate) struct Ended(Receiver<Infallible>);

impl Ended {
    fn is_over(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits until all of them have ended, or until the deadline. Blocks.
    pub(crate) fn wait_for(all: Vec<Self>, deadline: Instant) {
        for ended in all {
            let left = deadline.saturating_duration_since(Instant::now());
            // A removal that files still arrive in fails, and says so.
            ended.0.recv_timeout(left.max(Duration::from_millis(1))).ok();
        }
    }
}

fn decompress(pieces: Pieces, compressed: bool) -> Result<Box<dyn BufRead>, Failure> {
    if !compressed {
        return Ok(Box::new(pieces));
    }
    let failed = |error: std::io::Error| failure::from_io("set up decompression", &error);
    let mut decoder = zstd::stream::read::Decoder::with_buffer(pieces).map_err(failed)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(failed)?;
    Ok(Box::new(BufReader::with_capacity(UNPACKED_BYTES, decoder)))
}

#[cfg(test)]
mod tests;
