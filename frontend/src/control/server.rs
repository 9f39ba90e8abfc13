//! The frontend's end of a control socket.
//!
//! It runs inside a foreign program. So it takes bounded memory and a bounded number of descriptors. A client's
//! behaviour affects only its own connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use gantry_link::door::admission::{Limits, Stage};
use gantry_link::door::{Arrival, Gate, Seat, UnixEar};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::AppId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::line::{self, Lines};
use super::protocol::{
    Answer, Ask, DaemonNumber, DaemonOrder, Hex, MAX_REQUEST_BYTES, ReducedAnswer, Request, parse_request,
};
use super::registry::{Registry, Shelf};
use super::target::{Conversation, Feed, Target};
use crate::AppHandle;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::procgroup::GroupFacts;

/// The most clients of an app at a time.
const MAX_CLIENTS: usize = 64;

/// How long a client may leave an answer unread before it is disconnected. The forwarded output of a daemon has no
/// such limit: there the daemon waits, as on a stopped terminal.
const SLOW: Duration = Duration::from_secs(30);

/// How long a client may be connected without a request.
const SILENT: Duration = Duration::from_secs(30);

/// The longest timeout of a request.
const MAX_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// How long a client that is connected when the app ends may take for its first request. It is probably about to ask
/// for the app's end.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// How long unfinished answers have after the app is gone.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a client that waits for the app's end waits for the last output to be written.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// How many progress reports wait for a slow client.
const MAX_NEWS: usize = 8;

/// A control socket that is served until this is dropped or the app is gone. Dropping it removes the socket at once,
/// but does not cut off answers in progress; [`ControlSocket::close`] also waits for these.
#[derive(Debug)]
pub struct ControlSocket {
    app: AppId,
    group: GroupLabel,
    shelf: Shelf,
    registry: Registry,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

/// The facts about an app as a process group, beside those about the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupLabel {
    /// Its number.
    pub(crate) pgid: u32,
    /// The submitter.
    pub(crate) submitter: String,
}

/// Serves the socket of an app in the user's runtime directory. From then on the app is a process group of
/// `submitter`; none: of the user. Must be called within a tokio runtime.
///
/// # Errors
/// The socket cannot be made.
pub fn serve(handle: AppHandle, registry: &Registry, submitter: Option<String>) -> Result<ControlSocket> {
    let app = handle.id();
    let submitter = submitter.unwrap_or_else(|| user_name(registry.uid()));
    let group = GroupLabel { pgid: registry.new_group_number()?, submitter };
    serve_target(app, Arc::new(handle), registry, group, Shelf::Live)
}

/// A user's name, or the number of a user without a name.
pub(crate) fn user_name(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

pub(super) fn serve_target(
    app: AppId,
    target: Arc<dyn Target>,
    registry: &Registry,
    group: GroupLabel,
    shelf: Shelf,
) -> Result<ControlSocket> {
    let registry = registry.clone();
    let failed = |e| Error::io(format!("cannot serve {}", registry.socket_path(app).display()), e);
    let listener = UnixListener::from_std(registry.bind(app, shelf)?).map_err(failed)?;
    let stop = watch::Sender::new(false);
    let target = Labelled { target, group: group.clone() };
    let server = Server { app, shelf, registry: registry.clone(), target, stop: stop.clone() };
    let task = Some(tokio::spawn(server.run(listener)));
    Ok(ControlSocket { app, group, shelf, registry, stop, task })
}

/// An app as a process group.
#[derive(Clone)]
struct Labelled {
    target: Arc<dyn Target>,
    group: GroupLabel,
}

impl Labelled {
    fn facts(&self) -> GroupFacts {
        let GroupLabel { pgid, submitter } = &self.group;
        GroupFacts::of_app(&self.target.info(), *pgid, submitter, self.target.sessions())
    }
}

impl ControlSocket {
    /// The app's number as a process group.
    pub(crate) fn pgid(&self) -> u32 {
        self.group.pgid
    }

    /// Waits until the socket is not served any more.
    pub(crate) async fn ended(&mut self) {
        if let Some(task) = self.task.as_mut() {
            // The task ends by itself. It may be cancelled with the runtime, which is no error here.
            drop(task.await);
            self.task = None;
        }
    }

    /// Stops serving, and waits for a short time until answers in progress are sent.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take() {
            // The task ends by itself. It may be cancelled with the runtime, which is no error here.
            drop(task.await);
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.registry.remove(self.app, self.shelf);
    }
}

/// Whether the kernel has pending input, of which the runtime may not know yet.
fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

struct Server {
    app: AppId,
    shelf: Shelf,
    registry: Registry,
    target: Labelled,
    stop: watch::Sender<bool>,
}

impl Server {
    async fn run(self, listener: UnixListener) {
        let mut life = self.target.target.events();
        let mut stopped = self.stop.subscribe();
        let mut clients = JoinSet::new();
        // One place more than clients, to tell a client that there are too many.
        let limits = Limits {
            silence: SILENT,
            handshake: SILENT,
            ..Limits::with_places(MAX_CLIENTS.saturating_add(1))
        };
        let mut gate = Gate::new(UnixEar::new(listener, self.registry.uid()), limits);
        loop {
            tokio::select! {
                arrival = gate.next() => self.welcome(arrival, gate.busy(), &mut clients),
                event = life.next() => if event.is_none() { break },
                () = ordered(&mut stopped) => break,
                Some(_) = clients.join_next() => {}
            }
        }
        self.registry.remove(self.app, self.shelf);
        // Serve clients that have connected already, even those that the gate has not seen yet.
        for _ in 0..MAX_CLIENTS {
            if !is_readable(gate.as_fd()) {
                break;
            }
            let Ok(arrival) = timeout(FIRST_WORD, gate.next()).await else { break };
            self.welcome(arrival, gate.busy(), &mut clients);
        }
        drop(gate);
        self.stop.send_replace(true);
        let all_left = async { while clients.join_next().await.is_some() {} };
        if timeout(LAST_ANSWERS, all_left).await.is_err() {
            tracing::debug!(app = %self.app, "clients that take no answer are cut off");
        }
    }

    /// Serves a client, beside `busy` clients that have sent a request. When all places are taken, a client without a
    /// request makes way.
    fn welcome(&self, arrival: Arrival<UnixStream>, busy: usize, clients: &mut JoinSet<()>) {
        let Arrival { stream, seat, eviction } = arrival;
        if busy >= MAX_CLIENTS {
            let message = format!("app {} has {MAX_CLIENTS} clients already", self.app);
            let refusal =
                Answer::<()>::Error(Failure::new(Kind::NoAccess, message).with_hint("close some of them"));
            // The empty buffer of a new socket takes this short line at once or never.
            let mut line = serde_json::to_vec(&refusal).unwrap_or_default();
            line.push(b'\n');
            drop(stream.try_write(&line));
            return;
        }
        let connection = Connection::new(stream, self.target.clone());
        let stopped = self.stop.subscribe();
        clients.spawn(async move {
            if let Some(Err(error)) = eviction.or(connection.talk(&seat, stopped)).await {
                tracing::debug!(%error, "a client was disconnected: it did not read its answers");
            }
        });
    }
}

/// Waits until the order to stop comes, or its sender is gone.
async fn ordered(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

struct Connection {
    lines: Lines<OwnedReadHalf>,
    to: OwnedWriteHalf,
    target: Labelled,
}

impl Connection {
    fn new(stream: UnixStream, target: Labelled) -> Self {
        let (from, to) = stream.into_split();
        Self { lines: Lines::new(from, MAX_REQUEST_BYTES), to, target }
    }

    /// Answers requests until the client leaves, or the app is gone and no request is pending.
    async fn talk(mut self, seat: &Seat, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
        let mut silent = SILENT;
        let mut asked = false;
        loop {
            let line = tokio::select! {
                biased;
                line = timeout(silent, self.lines.next()) => line,
                () = ordered(&mut stopped) => match asked {
                    true => return Ok(()),
                    false => timeout(FIRST_WORD, self.lines.next()).await,
                },
            };
            asked = true;
            let line = match line {
                Err(_silent) => return Ok(()),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(line))) => line,
                Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    return self.refuse(Failure::new(Kind::Protocol, error.to_string())).await;
                }
                Ok(Err(error)) => return Err(error),
            };
            match parse_request(&line) {
                Err(failure) => self.refuse(failure).await?,
                Ok(_) if !seat.reach(Stage::Proven) => return Ok(()),
                Ok(request) => {
                    silent = MAX_PATIENCE;
                    match self.carry_out(request).await? {
                        None => {}
                        Some(Last::Follow(following)) => return self.follow(following).await,
                        Some(Last::Wait(feed)) => return self.wait(feed).await,
                        Some(Last::Converse(conversation)) => return self.converse(conversation).await,
                    }
                }
            }
        }
    }

    /// Answers a request. Returns the connection's purpose from then on.
    async fn carry_out(&mut self, request: Request) -> io::Result<Option<Last>> {
        let patience = request.patience().min(MAX_PATIENCE);
        let target = Arc::clone(&self.target.target);
        match request.ask {
            Ask::Info => self.answer(Ok(target.info())).await?,
            Ask::Group => self.answer(Ok(self.target.facts())).await?,
            Ask::Forget => self.answer(target.forget()).await?,
            Ask::Release => self.answer(target.release(patience).await).await?,
            Ask::Signal { signal, ranks } => {
                self.answer(target.signal(signal, ranks.as_ref(), patience).await).await?;
            }
            Ask::Kill => self.answer(target.kill(patience).await).await?,
            Ask::Wait => {
                let feed = target.events();
                self.answer(Ok(())).await?;
                return Ok(Some(Last::Wait(feed)));
            }
            Ask::Events => {
                let feed = target.events();
                self.answer(Ok(())).await?;
                return Ok(Some(Last::Follow(Following { feed, slow: Some(SLOW) })));
            }
            Ask::Daemon(order) => {
                let slow = if order.forward { None } else { Some(SLOW) };
                match self.start_daemon(order, patience).await? {
                    Ok((number, feed)) => {
                        self.answer(Ok(number)).await?;
                        return Ok(Some(Last::Follow(Following { feed, slow })));
                    }
                    Err(error) => self.answer::<()>(Err(error)).await?,
                }
            }
            Ask::Channel(order) => {
                let opening = target.open_channel(order, patience);
                let opened = tokio::select! {
                    opened = opening => opened,
                    left = self.lines.ended() => {
                        left?;
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                };
                match opened {
                    Ok((number, conversation)) => {
                        self.answer(Ok(number)).await?;
                        return Ok(Some(Last::Converse(conversation)));
                    }
                    Err(error) => self.answer::<()>(Err(error)).await?,
                }
            }
            Ask::Broadcast { .. } | Ask::Reduce { .. } => {
                let why = "no channel is open on this connection";
                self.refuse(Failure::new(Kind::Invalid, why).with_hint("ask for 'channel' first")).await?;
            }
        }
        Ok(None)
    }

    /// Carries messages to and from a daemon until the client leaves.
    async fn converse(mut self, conversation: Box<dyn Conversation>) -> io::Result<()> {
        while let Some(line) = self.lines.next().await? {
            let request = match parse_request(&line) {
                Ok(request) => request,
                Err(failure) => {
                    self.refuse(failure).await?;
                    continue;
                }
            };
            let patience = request.patience().min(MAX_PATIENCE);
            match request.ask {
                Ask::Broadcast { tag, bytes: Hex(bytes) } => {
                    self.answer(conversation.broadcast(tag, &bytes, patience).await).await?;
                }
                Ask::Reduce { tag, filter } => {
                    let reducing = conversation.reduce(tag, filter, patience);
                    let reduced = tokio::select! {
                        reduced = reducing => reduced,
                        // A client that gave the answer up may have asked again: that request waits.
                        left = self.lines.ended() => return left,
                    };
                    self.answer(reduced.map(ReducedAnswer::from)).await?;
                }
                _ => {
                    let why = "this connection carries messages to a daemon, and nothing else";
                    self.refuse(Failure::new(Kind::Protocol, why)).await?;
                }
            }
        }
        Ok(())
    }

    /// Starts a daemon, and reports the progress of its files meanwhile. If the client leaves before, a daemon with
    /// forwarded output is not started.
    async fn start_daemon(
        &mut self,
        order: DaemonOrder,
        patience: Duration,
    ) -> io::Result<Result<(DaemonNumber, Box<dyn Feed>)>> {
        let target = Arc::clone(&self.target.target);
        let Self { lines, to, .. } = self;
        let stays = order.forward;
        let (news, mut told) = mpsc::channel(MAX_NEWS);
        let starting = target.start_daemon(order, news, patience);
        let starting = async {
            let telling = async {
                while let Some(event) = told.recv().await {
                    send(to, &event, Some(SLOW)).await?;
                }
                Ok(())
            };
            tokio::try_join!(async { Ok(starting.await) }, telling).map(|(started, ())| started)
        };
        tokio::select! {
            started = starting => started,
            left = lines.ended(), if stays => {
                left?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    /// Sends events until there are no more, or the client leaves.
    async fn follow(mut self, mut following: Following) -> io::Result<()> {
        while let Some(event) = self.next_event(&mut following.feed).await? {
            self.send(&event, following.slow).await?;
        }
        Ok(())
    }

    /// Sends the event that ends the app, after those of lost output.
    async fn wait(mut self, mut feed: Box<dyn Feed>) -> io::Result<()> {
        while let Some(event) = self.next_event(&mut feed).await? {
            match event {
                Event::OutputLost { .. } => self.send(&event, Some(SLOW)).await?,
                Event::Exited(_) => {
                    let target = Arc::clone(&self.target.target);
                    // The last output may be on its way, and a process that outlives its rank may write more.
                    timeout(LAST_WRITES, target.output_written()).await.ok();
                    while let Ok(Some(later)) = timeout(Duration::ZERO, feed.next()).await {
                        if matches!(later, Event::OutputLost { .. }) {
                            self.send(&later, Some(SLOW)).await?;
                        }
                    }
                    return self.send(&event, Some(SLOW)).await;
                }
                Event::Detached { .. } => return self.send(&event, Some(SLOW)).await,
                _ => {}
            }
        }
        Ok(())
    }

    /// The next event. None: there are no more, or the client has left or was sent away.
    async fn next_event(&mut self, feed: &mut Box<dyn Feed>) -> io::Result<Option<Event>> {
        tokio::select! {
            event = feed.next() => Ok(event),
            line = self.lines.next() => {
                if line?.is_some() {
                    let why = "nothing more can be asked on a connection that follows events";
                    self.refuse(Failure::new(Kind::Protocol, why)).await?;
                }
                Ok(None)
            }
        }
    }

    async fn answer<T: Serialize>(&mut self, result: Result<T>) -> io::Result<()> {
        match result {
            Ok(value) => self.send(&Answer::Ok(value), Some(SLOW)).await,
            Err(error) => self.refuse(error.to_failure()).await,
        }
    }

    async fn refuse(&mut self, failure: Failure) -> io::Result<()> {
        self.send(&Answer::<()>::Error(failure), Some(SLOW)).await
    }

    async fn send(&mut self, value: &impl Serialize, slow: Option<Duration>) -> io::Result<()> {
        send(&mut self.to, value, slow).await
    }
}

async fn send(to: &mut OwnedWriteHalf, value: &impl Serialize, slow: Option<Duration>) -> io::Result<()> {
    let writing = line::write(to, value);
    match slow {
        None => writing.await,
        Some(slow) => timeout(slow, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}

/// The purpose of a connection after its last request.
enum Last {
    Follow(Following),
    Wait(Box<dyn Feed>),
    Converse(Box<dyn Conversation>),
}

struct Following {
    feed: Box<dyn Feed>,
    slow: Option<Duration>,
}

#[cfg(test)]
mod tests;
