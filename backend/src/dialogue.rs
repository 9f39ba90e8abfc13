//! A connection to the agent on which both sides may send at any time.
//!
//! The library has no thread. Waiting threads read side by side, each for all: a thread that receives data wakes the
//! others. Bytes that the socket does not take at once are kept and sent with the next operation, so a timeout never
//! cuts a frame.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;
use gantry_shared::wire::frame::{FrameBuffer, encode_onto};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// The most bytes that are kept for the socket before a sender waits.
const OUT_BYTES: usize = 128 * 1024;

/// The most bytes of one read.
const READ_BYTES: usize = 128 * 1024;

/// The state of one side of a dialogue. Pure: it gets messages.
pub(crate) trait Party {
    /// The type of received messages.
    type Heard: DeserializeOwned;
    /// The type of sent messages.
    type Said: Serialize;

    /// Takes a received message.
    ///
    /// # Errors
    /// The other side violates the protocol. The dialogue ends.
    fn hear(&mut self, heard: Self::Heard) -> Result<(), Error>;

    /// The next message that follows from received messages or calls.
    fn next_word(&mut self) -> Option<Self::Said>;

    /// The reason of the other side for ending the dialogue, if it has sent one.
    fn refused(&self) -> Option<Error> {
        None
    }
}

/// How long a call may wait, and its error at the timeout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) phase: &'static str,
    pub(crate) until: Instant,
    /// The caller's timeout.
    pub(crate) timeout: Duration,
}

impl Patience {
    /// A timeout that starts now.
    pub(crate) fn new(phase: &'static str, timeout: Duration) -> Self {
        Self { phase, until: Instant::now() + bounded(timeout), timeout }
    }

    /// The same deadline for another step.
    pub(crate) fn to(self, phase: &'static str) -> Self {
        Self { phase, ..self }
    }

    /// At least `time`, even if less is left.
    pub(crate) fn at_least(self, time: Duration) -> Self {
        Self { until: self.until.max(Instant::now() + bounded(time)), ..self }
    }

    pub(crate) fn is_over(self) -> Error {
        Error::TimedOut { phase: self.phase, after: self.timeout }
    }

    /// The error of a call whose connection failed.
    pub(crate) fn failed(self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::TimedOut { self.is_over() } else { Error::Lost(Some(error)) }
    }
}

/// A dialogue.
#[derive(Debug)]
pub(crate) struct Dialogue<P> {
    stream: UnixStream,
    inner: Mutex<Inner<P>>,
}

#[derive(Debug)]
struct Inner<P> {
    party: P,
    buffer: FrameBuffer,
    chunk: Vec<u8>,
    out: Vec<u8>,
    closed: bool,
    waiting: Vec<Arc<EventFd>>,
    spare: Vec<Arc<EventFd>>,
}

impl<P: Party> Inner<P> {
    /// Why no more data arrives, if the dialogue has ended.
    fn ended(&self) -> Option<Error> {
        self.party.refused().or_else(|| self.closed.then_some(Error::Lost(None)))
    }

    fn push(&mut self, what: &P::Said) -> Result<(), Error> {
        encode_onto(what, &mut self.out).map_err(Error::protocol)
    }

    /// Queues the messages that follow from the party's state.
    fn push_words(&mut self) -> Result<(), Error> {
        while let Some(word) = self.party.next_word() {
            self.push(&word)?;
        }
        Ok(())
    }

    fn wake_others(&self) {
        for other in &self.waiting {
            // It fails if the thread has been woken already, more often than the pipe holds.
            other.write(1).ok();
        }
    }
}

impl<P: Party> Dialogue<P> {
    pub(crate) fn new(stream: UnixStream, party: P) -> Self {
        let (buffer, chunk, out) = (FrameBuffer::new(), Vec::new(), Vec::new());
        let (waiting, spare) = (Vec::new(), Vec::new());
        let inner = Inner { party, buffer, chunk, out, closed: false, waiting, spare };
        Self { stream, inner: Mutex::new(inner) }
    }

    /// Applies a function to the state, and queues the messages that follow.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut P) -> T) -> T {
        let mut inner = self.lock();
        let done = look(&mut inner.party);
        // The next caller gets its error.
        drop(inner.push_words().and_then(|()| self.write(&mut inner)));
        done
    }

    /// Waits until `ready` returns a result or an error. With a timeout of zero it checks received data only.
    pub(crate) fn until<T>(
        &self,
        patience: Patience,
        mut ready: impl FnMut(&mut P) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.until_inner(patience, |inner| ready(&mut inner.party))
    }

    /// Queues the message that `make` returns, as soon as it returns one and there is room. Messages of several threads
    /// are sent in the order in which they were made.
    pub(crate) fn say_when<T>(
        &self,
        patience: Patience,
        mut make: impl FnMut(&mut P) -> Option<(P::Said, T)>,
    ) -> Result<T, Error> {
        self.until_inner(patience, |inner| {
            if let Some(error) = inner.ended() {
                return Some(Err(error));
            }
            let (what, made) = (inner.out.len() < OUT_BYTES).then(|| make(&mut inner.party))??;
            Some(inner.push(&what).map(|()| made))
        })
    }

    /// Queues a message, as soon as there is room.
    pub(crate) fn say(&self, what: P::Said, patience: Patience) -> Result<(), Error> {
        let mut what = Some(what);
        self.say_when(patience, |_| what.take().map(|what| (what, ())))
    }

    /// Waits until the system has taken all sent data. At the timeout the rest goes with the next operation.
    pub(crate) fn flush(&self, patience: Patience) -> Result<(), Error> {
        self.until_inner(patience, |inner| inner.out.is_empty().then_some(Ok(())))
    }

    /// Queues a message that goes with the next operation.
    pub(crate) fn say_later(&self, what: &P::Said) {
        // Encoding cannot fail: a message of this type was encoded before.
        drop(self.lock().push(what));
    }

    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn until_inner<T>(
        &self,
        patience: Patience,
        mut ready: impl FnMut(&mut Inner<P>) -> Option<Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut inner = self.lock();
        loop {
            let done = ready(&mut inner);
            inner.push_words()?;
            if let Some(done) = done {
                // Send the consequences now if possible; the next caller gets an error.
                drop(self.write(&mut inner));
                return done;
            }
            if self.move_bytes(&mut inner)? {
                continue;
            }
            if let Some(error) = inner.ended() {
                return Err(error);
            }
            inner = self.wait(inner, patience)?;
        }
    }

    /// Writes and reads without blocking. True: data was moved.
    fn move_bytes(&self, inner: &mut Inner<P>) -> Result<bool, Error> {
        let written = self.write(inner);
        let came = self.read(inner)?;
        if came {
            inner.push_words()?;
            inner.wake_others();
        }
        // A peer that has closed may have sent a reason before that.
        if came { Ok(true) } else { written.map(|bytes| bytes > 0) }
    }

    /// Returns true if data or the end has come.
    fn read(&self, inner: &mut Inner<P>) -> Result<bool, Error> {
        let mut came = false;
        let mut chunk = std::mem::take(&mut inner.chunk);
        chunk.resize(READ_BYTES, 0);
        while !inner.closed {
            let count = match recv(self.stream.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => {
                    inner.closed = true;
                    came = true;
                    break;
                }
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(Error::Lost(Some(error.into()))),
            };
            came = true;
            if let Err(error) = take_in(inner, chunk.get(..count).unwrap_or_default()) {
                // Data after it has no meaning.
                inner.closed = true;
                inner.wake_others();
                return Err(error);
            }
            if count < READ_BYTES {
                break;
            }
        }
        inner.chunk = chunk;
        Ok(came)
    }

    /// Returns the number of sent bytes.
    fn write(&self, inner: &mut Inner<P>) -> Result<usize, Error> {
        let mut sent = 0;
        let outcome = loop {
            let Some(rest) = inner.out.get(sent..).filter(|rest| !rest.is_empty()) else { break Ok(sent) };
            // Without the flag, a vanished agent would kill a foreign program by SIGPIPE.
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match send(self.stream.as_raw_fd(), rest, flags) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Ok(sent),
                Err(error) => break Err(Error::Lost(Some(error.into()))),
            }
        };
        inner.out.drain(..sent);
        outcome
    }

    /// Waits for something to read or room to write, or for another thread that has read.
    fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<P>>,
        patience: Patience,
    ) -> Result<MutexGuard<'a, Inner<P>>, Error> {
        let left = patience.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(patience.is_over());
        }
        let woken = match inner.spare.pop() {
            Some(woken) => woken,
            None => Arc::new(new_event().map_err(|error| Error::Lost(Some(error)))?),
        };
        inner.waiting.push(Arc::clone(&woken));
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, !inner.out.is_empty());
        drop(inner);
        let mut fds =
            [PollFd::new(self.stream.as_fd(), flags), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        // Wait a millisecond more rather than none at all. A wait that is too long for the system is repeated.
        let left = left.as_millis().saturating_add(1).min(i32::MAX.unsigned_abs().into());
        let polled = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let mut inner = self.lock();
        inner.waiting.retain(|other| !Arc::ptr_eq(other, &woken));
        // Empty it for the next use.
        if matches!(woken.read(), Ok(_) | Err(Errno::EAGAIN)) {
            inner.spare.push(woken);
        }
        match polled {
            Ok(_) | Err(Errno::EINTR) => Ok(inner),
            Err(error) => Err(Error::Lost(Some(error.into()))),
        }
    }
}

impl<P> AsFd for Dialogue<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn take_in<P: Party>(inner: &mut Inner<P>, bytes: &[u8]) -> Result<(), Error> {
    inner.buffer.push(bytes).map_err(Error::protocol)?;
    while let Some(heard) = inner.buffer.next_message().map_err(Error::protocol)? {
        inner.party.hear(heard)?;
    }
    Ok(())
}

fn new_event() -> io::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(io::Error::from)
}

#[cfg(test)]
mod tests;
