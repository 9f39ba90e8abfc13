//! A host with a running command: its standard input and output as one stream of bytes, and its messages separately.
//!
//! The transport is a process that is not a child of this one. Dropping a connection ends that process, unless it was
//! detached.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::call::Call;
use super::client::{Client, build_environment};
use super::openssh::Words;
use crate::host::{Machine, Orphan, spawn_orphan_with};

/// The maximum length of a line. A longer one is split.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// A host on which a command runs.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its standard input and output. Shutting down the writing side ends its input.
    pub(super) stream: UnixStream,
    /// Bytes that the stream's last reader has read but not used.
    pub(super) unread: Vec<u8>,
    words: watch::Receiver<Words>,
    client: Running,
}

/// Ends the client when dropped, unless it was detached.
#[derive(Debug)]
struct Running {
    orphan: Option<Orphan>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(orphan) = self.orphan.take()
            && let Err(error) = orphan.kill()
        {
            tracing::debug!(%error, "cannot end a connection");
        }
    }
}

impl Connection {
    /// Starts the client. Returns after its exec. Its output shows whether the host was reached.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(super) async fn open(client: Arc<Client>, call: &Call) -> io::Result<Self> {
        let args = client.build_args(call);
        let spawned = tokio::task::spawn_blocking(move || {
            let (stream, theirs) = StdUnixStream::pair()?;
            let (errors, their_errors) = StdUnixStream::pair()?;
            let stdin = OwnedFd::from(theirs);
            let stdio = [stdin.try_clone()?, stdin, their_errors.into()];
            let orphan = spawn_orphan_with(client.program(), &args, build_environment(&Machine), stdio)?;
            let client = Running { orphan: Some(orphan) };
            stream.set_nonblocking(true)?;
            errors.set_nonblocking(true)?;
            Ok::<_, io::Error>((stream, errors, client))
        });
        let (stream, errors, client) = spawned.await.map_err(io::Error::other)??;
        let stream = UnixStream::from_std(stream)?;
        let (sender, words) = watch::channel(Words::default());
        tokio::spawn(listen(call.host.to_string(), UnixStream::from_std(errors)?, sender));
        Ok(Self { stream, unread: Vec::new(), words, client })
    }

    /// The messages so far.
    pub(super) fn words(&self) -> Words {
        self.words.borrow().clone()
    }

    /// Waits until there are no more messages.
    pub(super) async fn all_said(&mut self) -> Words {
        while self.words.changed().await.is_ok() {}
        self.words()
    }

    /// The stream alone. Messages are dropped from now on.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Detaches the client: dropping this does not end it any more. It ends with the command on the host.
    pub(super) fn let_go(&mut self) {
        drop(self.client.orphan.take());
    }
}

/// Reads the messages on standard error until their end.
async fn listen(host: String, mut errors: UnixStream, words: watch::Sender<Words>) {
    let mut line = Vec::new();
    let mut bytes = vec![0; 4096];
    while let Ok(read @ 1..) = errors.read(&mut bytes).await {
        for byte in &bytes[..read] {
            match byte {
                b'\n' => take(&host, &mut line, &words),
                byte => line.push(*byte),
            }
            if line.len() == MAX_LINE_BYTES {
                take(&host, &mut line, &words);
            }
        }
    }
    take(&host, &mut line, &words);
}

fn take(host: &str, line: &mut Vec<u8>, words: &watch::Sender<Words>) {
    let known = words.borrow().instead.is_some();
    words.send_modify(|words| words.take(&String::from_utf8_lossy(line)));
    if let (false, Some(reason)) = (known, &words.borrow().instead) {
        tracing::info!(host, reason, "the OpenSSH client is used");
    }
    line.clear();
}
