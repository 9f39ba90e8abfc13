//! The connection, and what has come on it. Threads that wait read side by side, each for all: whoever takes something in wakes the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::wire::frame::{FrameBuffer, encode_onto};
use gantry_shared::wire::runtime::{Hear, Piece, Say, Scope, Then};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Rank;
use gantry_types::runtime::{Peer, Subjobs};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, recv, send};

use super::Message;
use crate::Error;

/// How much is kept here that the socket does not take yet, before a sender waits.
const OUT_BYTES: usize = 128 * 1024;

/// How much is read at once.
const READ_BYTES: usize = 128 * 1024;

/// A connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    process: u32,
    state: Mutex<State>,
}

/// What has come, and what is to go.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) welcome: Option<(Rank, u32)>,
    pub(super) released: bool,
    pub(super) checked_in: bool,
    pub(super) passed: bool,
    pub(super) structure: Option<Result<Subjobs, String>>,
    pub(super) ended: BTreeSet<u32>,
    /// Ranks of this subjob that have ended.
    gone_here: BTreeSet<Rank>,
    /// Processes of the job that have ended.
    gone: BTreeSet<Peer>,
    /// It was asked for them.
    watching: bool,
    aborted: Option<String>,
    messages: HashMap<(Scope, String), VecDeque<Message>>,
    /// Messages of which more is to come.
    parts: BTreeMap<(Scope, Peer, u64), Vec<u8>>,
    pub(super) gathered: BTreeMap<&'static str, u64>,
    next: u64,
    buffer: FrameBuffer,
    chunk: Vec<u8>,
    out: Vec<u8>,
    closed: bool,
    waiting: Vec<Arc<EventFd>>,
    spare: Vec<Arc<EventFd>>,
}

impl State {
    pub(super) fn next_message(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The error of whoever waits for a job that is none any more.
    pub(super) fn aborted(&self) -> Option<Error> {
        let why = self.aborted.as_ref()?;
        Some(Error::Refused(Failure::new(Kind::Gone, format!("take part in the job: {why}"))))
    }

    /// The next message with this tag, of one sender or of any.
    pub(super) fn take_message(&mut self, scope: Scope, tag: &str, from: Option<Peer>) -> Option<Message> {
        let key = (scope, tag.to_owned());
        let queue = self.messages.get_mut(&key)?;
        let is_of = |message: &Message| match (from, scope) {
            (None, _) => true,
            (Some(from), Scope::Job) => message.from == from,
            (Some(from), Scope::Subjob) => message.from.rank == from.rank,
        };
        let message = queue.iter().position(is_of).and_then(|at| queue.remove(at));
        if queue.is_empty() {
            self.messages.remove(&key);
        }
        message
    }

    /// Asks for the ranks that have ended, and will.
    pub(super) fn watch(&mut self) {
        if !std::mem::replace(&mut self.watching, true) {
            // It is of two bytes.
            drop(encode_onto(&Say::Watch, &mut self.out));
        }
    }

    /// Whether nothing comes from that process any more.
    pub(super) fn is_gone(&self, scope: Scope, peer: Peer) -> bool {
        match scope {
            Scope::Job => self.gone.contains(&peer) || self.ended.contains(&peer.subjob),
            Scope::Subjob => self.gone_here.contains(&peer.rank),
        }
    }

    /// How many ranks of this subjob have ended.
    pub(super) fn gone_here(&self) -> &BTreeSet<Rank> {
        &self.gone_here
    }

    fn hear(&mut self, heard: Hear) {
        match heard {
            Hear::Welcome { rank, size } => self.welcome = Some((rank, size)),
            Hear::Released => self.released = true,
            Hear::Joined(structure) => self.structure = Some(Ok(structure)),
            Hear::Alone(why) => self.structure = Some(Err(why)),
            Hear::Aborted(why) => self.aborted = Some(why),
            Hear::Ended { subjob } => drop(self.ended.insert(subjob)),
            Hear::Piece(piece) => self.take_piece(piece),
            Hear::RankEnded { own, peer } => {
                if own {
                    self.gone_here.insert(peer.rank);
                }
                self.gone.insert(peer);
            }
            Hear::Watched => self.watching = false,
        }
    }

    fn take_piece(&mut self, Piece { scope, peer, message, tag, then, bytes }: Piece) {
        let key = (scope, peer, message);
        match then {
            Then::More => self.parts.entry(key).or_default().extend(bytes.0),
            Then::GivenUp => drop(self.parts.remove(&key)),
            Then::Complete => {
                let bytes = match self.parts.remove(&key) {
                    None => bytes.0,
                    Some(mut whole) => {
                        whole.extend(bytes.0);
                        whole
                    }
                };
                self.messages.entry((scope, tag)).or_default().push_back(Message { from: peer, bytes });
            }
        }
    }
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> Result<Self, Error> {
        stream.set_nonblocking(true).map_err(|error| Error::Lost(Some(error)))?;
        Ok(Self { stream, process: std::process::id(), state: Mutex::default() })
    }

    /// Does something with what there is.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> Result<T, Error> {
        self.check_process()?;
        Ok(look(&mut self.lock()))
    }

    /// Waits until `ready` finds what it looks for, or a reason not to.
    pub(super) fn until<T>(
        &self,
        phase: &'static str,
        until: Instant,
        after: Duration,
        mut ready: impl FnMut(&mut State) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.check_process()?;
        let mut state = self.lock();
        loop {
            if let Some(done) = ready(&mut state) {
                return done;
            }
            if self.move_bytes(&mut state)? {
                continue;
            }
            if state.closed {
                return Err(Error::Lost(None));
            }
            state = self.wait(state, phase, until, after)?;
        }
    }

    /// Puts something on its way, as soon as there is room.
    pub(super) fn say(
        &self,
        what: &Say,
        phase: &'static str,
        until: Instant,
        after: Duration,
    ) -> Result<(), Error> {
        self.until(phase, until, after, |state| {
            (state.out.len() < OUT_BYTES || state.closed).then(|| {
                if state.closed {
                    return Err(Error::Lost(None));
                }
                encode_onto(what, &mut state.out).map_err(Error::protocol)
            })
        })?;
        // At once, if the socket takes it: what is left goes with whatever is done next.
        let mut state = self.lock();
        self.write(&mut state)?;
        Ok(())
    }

    /// Puts something on its way that goes with whatever is done next.
    pub(super) fn say_later(&self, what: &Say) {
        // It was encoded before, but for its content.
        drop(encode_onto(what, &mut self.lock().out));
    }

    /// Waits until the system has all that was said.
    pub(super) fn flush(&self, phase: &'static str, until: Instant, after: Duration) -> Result<(), Error> {
        self.until(phase, until, after, |state| state.out.is_empty().then_some(Ok(())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::Unusable { reason: "the connection to the job is that of the process which was forked" })
    }

    /// Writes and reads what can be at once. True: something has come or gone.
    fn move_bytes(&self, state: &mut State) -> Result<bool, Error> {
        let written = self.write(state);
        let mut came = false;
        let mut chunk = std::mem::take(&mut state.chunk);
        chunk.resize(READ_BYTES, 0);
        while !state.closed {
            let count = match recv(self.stream.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => {
                    state.closed = true;
                    came = true;
                    break;
                }
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(Error::Lost(Some(error.into()))),
            };
            let bytes = chunk.get(..count).unwrap_or_default();
            state.buffer.push(bytes).map_err(Error::protocol)?;
            while let Some(heard) = state.buffer.next_message().map_err(Error::protocol)? {
                state.hear(heard);
            }
            came = true;
            if count < READ_BYTES {
                break;
            }
        }
        state.chunk = chunk;
        if came {
            for other in &state.waiting {
                if let Err(error) = other.write(1) {
                    // It has been woken more often than can be counted.
                    tracing::trace!(%error, "a waiting thread was not woken");
                }
            }
        }
        // Who has closed may have said why.
        if came { Ok(true) } else { written.map(|bytes| bytes > 0) }
    }

    /// Gives the number of bytes that have gone.
    fn write(&self, state: &mut State) -> Result<usize, Error> {
        let mut sent = 0;
        let outcome = loop {
            let Some(rest) = state.out.get(sent..).filter(|rest| !rest.is_empty()) else { break Ok(sent) };
            // Without the flag a vanished agent would kill a program that is none of Rust, by SIGPIPE.
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.stream.as_raw_fd(), rest, flags) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Ok(sent),
                Err(error) => break Err(Error::Lost(Some(error.into()))),
            }
        };
        state.out.drain(..sent);
        outcome
    }

    /// Waits for something to read or room to write, or for another thread that has read.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        phase: &'static str,
        until: Instant,
        after: Duration,
    ) -> Result<MutexGuard<'a, State>, Error> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TimedOut { phase, after });
        }
        let woken = match state.spare.pop() {
            Some(woken) => woken,
            None => Arc::new(new_event().map_err(|error| Error::Lost(Some(error)))?),
        };
        state.waiting.push(Arc::clone(&woken));
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, !state.out.is_empty());
        drop(state);
        let mut fds =
            [PollFd::new(self.stream.as_fd(), flags), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        // A millisecond more rather than none at all; a wait that is too long for the system is begun anew.
        let left = left.as_millis().saturating_add(1).min(i32::MAX.unsigned_abs().into());
        let polled = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let mut state = self.lock();
        state.waiting.retain(|other| !Arc::ptr_eq(other, &woken));
        // Empty, for whoever uses it next.
        if matches!(woken.read(), Ok(_) | Err(Errno::EAGAIN)) {
            state.spare.push(woken);
        }
        match polled {
            Ok(_) | Err(Errno::EINTR) => Ok(state),
            Err(error) => Err(Error::Lost(Some(error.into()))),
        }
    }
}

fn new_event() -> io::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(io::Error::from)
}
