//! The process manager for scripts and graphical tools: messages in XML, from bytes or on a private socket.
//!
//! On the socket a message ends with a zero byte, which XML cannot contain, or with the end of the client's data. The
//! answer ends in the same way. After a zero byte the next message may follow.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_link::door::admission::{Limits, Stage};
use gantry_link::door::{Arrival, Gate, Seat, UnixEar};
use gantry_types::error::{Failure, Kind};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::manager::ProcessManager;
use super::request::{Answer, Request};
use super::xml::{MAX_BYTES, parse_request, write_answer};
use crate::error::{Error, Result};

/// The most clients that are answered at a time. Each may have a message in memory. When there are more, clients without
/// a request make way.
const MAX_CLIENTS: usize = 32;

/// How long a client may take to send a message, or to take an answer.
const SLOW: Duration = Duration::from_secs(60);

/// Answers one message. Both are XML.
pub async fn answer(manager: &ProcessManager, message: &[u8], timeout: Duration) -> Vec<u8> {
    let answer = match parse_request(message) {
        Ok(request) => manager.carry_out(&request, timeout).await,
        Err(error) => refuse(&error),
    };
    write(&answer)
}

/// The answer to a malformed message.
#[must_use]
pub fn refuse(error: &super::xml::XmlError) -> Answer {
    Answer::Refused { line: Some(error.line), failure: Failure::new(Kind::Invalid, &*error.reason) }
}

/// The answer to a client's message. None: the client hung up while it waited for the end of groups.
///
/// Actions are carried out, whether their client stays or not. A wait is of use to its client alone.
async fn answer_client(
    client: &UnixStream,
    manager: &ProcessManager,
    message: &[u8],
    timeout: Duration,
) -> Option<Vec<u8>> {
    let answer = match parse_request(message) {
        Ok(request @ Request::Wait { .. }) => tokio::select! {
            answer = manager.carry_out(&request, timeout) => answer,
            // Without a descriptor for the look at the client, the wait goes on.
            Ok(()) = hung_up(client) => return None,
        },
        Ok(request) => manager.carry_out(&request, timeout).await,
        Err(error) => refuse(&error),
    };
    Some(write(&answer))
}

/// Waits until a client has closed its socket. One that has ended its sending side alone still takes an answer.
async fn hung_up(client: &UnixStream) -> io::Result<()> {
    // The look takes back the readiness to write, so it has a registration of its own.
    let watched = std::os::unix::net::UnixStream::from(client.as_fd().try_clone_to_owned()?);
    let watched = UnixStream::from_std(watched)?;
    let look = || {
        // Without an event of interest, the system reports the end of both directions.
        match poll(&mut [PollFd::new(watched.as_fd(), PollFlags::empty())], PollTimeout::ZERO)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    };
    watched.async_io(Interest::WRITABLE, look).await
}

fn refuse_one_more() -> Answer {
    let message = format!("{MAX_CLIENTS} clients wait for answers already");
    let failure = Failure::new(Kind::NoAccess, message).with_hint("close some of them");
    Answer::Refused { line: None, failure }
}

fn write(answer: &Answer) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    drop(write_answer(&mut text, answer));
    text
}

/// A socket that answers messages. Dropping it removes it.
#[derive(Debug)]
pub struct Service {
    gate: Gate<UnixEar>,
    path: PathBuf,
    inode: u64,
}

impl Service {
    /// Creates the socket. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Its directory is another user's, or open to others; or the name is taken by something other than a dead socket
    /// of this user.
    pub async fn bind(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|e| Error::io(format!("cannot find the absolute path of {}", path.display()), e))?;
        let failed = |e| Error::io(format!("cannot serve {}", path.display()), e);
        let uid = nix::unistd::geteuid().as_raw();
        let dir = path.parent().unwrap_or(Path::new("/"));
        let about = fs::symlink_metadata(dir).map_err(failed)?;
        if !about.is_dir() || about.uid() != uid || about.mode() & 0o077 != 0 {
            let message = format!("{} is not your own directory with mode 0700", dir.display());
            let failure = Failure::new(Kind::NoAccess, message);
            let failure = failure.with_hint("make one with 'mkdir -m 700' for the socket");
            return Err(Error::Node { hosts: Vec::new(), failure });
        }
        remove_dead(&path, uid).await.map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = fs::symlink_metadata(&path).map_err(failed)?.ino();
        // One place more than clients, to tell a client that there are too many.
        let limits =
            Limits { silence: SLOW, handshake: SLOW, ..Limits::with_places(MAX_CLIENTS.saturating_add(1)) };
        Ok(Self { gate: Gate::new(UnixEar::new(listener, uid), limits), path, inode })
    }

    /// Answers clients while it is awaited.
    pub async fn run(&mut self, manager: &ProcessManager, timeout: Duration) {
        let mut clients = JoinSet::new();
        let places = Arc::new(Semaphore::new(MAX_CLIENTS));
        loop {
            tokio::select! {
                Arrival { stream, seat, eviction } = self.gate.next() => {
                    let (manager, places) = (manager.clone(), Arc::clone(&places));
                    let talk = async move { talk(stream, &seat, &places, &manager, timeout).await };
                    clients.spawn(eviction.or(talk));
                }
                Some(ended) = clients.join_next() => if let Ok(Some(Err(error))) = ended {
                    tracing::debug!(%error, "a client was disconnected: it did not read its answers");
                },
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Another process may have replaced the socket meanwhile.
        if fs::symlink_metadata(&self.path).is_ok_and(|about| about.ino() == self.inode) {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Removes a dead socket of this user.
async fn remove_dead(path: &Path, uid: u32) -> io::Result<()> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let dead = about.file_type().is_socket() && about.uid() == uid && is_dead(path).await;
    if dead { fs::remove_file(path) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

async fn is_dead(path: &Path) -> bool {
    let connected = UnixStream::connect(path).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Answers a client's messages until it leaves.
async fn talk(
    stream: UnixStream,
    seat: &Seat,
    places: &Semaphore,
    manager: &ProcessManager,
    deadline: Duration,
) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let mut buffer = Vec::new();
    let mut searched = 0;
    loop {
        let end = buffer[searched..].iter().position(|byte: &u8| *byte == 0).map(|at| searched + at);
        let (message, last) = match end {
            Some(end) => {
                let rest = buffer.split_off(end + 1);
                let mut message = std::mem::replace(&mut buffer, rest);
                message.truncate(end);
                (message, false)
            }
            // The parser refuses a message that is too long.
            None if buffer.len() > MAX_BYTES => (std::mem::take(&mut buffer), true),
            None => {
                searched = buffer.len();
                buffer.reserve(16 * 1024);
                match timeout(SLOW, from.read_buf(&mut buffer)).await?? {
                    0 => (std::mem::take(&mut buffer), true),
                    _ => continue,
                }
            }
        };
        searched = 0;
        if last && message.trim_ascii().is_empty() {
            return Ok(());
        }
        let place = places.try_acquire();
        let answered = match &place {
            // From here until its answer, the client cannot be displaced.
            Ok(_) if seat.reach(Stage::Proven) => {
                answer_client(from.as_ref(), manager, &message, deadline).await
            }
            Ok(_) => None,
            Err(_) => Some(write(&refuse_one_more())),
        };
        let Some(mut text) = answered else { return Ok(()) };
        if !last {
            text.push(0);
        }
        timeout(SLOW, to.write_all(&text)).await??;
        if last || !seat.reach(Stage::Silent) {
            return Ok(());
        }
    }
}
