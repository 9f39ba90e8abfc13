//! The task that owns a client's connection. Only it writes to the connection, one packet per write.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::engine::{Engine, Finished, Waiter};
use super::error::{Asked, Loss, Result, TmError};
use super::id::{NodeId, TaskId};
use super::reply::Answer;
use super::request::Command;

/// How long a mom may take to read sent data while more waits.
const READING: Duration = Duration::from_secs(60);

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

/// A request on its way to the connection.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Command,
    pub(super) waiter: Waiting,
}

/// The receiver of a result.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A future.
    Answer(oneshot::Sender<Result<Answer>>),
    /// No receiver.
    NoReceiver,
}

impl Waiter for Waiting {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.is_closed())
    }
}

impl Waiting {
    /// Delivers the result. Returns the outcome if the receiver is gone.
    fn tell(self, outcome: Result<Answer>) -> std::result::Result<(), Result<Answer>> {
        match self {
            Self::Answer(answer) => answer.send(outcome),
            Self::NoReceiver => Ok(()),
        }
    }
}

/// Writes requests and reads replies until all senders of orders are gone. `restricted` lists the allowed nodes, if
/// only some are.
pub(super) async fn drive(
    mut stream: TcpStream,
    mut engine: Engine<Waiting>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    mut restricted: oneshot::Receiver<Vec<NodeId>>,
) {
    let Some(loss) = serve(&mut stream, &mut engine, &mut orders, &mut restricted).await else { return };
    drop(stream);
    tracing::debug!(%loss, "the connection to the mom has ended");
    engine.lose(&loss, |finished| drop(finished.waiter.tell(finished.outcome)));
    while let Some(Order { command, waiter }) = orders.recv().await {
        let asked = Asked { verb: command.verb(), node: command.node() };
        drop(waiter.tell(Err(TmError::Lost { asked, loss: loss.clone() })));
    }
}

/// `None`: there are no more orders. Else: how the connection ended.
async fn serve(
    stream: &mut TcpStream,
    engine: &mut Engine<Waiting>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    restricted: &mut oneshot::Receiver<Vec<NodeId>>,
) -> Option<Loss> {
    let mut buffer = vec![0; READ_BYTES];
    let mut heard = Instant::now();
    loop {
        while let Ok(Some(packet)) = engine.next_packet() {
            if let Err(error) = stream.write_all(&packet).await {
                return Some(last_words(stream, engine, &mut buffer, error).await);
            }
        }
        let length = tokio::select! {
            order = orders.recv() => {
                let Order { command, waiter } = order?;
                if let Ok(nodes) = restricted.try_recv() {
                    engine.restrict(nodes);
                }
                take(engine, &command, waiter);
                continue;
            }
            read = stream.read(&mut buffer) => match read {
                Ok(0) => return Some(engine.hung_up()),
                Ok(length) => length,
                Err(error) => return Some(broken(engine, error)),
            },
            () = sleep_until(heard + READING), if engine.is_blocked() => return Some(Loss::Stuck(READING)),
        };
        heard = Instant::now();
        if let Err(nonsense) = hear(engine, &buffer[..length]) {
            return Some(nonsense);
        }
    }
}

fn take(engine: &mut Engine<Waiting>, command: &Command, waiter: Waiting) {
    tracing::debug!(?command, "asks the mom");
    if let Err((error, waiter)) = engine.submit(command, waiter) {
        drop(waiter.tell(Err(error)));
    }
}

/// Delivers answers to their receivers. A task without a receiver is killed: its starter was told that it does not
/// exist.
fn hear(engine: &mut Engine<Waiting>, bytes: &[u8]) -> std::result::Result<(), Loss> {
    let mut unwanted: Vec<(NodeId, TaskId)> = Vec::new();
    let heard = engine.receive(bytes, |finished| unwanted.extend(tell(finished)));
    for (node, task) in unwanted {
        tracing::debug!(%node, %task, "came too late and is killed");
        take(engine, &Command::Signal { node, task, signal: libc::SIGKILL }, Waiting::NoReceiver);
    }
    heard.map_err(Loss::from)
}

fn tell(finished: Finished<Waiting>) -> Option<(NodeId, TaskId)> {
    let Finished { asked, waiter, outcome, .. } = finished;
    match waiter.tell(outcome) {
        Err(Ok(Answer::Task(task))) => asked.node.map(|node| (node, task)),
        _ => None,
    }
}

/// When writing fails, the mom's last message can still be read.
async fn last_words(
    stream: &mut TcpStream,
    engine: &mut Engine<Waiting>,
    buffer: &mut [u8],
    error: io::Error,
) -> Loss {
    // This loop ends: the other side writes only the data that is still in transit.
    while let Ok(length @ 1..) = stream.read(buffer).await {
        if let Err(nonsense) = hear(engine, &buffer[..length]) {
            return nonsense;
        }
    }
    broken(engine, error)
}

/// A peer that disconnects with unread requests resets the connection.
fn broken(engine: &Engine<Waiting>, error: io::Error) -> Loss {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => engine.hung_up(),
        _ => Loss::Broken(Arc::new(error)),
    }
}
