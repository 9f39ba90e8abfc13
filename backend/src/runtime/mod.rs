//! For ranks of a co-allocated job: the barrier at its start, its structure, and messages among its processes.
//!
//! A job has subjobs, each of its own workload manager. A program calls [`Runtime::barrier`] before any action that
//! cannot be undone. It returns when all subjobs have started and the job was released. Then its processes may
//! exchange messages: between subjobs, to find each other, and within one.
//!
//! ```no_run
//! use std::time::Duration;
//! use gantry_backend::runtime::Runtime;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hour = Duration::from_secs(3600);
//! let runtime = Runtime::connect(hour)?;
//! runtime.barrier(hour)?; // all parts are there, or this is an error
//! if runtime.rank().0 == 0 {
//!     let job = runtime.structure(hour)?;
//!     let next = (job.index + 1) % u32::try_from(job.sizes.len())?;
//!     runtime.send_to_subjob(next, "token", b"42", hour)?;
//!     let token = runtime.receive_from_subjobs("token", hour)?;
//!     println!("subjob {} has sent {:?}", token.from.subjob, token.bytes);
//! }
//! let everybody = runtime.exchange(b"where my master listens", hour)?; // one text of every subjob
//! # drop(everybody);
//! # Ok(())
//! # }
//! ```
//!
//! Calls block, with a timeout. The library starts no thread: a waiting call receives all messages and keeps them by
//! tag for any thread. So messages may be received in any order and from any number of threads. A process that does
//! not call blocks its senders once frontend and agent hold the maximum. A sent message is delivered even if its
//! sender ends at once.
//!
//! A program that gantry started without such a job is a job by itself.

mod message;
mod state;
mod bootstrap;

use std::time::Duration;

use gantry_shared::wire::runtime::{MESSAGE_PIECE_BYTES, Piece, Say, Scope, Then};
use gantry_types::error::{Failure, Kind};
pub use gantry_types::id::Rank;
pub use gantry_types::runtime::{MAX_TAG_BYTES, Peer, Subjobs};

pub use self::message::Message;
use self::state::State;
use crate::Error;
use crate::dialogue::{Dialogue, Patience};
use crate::rendezvous::Rendezvous;

/// This process's connection to its job. Many threads may use it; a forked child has none.
#[derive(Debug)]
pub struct Runtime {
    dialogue: Dialogue<State>,
    process: u32,
    rank: Rank,
    size: u32,
}

impl Runtime {
    /// Connects to this node's agent. A rank has one connection at a time.
    ///
    /// # Errors
    /// [`Error::NotStartedByGantry`]; [`Error::Refused`]: another process of this rank is connected;
    /// [`Error::TimedOut`], [`Error::Unreachable`], [`Error::Lost`].
    pub fn connect(timeout: Duration) -> Result<Self, Error> {
        let patience = Patience::new("connect to the job", timeout);
        let dialogue = Dialogue::new(Rendezvous::of_job()?.open_link(timeout)?, State::default());
        let (rank, size) = dialogue.until(patience, |state| match state.welcome {
            Some(welcome) => Some(Ok(welcome)),
            None => state.aborted().map(Err),
        })?;
        Ok(Self { dialogue, process: std::process::id(), rank, size })
    }

    /// The dialogue about the job, in the process that has connected.
    fn job(&self) -> Result<&Dialogue<State>, Error> {
        if self.process == std::process::id() {
            return Ok(&self.dialogue);
        }
        Err(Error::Unusable { reason: "the connection to the job is that of the process which was forked" })
    }

    /// This process's rank in its subjob.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks its subjob has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Waits until all processes of all subjobs are at their barrier and the job is released. Later calls return at
    /// once, and so do calls in a subjob that takes no part in the barrier.
    ///
    /// # Errors
    /// [`Error::Refused`]: the job was killed, or this subjob was removed from it: the work must not begin, so exit.
    /// [`Error::TimedOut`]: call it again.
    /// [`Error::Lost`].
    pub fn barrier(&self, timeout: Duration) -> Result<(), Error> {
        let (job, patience) = (self.job()?, Patience::new("pass the barrier", timeout));
        if job.look(|state| !std::mem::replace(&mut state.checked_in, true)) {
            job.say(Say::CheckIn, patience)?;
        }
        job.until(patience, |state| match state.released {
            true => Some(Ok(())),
            false => state.aborted().map(Err),
        })?;
        if job.look(|state| !std::mem::replace(&mut state.passed, true)) {
            job.say(Say::Passed, patience)?;
        }
        Ok(())
    }

    /// The subjobs that exchange messages, and this process's own. Waits until the job is released and all of them are
    /// there.
    ///
    /// # Errors
    /// [`Error::Refused`]: this subjob exchanges none (`subjobCommsType=independent`), or the job has ended; as
    /// [`Runtime::barrier`].
    pub fn structure(&self, timeout: Duration) -> Result<Subjobs, Error> {
        let patience = Patience::new("wait for all subjobs", timeout);
        self.job()?.until(patience, |state| match &state.structure {
            Some(Ok(structure)) => Some(Ok(structure.clone())),
            Some(Err(why)) => {
                let why = format!("exchange messages with other subjobs: {why}");
                Some(Err(Error::Refused(Failure::new(Kind::Unsupported, why))))
            }
            None => state.aborted().map(Err),
        })
    }

    /// Sends a message to rank 0 of a subjob. Waits until it is sent. It is delivered even if this process ends.
    ///
    /// # Errors
    /// [`Error::Refused`]: no such subjob, it has ended, or a tag of more than [`MAX_TAG_BYTES`]; [`Error::TimedOut`]:
    /// it may still arrive, whole; as [`Runtime::structure`].
    pub fn send_to_subjob(
        &self,
        subjob: u32,
        tag: &str,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), Error> {
        self.send_to(Peer { subjob, rank: Rank(0) }, tag, bytes, timeout)
    }

    /// As [`Runtime::send_to_subjob`], to any process of the job.
    ///
    /// # Errors
    /// As [`Runtime::send_to_subjob`].
    pub fn send_to(&self, to: Peer, tag: &str, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        let structure = self.structure(timeout)?;
        let size = usize::try_from(to.subjob).ok().and_then(|number| structure.sizes.get(number));
        if size.is_none_or(|size| to.rank.0 >= *size) {
            return Err(refused(
                Kind::Invalid,
                format!("send a message to rank {} of subjob {}: there is none", to.rank, to.subjob),
            ));
        }
        if self.job()?.look(|state| state.ended.contains(&to.subjob)) {
            return Err(refused(Kind::Gone, format!("send a message to subjob {}: it has ended", to.subjob)));
        }
        self.send(Scope::Job, to, tag, bytes, timeout)
    }

    /// Takes the next message with this tag from another subjob to this rank, or to its own subjob. Waits until there
    /// is one.
    ///
    /// # Errors
    /// [`Error::Refused`]: all other subjobs have ended, and there is none; [`Error::TimedOut`]; as
    /// [`Runtime::structure`].
    pub fn receive_from_subjobs(&self, tag: &str, timeout: Duration) -> Result<Message, Error> {
        let structure = self.structure(timeout)?;
        self.receive(Scope::Job, tag, None, timeout, |state| {
            let others = structure.sizes.len().saturating_sub(1);
            (others > 0 && state.ended.len() >= others).then(|| "all other subjobs have ended".to_owned())
        })
    }

    /// Takes the next message with this tag from one process of the job to this one. Waits until there is one.
    ///
    /// # Errors
    /// [`Error::Refused`] names that process: it has ended, and there is none; [`Error::TimedOut`]; as
    /// [`Runtime::structure`].
    pub fn receive_from(&self, from: Peer, tag: &str, timeout: Duration) -> Result<Message, Error> {
        self.structure(timeout)?;
        self.receive(Scope::Job, tag, Some(from), timeout, |state| {
            let why = || format!("rank {} of subjob {} has ended", from.rank, from.subjob);
            state.is_gone(Scope::Job, from).then(why)
        })
    }

    /// Sends a message to a rank of this subjob. Waits until it is sent. It is delivered even if this process ends.
    ///
    /// # Errors
    /// [`Error::Refused`]: no such rank, or a tag of more than [`MAX_TAG_BYTES`]; [`Error::TimedOut`], [`Error::Lost`].
    pub fn send_to_rank(&self, rank: Rank, tag: &str, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        if rank.0 >= self.size {
            return Err(refused(
                Kind::Invalid,
                format!("send a message to rank {rank}: there are {}", self.size),
            ));
        }
        self.send(Scope::Subjob, Peer { subjob: 0, rank }, tag, bytes, timeout)
    }

    /// Takes the next message with this tag from a rank of this subjob to this one. Waits until there is one.
    ///
    /// # Errors
    /// [`Error::Refused`]: all other ranks have ended, and there is none; [`Error::TimedOut`], [`Error::Lost`].
    pub fn receive_from_ranks(&self, tag: &str, timeout: Duration) -> Result<Message, Error> {
        let others = usize::try_from(self.size).unwrap_or(usize::MAX).saturating_sub(1);
        self.receive(Scope::Subjob, tag, None, timeout, |state| {
            let gone = state.gone_here();
            (others > 0 && gone.len() >= others).then(|| match gone.first() {
                Some(rank) if others == 1 => format!("rank {rank} has ended"),
                _ => "all other ranks have ended".to_owned(),
            })
        })
    }

    /// As [`Runtime::receive_from_ranks`], from one rank.
    ///
    /// # Errors
    /// [`Error::Refused`] names that rank: it has ended, and there is none; [`Error::TimedOut`], [`Error::Lost`].
    pub fn receive_from_rank(&self, rank: Rank, tag: &str, timeout: Duration) -> Result<Message, Error> {
        let from = Peer { subjob: 0, rank };
        self.receive(Scope::Subjob, tag, Some(from), timeout, |state| {
            state.is_gone(Scope::Subjob, from).then(|| format!("rank {rank} has ended"))
        })
    }

    fn send(
        &self,
        scope: Scope,
        peer: Peer,
        tag: &str,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<(), Error> {
        if tag.len() > MAX_TAG_BYTES {
            return Err(refused(
                Kind::Invalid,
                format!("send a message: a tag has at most {MAX_TAG_BYTES} bytes"),
            ));
        }
        let (job, patience) = (self.job()?, Patience::new("send a message", timeout));
        let message = job.look(State::next_message);
        let piece = |then, bytes: &[u8]| {
            let bytes = gantry_shared::wire::message::Blob(bytes.to_vec());
            Say::Piece(Piece { scope, peer, message, tag: tag.to_owned(), then, bytes })
        };
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at(rest.len().min(MESSAGE_PIECE_BYTES));
            let then = if later.is_empty() { Then::Complete } else { Then::More };
            if let Err(error) = job.say(piece(then, now), patience) {
                if rest.len() < bytes.len() {
                    // Tell the receiver not to keep the partial message for ever.
                    job.say_later(&piece(Then::GivenUp, &[]));
                }
                return Err(error);
            }
            rest = later;
            if rest.is_empty() {
                return job.flush(patience);
            }
        }
    }

    fn receive(
        &self,
        scope: Scope,
        tag: &str,
        from: Option<Peer>,
        timeout: Duration,
        hopeless: impl Fn(&State) -> Option<String>,
    ) -> Result<Message, Error> {
        self.job()?.until(Patience::new("receive a message", timeout), |state| {
            if let Some(message) = state.take_message(scope, tag, from) {
                return Some(Ok(message));
            }
            if let Some(why) = hopeless(state) {
                return Some(Err(refused(Kind::Gone, format!("receive a message '{tag}': {why}"))));
            }
            state.watch();
            None
        })
    }
}

fn refused(kind: Kind, why: String) -> Error {
    Error::Refused(Failure::new(kind, why))
}
