//! Connections to editors: one on standard input and output, or several by local sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_dap::adapter::Input;
use gantry_dap::frame::Frames;
use gantry_dap::message::Client;
use gantry_link::door::{Ear as _, Source, TcpEar};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::relay::{Editor, PIECE_BYTES, Relay};

/// The maximum number of messages that wait for an editor.
const MAX_WAITING: usize = 256;

/// The timeout for an editor to take a message. After that the editor counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// After a failed accept, other connections get this long to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of concurrent socket connections.
const MAX_PEERS: usize = 64;

/// All connections.
pub(super) struct Peers {
    inputs: Sender<Input>,
    writers: BTreeMap<Client, Writer>,
    joined: Receiver<(Client, Writer)>,
    join: Sender<(Client, Writer)>,
}

/// The queue of messages to an editor. An empty message closes the connection.
struct Writer {
    to: Sender<Vec<u8>>,
    done: JoinHandle<()>,
}

impl Peers {
    pub(super) fn new(inputs: Sender<Input>) -> Self {
        let (join, joined) = mpsc::channel(MAX_PEERS);
        Self { inputs, writers: BTreeMap::new(), joined, join }
    }

    /// Connects the editor that started this process.
    pub(super) fn begin_on_stdio(&self) {
        let join = self.join.clone();
        let inputs = self.inputs.clone();
        tokio::spawn(begin(Client(0), tokio::io::stdin(), tokio::io::stdout(), false, join, inputs));
    }

    /// Accepts connections on the listener. Those of other users take no place.
    pub(super) fn accept(&self, listener: TcpListener) {
        let (join, inputs) = (self.join.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let mut ear = TcpEar::new(listener);
            let room = Arc::new(Semaphore::new(MAX_PEERS));
            for number in 1.. {
                let stream = next_of_user(&mut ear).await;
                let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
                let (from, to) = stream.into_split();
                let (join, inputs) = (join.clone(), inputs.clone());
                tokio::spawn(async move {
                    begin(Client(number), from, to, true, join, inputs).await;
                    drop(place);
                });
            }
        });
    }

    /// Sends a message to an editor. If the editor does not take it in time, its connection is dropped.
    pub(super) async fn send(&mut self, client: Client, message: Vec<u8>) {
        self.take_joined();
        let Some(writer) = self.writers.get(&client) else { return };
        if !matches!(timeout(PATIENCE, writer.to.send(message)).await, Ok(Ok(()))) {
            self.writers.remove(&client);
        }
    }

    /// Closes a connection after all its messages are sent.
    pub(super) async fn close(&mut self, client: Client) {
        self.take_joined();
        if let Some(writer) = self.writers.remove(&client) {
            let end = async {
                // An editor that has left has closed its connection already.
                writer.to.send(Vec::new()).await.unwrap_or_default();
                writer.done.await.unwrap_or_default();
            };
            timeout(PATIENCE, end).await.unwrap_or_default();
        }
    }

    fn take_joined(&mut self) {
        while let Ok((client, writer)) = self.joined.try_recv() {
            self.writers.insert(client, writer);
        }
    }
}

/// The next connection of this user, of root, or of a user whom the kernel does not tell.
async fn next_of_user(ear: &mut TcpEar) -> TcpStream {
    let own = nix::unistd::geteuid().as_raw();
    loop {
        match ear.accept().await {
            Ok((_, Source::User(user))) if user != own && user != 0 => {
                tracing::warn!(user, "another user's process is cut off");
            }
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an editor");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Reads an editor's messages until it disconnects.
async fn begin(
    client: Client,
    mut from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin + Send + 'static,
    by_socket: bool,
    join: Sender<(Client, Writer)>,
    inputs: Sender<Input>,
) {
    let (send, receive) = mpsc::channel(MAX_WAITING);
    let done = tokio::spawn(write(to, receive));
    // The driver must know the connection before its first message.
    if join.send((client, Writer { to: send.clone(), done })).await.is_err() {
        return;
    }
    if inputs.send(Input::Joined { client, by_socket }).await.is_err() {
        return;
    }
    let (mut frames, mut piece, mut relay) = (Frames::default(), vec![0; PIECE_BYTES], Relay::default());
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let mut all = Vec::new();
        frames.push(&piece[..length], |frame| all.push(frame));
        for frame in all {
            // A socket is connected to the adapter that owns the session, so nothing is forwarded.
            let editor = Editor { client, to: &send, inputs: &inputs };
            let frame = if by_socket { Some(frame) } else { relay.take(frame, &editor).await };
            let Some(frame) = frame else { continue };
            if inputs.send(Input::Frame(client, frame)).await.is_err() {
                return;
            }
        }
    }
    // Without a driver the report has no receiver.
    inputs.send(Input::Left(client)).await.unwrap_or_default();
}

async fn write(mut to: impl AsyncWrite + Unpin, mut from: Receiver<Vec<u8>>) {
    while let Some(message) = from.recv().await {
        if message.is_empty() || to.write_all(&message).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    to.shutdown().await.unwrap_or_default();
}
