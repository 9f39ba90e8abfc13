//! For ranks: register data, and get the other ranks' data.
//!
//! Every app has a rendezvous of all its ranks. Each rank registers once, any bytes. When all have registered, waiting
//! ranks get all data or single items. A rank that ends before it has registered breaks the rendezvous. Waiting ranks
//! then get an error that names it.
//!
//! ```no_run
//! use std::time::Duration;
//! use gantry_backend::rendezvous::{Data, Limits, Rendezvous};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let minute = Duration::from_secs(60);
//! let job = Rendezvous::of_job()?;
//! job.register(b"where I listen", minute)?;
//! let first = job.get_item(0, minute)?; // the data of rank 0 alone
//! let all = job.get_all(minute)?;
//! if let Data::Group(items) = Data::decode(1, &all, Limits::default())? {
//!     println!("{} ranks, the first at {first:?}", items.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Processes of an app may create more of them, by name ([`Rendezvous::named`]). The members of a multijob are apps:
//! rank 0 of each registers the data of all its ranks ([`Rendezvous::of_multijob`]). There may be a further level above
//! that ([`Status::above`]).
//!
//! Calls block, with a deadline. Each makes a connection of its own to the node's agent. So a [`Rendezvous`] is just an
//! address, and many threads may use it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gantry_shared::storage::{GANTRY_JOB_HANDLE, GANTRY_MULTIJOB_HANDLE, GANTRY_SUBJOB_RANK};
use gantry_shared::wire::frame::encode;
use gantry_shared::wire::rendezvous::{Ask, AskWhat, Gate, Refusal, Tell, VERSION, Want};
pub use gantry_types::id::Rank;
pub use gantry_types::rendezvous::{
    Broken, Data, DataError, Handle, Limits, MAX_ITEM_BYTES, MAX_TOTAL_BYTES, Name, Resource,
};
pub use gantry_types::rendezvous::{Standing, Status};
use nix::sys::socket::UnixAddr;

use crate::Error;
use crate::dialogue::Patience;
use crate::link::{Timed, open_address, open_own, read_answer};

/// How much memory is allocated for data before it has arrived.
const TRUSTED_BYTES: usize = 1024 * 1024;

/// A rendezvous, as a process of the app sees it.
#[derive(Debug, Clone)]
pub struct Rendezvous {
    handle: Handle,
    expected: Option<u32>,
    rank: Option<Rank>,
}

impl Rendezvous {
    /// The rendezvous that every app has, named in this process's environment (`GANTRY_JOB_HANDLE`).
    ///
    /// # Errors
    /// [`Error::NotStartedByGantry`] if the variable is not set, [`Error::BadEnvironment`].
    pub fn of_job() -> Result<Self, Error> {
        from_environment(GANTRY_JOB_HANDLE).map(Self::at)
    }

    /// The rendezvous above, if the app is part of a multijob (`GANTRY_MULTIJOB_HANDLE`).
    ///
    /// Only rank 0 may register there. It registers the result of [`Rendezvous::get_all`] of the level below.
    ///
    /// # Errors
    /// As [`Rendezvous::of_job`].
    pub fn of_multijob() -> Result<Self, Error> {
        from_environment(GANTRY_MULTIJOB_HANDLE).map(Self::at)
    }

    /// The rendezvous that a handle names.
    #[must_use]
    pub fn at(handle: Handle) -> Self {
        Self { handle, expected: None, rank: None }
    }

    /// A rendezvous that this app's processes create: the first request with a number creates it, for that many ranks.
    /// A later request with another number is an error, and without a number it must exist.
    #[must_use]
    pub fn named(&self, name: Name, expected: Option<u32>) -> Self {
        Self { expected, ..self.other(Resource::Named(name)) }
    }

    /// Another rendezvous that this process's agent knows, such as [`Status::above`] of this one.
    #[must_use]
    pub fn other(&self, resource: Resource) -> Self {
        let handle = Handle { service: self.handle.service.clone(), resource };
        Self { handle, expected: None, rank: self.rank }
    }

    /// The same, for a process that names its rank. The agent determines the rank itself, and refuses a wrong one.
    #[must_use]
    pub fn as_rank(self, rank: Rank) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Registers this rank's item, of at most [`MAX_ITEM_BYTES`]. Waits until it is registered.
    ///
    /// # Errors
    /// [`Error::Refused`]: this rank has registered already, this process belongs to no rank, there is no such
    /// rendezvous; [`Error::Broken`], [`Error::TimedOut`], [`Error::Unreachable`], [`Error::Lost`].
    pub fn register(&self, item: &[u8], timeout: Duration) -> Result<(), Error> {
        let asked = self.ask(AskWhat::Put { bytes: item.len() as u64 }, "register", timeout)?;
        // A refusing agent does not read the rest, but still answers.
        let written = asked.timed().write_all(item);
        match (asked.hear(), written) {
            (Ok(Tell::Done), _) => Ok(()),
            (Ok(_), _) => Err(unfit()),
            (Err(Error::Lost(_)), Err(error)) => Err(asked.failed(error)),
            (Err(error), _) => Err(error),
        }
    }

    /// All items, as data of this rendezvous's level ([`Data::decode`]). Waits until it is complete.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn get_all(&self, timeout: Duration) -> Result<Vec<u8>, Error> {
        self.subscribe(timeout)?.wait()
    }

    /// One member's item: that of a rank, or of a whole app in a multijob. Waits for that member only.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn get_item(&self, member: u32, timeout: Duration) -> Result<Vec<u8>, Error> {
        let get = AskWhat::Get(Want::Item(member));
        self.ask(get, "wait for an item", timeout)?.take()
    }

    /// Waits until it is complete, and takes no data.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        let get = AskWhat::Get(Want::Complete);
        self.ask(get, "wait for the rendezvous", timeout)?.take().map(drop)
    }

    /// Subscribes to all items, without waiting. Call [`Subscription::wait`] within that deadline.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn subscribe(&self, timeout: Duration) -> Result<Subscription, Error> {
        let get = AskWhat::Get(Want::All);
        self.ask(get, "wait for the rendezvous", timeout).map(Subscription)
    }

    /// A descriptor for programs that poll: readable once the rendezvous is complete, or will never be.
    ///
    /// It has no data; [`Rendezvous::wait`] and the other calls then answer at once. Does not wait, except for a place
    /// in the agent's queue.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn subscribe_to_end(&self, timeout: Duration) -> Result<OwnedFd, Error> {
        let get = AskWhat::Get(Want::Complete);
        self.ask(get, "wait for the rendezvous", timeout).map(|asked| asked.stream.into())
    }

    /// Its state.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn status(&self, timeout: Duration) -> Result<Status, Error> {
        match self.ask(AskWhat::Status, "ask for the rendezvous", timeout)?.hear()? {
            Tell::Status(status) => Ok(status),
            _ => Err(unfit()),
        }
    }

    /// The state of all rendezvous that this process's agent knows: the app's, those with names, and those above.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn list(&self, timeout: Duration) -> Result<Vec<Status>, Error> {
        let asked = self.ask(AskWhat::List, "ask for all rendezvous", timeout)?;
        let Tell::List { count } = asked.hear()? else { return Err(unfit()) };
        let status = |_| match asked.hear()? {
            Tell::Status(status) => Ok(status),
            _ => Err(unfit()),
        };
        (0..count).map(status).collect()
    }

    /// A link to the job's frontend, for the runtime.
    pub(crate) fn open_link(&self, timeout: Duration) -> Result<UnixStream, Error> {
        let asked = self.ask(AskWhat::Link, "connect to the job", timeout)?;
        match asked.hear()? {
            Tell::Done => Ok(asked.stream),
            _ => Err(unfit()),
        }
    }

    fn ask(&self, what: AskWhat, phase: &'static str, timeout: Duration) -> Result<Asked, Error> {
        let service = &self.handle.service;
        let patience = Patience::new(phase, timeout);
        let open = |until| open_address(&UnixAddr::new_abstract(service.as_bytes())?, until);
        let stream = open_own(open, patience, || format!("@{service}").into())?;
        let asked = Asked { stream, patience };
        let of = Gate { resource: self.handle.resource.clone(), expected: self.expected };
        let ask = encode(&Ask { version: VERSION, rank: self.rank, of, what }).map_err(Error::protocol)?;
        asked.timed().write_all(&ask).map_err(|error| asked.failed(error))?;
        Ok(asked)
    }
}

/// The app's number in its multijob, from this process's environment (`GANTRY_SUBJOB_RANK`).
///
/// # Errors
/// [`Error::NotStartedByGantry`] if the app is part of none, [`Error::BadEnvironment`].
pub fn subjob_rank() -> Result<u32, Error> {
    from_environment(GANTRY_SUBJOB_RANK)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment is how a rank gets its handles; this is the only place that reads it"
)]
fn from_environment<T: std::str::FromStr>(variable: &'static str) -> Result<T, Error> {
    parse_variable(variable, std::env::var_os(variable))
}

fn parse_variable<T: std::str::FromStr>(variable: &'static str, value: Option<OsString>) -> Result<T, Error> {
    let value = value.filter(|value| !value.is_empty()).ok_or(Error::NotStartedByGantry { variable })?;
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or(Error::BadEnvironment { variable, value })
}

/// A pending wait for all items. Dropping it cancels the wait.
#[derive(Debug)]
pub struct Subscription(Asked);

impl Subscription {
    /// All items, as [`Rendezvous::get_all`]. Waits until the rendezvous is complete, and for no longer than its
    /// deadline.
    ///
    /// # Errors
    /// As [`Rendezvous::register`].
    pub fn wait(self) -> Result<Vec<u8>, Error> {
        self.0.take()
    }

    /// As [`Subscription::wait`], into a writer as data arrives. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`Rendezvous::register`]; [`Error::Lost`] with the writer's error.
    pub fn wait_into(self, out: &mut dyn Write) -> Result<u64, Error> {
        let bytes = self.0.hear_bytes()?;
        let copied = io::copy(&mut self.0.timed().take(bytes), out).map_err(|error| self.0.failed(error))?;
        if copied == bytes { Ok(bytes) } else { Err(Error::Lost(None)) }
    }
}

/// Readable when [`Subscription::wait`] has a result: for programs that poll.
impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.stream.as_fd()
    }
}

/// A pending request.
#[derive(Debug)]
struct Asked {
    stream: UnixStream,
    patience: Patience,
}

impl Asked {
    fn timed(&self) -> Timed<'_> {
        Timed { stream: &self.stream, until: self.patience.until }
    }

    fn failed(&self, error: io::Error) -> Error {
        self.patience.failed(error)
    }

    fn hear(&self) -> Result<Tell, Error> {
        match read_answer(&self.stream, self.patience)? {
            Tell::Refused(Refusal::Broken(broken)) => Err(Error::Broken(broken)),
            Tell::Refused(Refusal::Failed(failure)) => Err(Error::Refused(failure)),
            tell => Ok(tell),
        }
    }

    fn hear_bytes(&self) -> Result<u64, Error> {
        match self.hear()? {
            Tell::Data { bytes } if bytes <= MAX_TOTAL_BYTES * 2 => Ok(bytes),
            _ => Err(unfit()),
        }
    }

    fn take(&self) -> Result<Vec<u8>, Error> {
        let bytes = self.hear_bytes()?;
        let size = usize::try_from(bytes).map_err(|_| unfit())?;
        let mut data = Vec::with_capacity(size.min(TRUSTED_BYTES));
        let read = self.timed().take(bytes).read_to_end(&mut data);
        read.map_err(|error| self.failed(error))?;
        if data.len() == size { Ok(data) } else { Err(Error::Lost(None)) }
    }
}

fn unfit() -> Error {
    Error::Unusable { reason: "the answer does not match the question" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_is_missing_or_wrong_is_told_apart() {
        let check =
            |value: Option<&str>| parse_variable::<Handle>(GANTRY_JOB_HANDLE, value.map(OsString::from));
        assert!(matches!(check(None), Err(Error::NotStartedByGantry { variable: "GANTRY_JOB_HANDLE" })));
        assert!(matches!(check(Some("")), Err(Error::NotStartedByGantry { .. })));
        assert!(matches!(check(Some("job")), Err(Error::BadEnvironment { .. })));
        let handle = check(Some("gantry+unix://@no-listener?job")).unwrap();
        let error = Rendezvous::at(handle).wait(Duration::from_secs(5)).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    }
}
