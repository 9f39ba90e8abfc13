//! Connections to editors: one on standard input and output, or some by sockets of this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use gantry_dap::adapter::Input;
use gantry_dap::frame::Frames;
use gantry_dap::message::Client;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::relay::{Editor, PIECE_BYTES, Relay};

/// How many messages wait for an editor at most.
const MAX_WAITING: usize = 256;

/// How long an editor may take for what it gets. Then it is taken for gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most editors by sockets at a time.
const MAX_PEERS: usize = 64;

/// All of them.
pub(super) struct Peers {
    inputs: Sender<Input>,
    writers: BTreeMap<Client, Writer>,
    joined: Receiver<(Client, Writer)>,
    join: Sender<(Client, Writer)>,
}

/// What an editor gets. An empty message is the end.
struct Writer {
    to: Sender<Vec<u8>>,
    done: JoinHandle<()>,
}

impl Peers {
    pub(super) fn new(inputs: Sender<Input>) -> Self {
        let (join, joined) = mpsc::channel(MAX_PEERS);
        Self { inputs, writers: BTreeMap::new(), joined, join }
    }

    /// The editor that has started us.
    pub(super) fn begin_on_stdio(&self) {
        let join = self.join.clone();
        let inputs = self.inputs.clone();
        tokio::spawn(begin(Client(0), tokio::io::stdin(), tokio::io::stdout(), false, join, inputs));
    }

    /// Takes all that come there.
    pub(super) fn accept(&self, listener: TcpListener) {
        let (join, inputs) = (self.join.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let room = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_PEERS));
            for number in 1.. {
                let Ok(place) = std::sync::Arc::clone(&room).acquire_owned().await else { return };
                let Ok((stream, _)) = listener.accept().await else { return };
                let (from, to) = stream.into_split();
                let (join, inputs) = (join.clone(), inputs.clone());
                tokio::spawn(async move {
                    begin(Client(number), from, to, true, join, inputs).await;
                    drop(place);
                });
            }
        });
    }

    /// Sends an editor a message. One that does not take it is gone.
    pub(super) async fn send(&mut self, client: Client, message: Vec<u8>) {
        self.take_joined();
        let Some(writer) = self.writers.get(&client) else { return };
        if !matches!(timeout(PATIENCE, writer.to.send(message)).await, Ok(Ok(()))) {
            self.writers.remove(&client);
        }
    }

    /// Closes a connection when all was sent.
    pub(super) async fn close(&mut self, client: Client) {
        self.take_joined();
        if let Some(writer) = self.writers.remove(&client) {
            let end = async {
                // One that is gone has closed itself.
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

/// Reads what an editor sends, until it is gone.
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
    // The driver has it before the first message.
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
            // A socket leads here already.
            let editor = Editor { client, to: &send, inputs: &inputs };
            let frame = if by_socket { Some(frame) } else { relay.take(frame, &editor).await };
            let Some(frame) = frame else { continue };
            if inputs.send(Input::Frame(client, frame)).await.is_err() {
                return;
            }
        }
    }
    // Without the driver there is nobody to be told.
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
