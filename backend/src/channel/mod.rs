//! A daemon's end of the channel to its tool: messages both ways, contributions to operations of the tool, filters.
//!
//! Calls block, each with a deadline. The library has no thread: a call that waits reads the connection for all others
//! too. So several threads may use a channel, and a thread that waits does not delay one that sends.
//!
//! Messages of the tool wait here in order. Once 256 KiB wait, the tool sends no more. Tags separate messages of
//! different purposes. But a message of that size that the daemon does not take blocks all later ones, whatever their
//! tag.

mod state;
mod filter;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use gantry_shared::wire::backend::{Ask, Tell};
use gantry_shared::wire::channel::{
    CHUNK_BYTES, DaemonFlow, FromDaemon, MAX_MESSAGE_BYTES, MAX_PART_BYTES, Member,
};
use gantry_shared::wire::flow::Word;
use gantry_shared::wire::message::Blob;

use self::state::{State, Taken};
use crate::Error;
use crate::dialogue::{Dialogue, Patience};
use crate::link::Link;

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
    dialogue: Dialogue<State>,
}

impl Channel {
    pub(crate) fn open(link: Link, member: Member, timeout: Duration) -> Result<Self, Error> {
        match link.exchange(&Ask::Channel, "open the channel", timeout)? {
            Tell::Channel => {
                Ok(Self { member, dialogue: Dialogue::new(link.into_stream(), State::default()) })
            }
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
    /// [`Error::TimedOut`]; a partial message is kept. [`Error::Refused`] when the tool stopped sending it in the
    /// middle, [`Error::Lost`] when the agent has ended.
    pub fn receive(&self, tag: u32, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.read(Some(tag), timeout).map(|(_, bytes)| bytes)
    }

    /// The next message with any tag: the tag and the bytes. Waits for it.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_any(&self, timeout: Duration) -> Result<(u32, Vec<u8>), Error> {
        self.read(None, timeout)
    }

    /// The next message with this tag, to be read in pieces: for messages that are too large for memory. Waits up to
    /// `timeout` for its first bytes, and each read for the next ones.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn receive_reader(&self, tag: u32, timeout: Duration) -> Result<MessageReader<'_>, Error> {
        let patience = Patience::new("wait for a message", timeout);
        let number = self.dialogue.until(patience, |state| state.claim(Some(tag)).map(Ok))?;
        Ok(MessageReader { channel: self, number, patience: timeout, piece: Vec::new(), at: 0, over: false })
    }

    /// Sends a message of at most 128 KiB to the tool, without a request. Waits while 256 KiB of this daemon's messages
    /// wait for the tool.
    ///
    /// # Errors
    /// [`Error::TooLong`]: contribute it to a gather, which takes 64 MiB, or send several. [`Error::TimedOut`]: the
    /// tool does not take messages. [`Error::Lost`] when the agent has ended.
    pub fn send(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong { bytes: bytes.len() as u64, limit: MAX_MESSAGE_BYTES as u64 });
        }
        let patience = Patience::new("send a message: the tool does not take any", timeout);
        self.dialogue.say_when(patience, |state| {
            state.send(bytes.len())?;
            let word = Word::Data { label: tag.into(), bytes: Blob(bytes.to_vec()) };
            Some((FromDaemon::Flow { flow: DaemonFlow::Messages, word }, ()))
        })?;
        self.flush(patience)
    }

    /// Contributes to the tool's next gather or reduction with this tag to which this daemon has not yet contributed,
    /// 64 MiB at most.
    ///
    /// A contribution of up to 64 KiB is sent at once. The rest of a larger one is sent when the tool asks for it, and
    /// this call waits for that. If the operation ends first, the contribution is dropped, which is no error.
    ///
    /// # Errors
    /// [`Error::TooLong`]; [`Error::TimedOut`] when the tool does not ask: the contribution then counts as missing;
    /// [`Error::Lost`].
    pub fn contribute(&self, tag: u32, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        let total = bytes.len() as u64;
        if total > MAX_PART_BYTES {
            return Err(Error::TooLong { bytes: total, limit: MAX_PART_BYTES });
        }
        let patience = Patience::new("contribute: too many contributions wait to be collected", timeout);
        let (first, mut rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES));
        let round = self.dialogue.say_when(patience, |state| {
            let round = state.begin(tag, first.len(), !rest.is_empty())?;
            Some((FromDaemon::Part { tag, round, total, bytes: Blob(first.to_vec()) }, round))
        })?;
        let flow = DaemonFlow::Part { tag, round };
        self.flush(patience)?;
        let patience = patience.to("contribute: the rest is not being collected");
        while !rest.is_empty() {
            let sends = |state: &mut State| state.send_rest(tag, round, rest.len()).map(Ok);
            let fits = match self.dialogue.until(patience, sends) {
                Ok(Some(bytes)) => bytes,
                // The operation is over.
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.dialogue.look(|state| state.forget(tag, round));
                    if matches!(error, Error::TimedOut { .. }) {
                        self.say(FromDaemon::Flow { flow, word: Word::End }, GIVE_UP).ok();
                    }
                    return Err(error);
                }
            };
            let (now, later) = rest.split_at(fits);
            for chunk in now.chunks(CHUNK_BYTES) {
                let (wait, word) = (patience.at_least(GIVE_UP), Word::data(chunk.to_vec()));
                self.dialogue.say(FromDaemon::Flow { flow, word }, wait)?;
            }
            self.flush(patience)?;
            rest = later;
        }
        self.dialogue.look(|state| state.forget(tag, round));
        Ok(())
    }

    fn read(&self, tag: Option<u32>, timeout: Duration) -> Result<(u32, Vec<u8>), Error> {
        let patience = Patience::new("wait for a message", timeout);
        let number = self.dialogue.until(patience, |state| state.claim(tag).map(Ok))?;
        let mut bytes = Vec::new();
        loop {
            match self.take(number, patience.to(REST)) {
                Ok(Taken { tag, bytes: piece, last }) => {
                    bytes.extend_from_slice(&piece);
                    if last {
                        return Ok((tag, bytes));
                    }
                }
                Err(error) => {
                    self.dialogue.look(|state| state.unclaim(number, bytes));
                    return Err(error);
                }
            }
        }
    }

    /// The next bytes of a message that was claimed.
    fn take(&self, number: u64, patience: Patience) -> Result<Taken, Error> {
        self.dialogue.until(patience, |state| state.take(number).map_err(Error::Refused).transpose())
    }

    /// Sends a message, regardless of the queue.
    fn say(&self, what: FromDaemon, timeout: Duration) -> Result<(), Error> {
        let patience = Patience::new(WRITE, timeout);
        self.dialogue.say(what, patience)?;
        self.dialogue.flush(patience)
    }

    /// Waits until the system has taken all sent data. The agent always reads, so it gets a short time even with no
    /// timeout left.
    fn flush(&self, patience: Patience) -> Result<(), Error> {
        self.dialogue.flush(patience.to(WRITE).at_least(GIVE_UP))
    }
}

const REST: &str = "wait for the rest of a message";
const WRITE: &str = "write to this node's agent";

/// The timeout for the last message of a failed operation.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Readable when data has come from the agent: for programs that poll.
///
/// Then call with a timeout of zero, which finds its message or [times out](Error::TimedOut). Poll only after such a
/// call found nothing: the descriptor does not report data that another call has read.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dialogue.as_fd()
    }
}

/// A message that is read as it arrives. Dropping the reader drops the rest of the message.
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
            let patience = Patience::new(REST, self.patience);
            let Taken { bytes: piece, last, .. } =
                self.channel.take(self.number, patience).map_err(io::Error::other)?;
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
            self.channel.dialogue.look(|state| state.abandon(self.number));
        }
    }
}
