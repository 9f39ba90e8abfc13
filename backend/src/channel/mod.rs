//! A daemon's end of the channel to its tool: messages both ways, contributions to operations of the tool, filters.
//!
//! Calls block, each with a deadline. The library has no thread: a call that waits reads the connection for all others too. So several threads may use
//! a channel, and a thread that waits does not delay one that sends.
//!
//! Messages of the tool wait here in order. Once 256 KiB wait, the tool sends no more. Tags separate messages of different purposes. But a message of
//! that size that the daemon does not take blocks all later ones, whatever their tag.

mod state;
mod filter;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::wire::backend::{Ask, Tell};
use gantry_shared::wire::channel::{
    CHUNK_BYTES, FromDaemon, MAX_MESSAGE_BYTES, MAX_PART_BYTES, Member, cost_of,
};
use gantry_shared::wire::message::Blob;
use gantry_types::error::Failure;

use self::state::{State, Taken};
use crate::Error;
use crate::link::{Link, Wire};

pub use self::filter::Parts;

/// A daemon's end of its session's channel. See the [module](self).
///
/// ```no_run
/// # fn main() -> Result<(), gantry_backend::Error> {
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let channel = gantry_backend::channel()?;
/// let question = channel.receive(1, minute)?;
/// channel.contribute(1, question.len().to_string().as_bytes(), minute)?;
/// channel.send(2, b"done", minute)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Channel {
    member: Member,
    wire: Wire,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a frame is written.
    writing: Mutex<()>,
}

impl Channel {
    pub(crate) fn open(link: Link, member: Member, timeout: Duration) -> Result<Self, Error> {
        match link.exchange(&Ask::Channel, "open the channel", timeout)? {
            Tell::Channel => Ok(Self {
                member,
                wire: link.into_wire(),
                state: Mutex::default(),
                changed: Condvar::new(),
                writing: Mutex::new(()),
            }),
            _ => Err(Error::Unusable { reason: "the answer does not match the question" }),
        }
    }

    /// The number of this daemon on the channel, and its node.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member
    }

    /// The next message with this tag. Waits for it.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; what has come of it by then is kept. [`Error::Refused`] when the tool gave up sending it in the middle, [`Error::Lost`] when the agent has ended.
    pub fn receive(&self, tag: u32, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.read(Some(tag), timeout).map(|(_, bytes)| bytes)
    }

    /// The next message, whatever its tag: the tag and the bytes. Waits for it.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_any(&self, timeout: Duration) -> Result<(u32, Vec<u8>), Error> {
        self.read(None, timeout)
    }

    /// The next message with this tag, to be read as it comes: for what is too large to be held. Waits for its first bytes, and each read for the next ones as
    /// long as `timeout`.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_reader(&self, tag: u32, timeout: Duration) -> Result<MessageReader<'_>, Error> {
        let until = Instant::now() + timeout;
        let number = self.wait("wait for a message", until, timeout, |state| Ok(state.claim(Some(tag))))?;
        Ok(MessageReader { channel: self, number, patience: timeout, piece: Vec::new(), at: 0, over: false })
    }

    /// Sends a message to the tool, of 128 KiB at most, unasked. Waits while 256 KiB of this daemon's messages wait for the tool.
    ///
    /// # Errors
    /// [`Error::TooLong`]: contribute it to a gather, which takes 64 MiB, or send several. [`Error::TimedOut`]: the tool does not take messages.
    /// [`Error::Lost`] when the agent has ended.
    pub fn send(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong { bytes: bytes.len() as u64, limit: MAX_MESSAGE_BYTES as u64 });
        }
        let (until, cost) = (Instant::now() + timeout, cost_of(bytes.len()));
        self.wait("send a message: the tool does not take any", until, timeout, |state| {
            Ok(state.spend(cost))
        })?;
        self.say(&FromDaemon::Message { tag, bytes: Blob(bytes.to_vec()) }, in_time(until), timeout)
    }

    /// Contributes to the tool's next gather or reduction with this tag to which this daemon has not yet contributed, 64 MiB at most.
    ///
    /// A contribution of up to 64 KiB is sent at once. The rest of a larger one is sent when the tool asks for it, and this call waits for that. If the
    /// operation ends first, the contribution is dropped, which is no error.
    ///
    /// # Errors
    /// [`Error::TooLong`]; [`Error::TimedOut`] when the tool does not ask: the contribution then counts as missing; [`Error::Lost`].
    pub fn contribute(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        let total = bytes.len() as u64;
        if total > MAX_PART_BYTES {
            return Err(Error::TooLong { bytes: total, limit: MAX_PART_BYTES });
        }
        let until = Instant::now() + timeout;
        let (first, mut rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES));
        let cost = cost_of(first.len());
        let phase = "contribute: too many contributions wait to be collected";
        // Its number is taken and its first bytes are sent under one lock, so that contributions of several threads are sent in the order of their numbers.
        let turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let early = self.lock().begin(tag, cost, !rest.is_empty());
        let (turn, round) = match early {
            Some(round) => (turn, round),
            None => {
                drop(turn);
                self.wait(phase, until, timeout, |state| Ok(state.has_room(cost).then_some(())))?;
                return self.contribute(tag, bytes, until.saturating_duration_since(Instant::now()));
            }
        };
        let part = |bytes: &[u8]| FromDaemon::Part { tag, round, total, bytes: Blob(bytes.to_vec()) };
        let sent = self.wire.write(&part(first), in_time(until), timeout);
        drop(turn);
        self.lose_on_error(sent)?;
        while !rest.is_empty() {
            let phase = "contribute: the rest is not being collected";
            let granted = self.wait(phase, until, timeout, |state| Ok(state.granted(tag, round)));
            let granted = match granted {
                Ok(Some(bytes)) => bytes,
                // The operation is over.
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.lock().forget(tag, round);
                    if matches!(error, Error::TimedOut { .. }) {
                        self.say(&FromDaemon::GiveUp { tag, round }, Instant::now() + GIVE_UP, GIVE_UP).ok();
                    }
                    return Err(error);
                }
            };
            let (now, later) = rest.split_at(rest.len().min(granted as usize));
            for chunk in now.chunks(CHUNK_BYTES) {
                self.say(&part(chunk), in_time(until), timeout)?;
            }
            rest = later;
        }
        self.lock().forget(tag, round);
        Ok(())
    }

    fn read(&self, tag: Option<u32>, timeout: Duration) -> Result<(u32, Vec<u8>), Error> {
        let until = Instant::now() + timeout;
        let phase = "wait for a message";
        let number = self.wait(phase, until, timeout, |state| Ok(state.claim(tag)))?;
        let mut bytes = Vec::new();
        loop {
            match self.take(number, until, timeout) {
                Ok((tag, piece, last)) => {
                    bytes.extend_from_slice(&piece);
                    if last {
                        return Ok((tag, bytes));
                    }
                }
                Err(error) => {
                    self.lock().unclaim(number, bytes);
                    return Err(error);
                }
            }
        }
    }

    /// The next bytes of a message that was claimed: its tag, the bytes, and whether they are the last.
    fn take(&self, number: u64, until: Instant, timeout: Duration) -> Result<(u32, Vec<u8>, bool), Error> {
        let phase = "wait for the rest of a message";
        let Taken { tag, bytes, cost, last } =
            self.wait(phase, until, timeout, |state| state.take(number))?;
        if cost > 0 {
            self.say(&FromDaemon::Taken { cost }, in_time(until), timeout)?;
        }
        Ok((tag, bytes, last))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: &FromDaemon, until: Instant, timeout: Duration) -> Result<(), Error> {
        let turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let said = self.wire.write(what, until, timeout);
        drop(turn);
        self.lose_on_error(said)
    }

    /// Half of a frame may have been written: nothing can be said after it.
    fn lose_on_error(&self, said: Result<(), Error>) -> Result<(), Error> {
        said.map_err(|error| {
            // Whoever cut us off has said why.
            while let Ok(Some(heard)) = self.wire.read(Instant::now() + GIVE_UP) {
                self.lock().hear(heard);
            }
            let refused = self.lock().refused();
            self.lock().lose();
            self.changed.notify_all();
            refused.unwrap_or(error)
        })
    }

    /// Waits until `ready` finds what it looks for; meanwhile reads the connection, if nobody else does.
    fn wait<T>(
        &self,
        phase: &'static str,
        until: Instant,
        timeout: Duration,
        mut ready: impl FnMut(&mut State) -> Result<Option<T>, Failure>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            if let Some(found) = ready(&mut state).map_err(Error::Refused)? {
                return Ok(found);
            }
            if let Some(error) = state.lost() {
                return Err(error);
            }
            let left = until.saturating_duration_since(Instant::now());
            // What has come by now is still taken in, so that who polls may ask with no time at all.
            if left.is_zero() && (state.is_read() || !self.wire.has_input()) {
                return Err(Error::TimedOut { phase, after: timeout });
            }
            if !state.start_reading() {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            let heard = self.wire.read(if left.is_zero() { Instant::now() + INSTANT } else { until });
            state = self.lock();
            state.stop_reading();
            match heard {
                Ok(Some(heard)) => state.hear(heard),
                Ok(None) => state.lose(),
                Err(Error::TimedOut { .. }) => {}
                Err(error) => {
                    state.lose();
                    self.changed.notify_all();
                    return Err(state.refused().unwrap_or(error));
                }
            }
            self.changed.notify_all();
            let cost = state.take_dropped();
            if cost > 0 {
                drop(state);
                self.say(&FromDaemon::Taken { cost }, Instant::now() + GIVE_UP, GIVE_UP)?;
                state = self.lock();
            }
        }
    }
}

/// How long a read may take of which some bytes are there.
const INSTANT: Duration = Duration::from_millis(1);

/// How long the last word of something that failed may take.
const GIVE_UP: Duration = Duration::from_secs(1);

/// A frame that may be said is said whole: after half of one nothing could be said any more. So it has some time even when there is none.
fn in_time(until: Instant) -> Instant {
    until.max(Instant::now() + GIVE_UP)
}

/// Readable when data has come from the agent: for programs that poll. Then call with a deadline of zero, which finds its message or
/// [times out](Error::TimedOut). Poll only after such a call found nothing: the descriptor does not report data that another call has read.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// A message that is read as it comes. Dropping the reader drops the rest of the message.
#[derive(Debug)]
pub struct MessageReader<'a> {
    channel: &'a Channel,
    number: u64,
    patience: Duration,
    piece: Vec<u8>,
    at: usize,
    over: bool,
}

impl Read for MessageReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() && !self.over && !to.is_empty() {
            let until = Instant::now() + self.patience;
            let (_, piece, last) =
                self.channel.take(self.number, until, self.patience).map_err(io::Error::other)?;
            (self.piece, self.at, self.over) = (piece, 0, last);
        }
        let count = (&self.piece[self.at..]).read(to)?;
        self.at += count;
        Ok(count)
    }
}

impl Drop for MessageReader<'_> {
    fn drop(&mut self) {
        if !self.over {
            let cost = self.channel.lock().abandon(self.number);
            if cost > 0 {
                let until = Instant::now() + GIVE_UP;
                // A connection that has failed says so to the next call.
                self.channel.say(&FromDaemon::Taken { cost }, until, GIVE_UP).ok();
            }
        }
    }
}
