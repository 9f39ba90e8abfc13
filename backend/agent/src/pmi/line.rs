//! The line to the process that runs a PMIx library for the ranks.
//!
//! Its messages and the ends of ranks come by different ways. What a rank has done before its end is in the socket by then:
//! the library tells it before it answers the rank. So the agent reads the socket before it takes the end.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use gantry_types::error::Failure;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::pmix::{FromServer, build_answer, take_message};
use crate::session::AppDir;

/// Bytes per read.
pub(super) const CHUNK_BYTES: usize = 4096;

/// How long the library may take to end. Then its process is killed.
const END_WITHIN: Duration = Duration::from_secs(4);

/// The line to a library's process.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixStream,
    inbox: RefCell<Vec<u8>>,
    /// The library, for users.
    name: String,
}

/// What is left to do at the end.
#[derive(Debug)]
pub(super) struct Rest {
    /// Ends when the process has closed its end.
    over: oneshot::Receiver<()>,
    /// The directory of its files.
    directory: AppDir,
}

impl Line {
    /// The line by this socket, from which the inbox has been read already. `name` is the library.
    pub(super) fn new(socket: UnixStream, inbox: Vec<u8>, name: String) -> Self {
        Self { socket, inbox: RefCell::new(inbox), name }
    }

    /// The library, for users.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for more bytes. False: the process has closed its end.
    pub(super) async fn read(&self) -> bool {
        if self.socket.readable().await.is_err() {
            return false;
        }
        let mut inbox = self.inbox.borrow_mut();
        inbox.reserve(CHUNK_BYTES);
        match self.socket.try_read_buf(&mut *inbox) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Reads what the process has sent so far.
    pub(super) fn read_now(&self) {
        while read_now(&self.socket, &mut self.inbox.borrow_mut()) {}
    }

    /// Takes the next complete message, and the bytes behind it.
    ///
    /// # Errors
    /// The message is malformed or too long.
    pub(super) fn take(&self) -> Result<Option<(FromServer, Vec<u8>)>, &'static str> {
        take_message(&mut self.inbox.borrow_mut())
    }

    /// Tells the library that a fence is complete.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) async fn answer(&self, all: &[u8]) -> io::Result<()> {
        let answer = build_answer(all)?;
        let mut bytes = answer.as_slice();
        while !bytes.is_empty() {
            self.socket.writable().await?;
            match self.socket.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Rest {
    /// What is left once `over` has ended.
    pub(super) fn new(over: oneshot::Receiver<()>, directory: AppDir) -> Self {
        Self { over, directory }
    }

    /// Ends the library and removes its directory.
    ///
    /// # Errors
    /// Files of it stay behind.
    pub(super) async fn close(self, line: Option<&Line>) -> Result<(), Failure> {
        if let Some(line) = line {
            // The process may have ended by itself.
            shutdown(line.socket.as_raw_fd(), Shutdown::Write).ok();
        }
        drop(timeout(END_WITHIN, self.over).await);
        self.directory.leave()
    }
}

/// Reads once what has arrived. False: nothing has. The runtime may not have noticed yet that the socket is readable.
pub(super) fn read_now(socket: &UnixStream, inbox: &mut Vec<u8>) -> bool {
    let mut chunk = [0; CHUNK_BYTES];
    let read = recv(socket.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT);
    inbox.extend_from_slice(chunk.get(..read.unwrap_or(0)).unwrap_or_default());
    matches!(read, Ok(1..))
}
