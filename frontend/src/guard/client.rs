//! The tool's end of the guard's socket.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared::error::{Failure, Kind};
use gantry_shared::status::ExitStatus;
use gantry_shared::wire::frame::{self, FrameBuffer};
use gantry_shared::wire::message::Blob;
use gantry_wlm::ProcessOwner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::protocol::{FromGuard, ProcessId, StartAgent, ToGuard};
use crate::error::{Error, Result};

/// How long a guard may take to say hello, and to start a process.
const DEADLINE: Duration = Duration::from_secs(10);

/// What the guard reports unasked.
#[derive(Debug)]
pub(crate) enum GuardEvent {
    /// An agent that it started has ended.
    AgentEnded {
        /// How.
        status: ExitStatus,
        /// The last that it wrote on standard error.
        last_words: String,
    },
    /// The guard is gone.
    Gone,
}

type Waiting = Arc<Mutex<HashMap<ProcessId, oneshot::Sender<std::result::Result<(), Failure>>>>>;

/// A live guard. Dropping it without [`Guard::detach`] makes the guard end what it started.
#[derive(Debug)]
pub(crate) struct Guard {
    /// None once it was dismissed.
    to_guard: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
    waiting: Waiting,
    next: std::sync::atomic::AtomicU32,
    stage_base: Option<PathBuf>,
}

impl Guard {
    /// Starts the guard `program` and waits for its hello.
    pub(crate) async fn start(
        program: &Path,
        stage_base: Option<PathBuf>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<GuardEvent>)> {
        let (ours, theirs) = make_pair().map_err(|e| Error::io("cannot make a socket pair", e))?;
        let owned = program.to_owned();
        let spawned = tokio::task::spawn_blocking(move || {
            gantry_wlm::host::spawn_orphan::<&str>(&owned, &[], theirs.into())
        });
        let started = spawned.await.map_err(|e| Error::Protocol(e.to_string()))?;
        started.map_err(|e| {
            let error = Error::io(format!("cannot start {}", program.display()), e);
            let failure =
                error.to_failure().with_hint("see that all of gantry is installed and may be executed");
            Error::Node { hosts: Vec::new(), failure }
        })?;
        ours.set_nonblocking(true).map_err(|e| Error::io("cannot prepare the guard's socket", e))?;
        let stream =
            UnixStream::from_std(ours).map_err(|e| Error::io("cannot prepare the guard's socket", e))?;
        let (mut from_guard, to_guard) = stream.into_split();
        let mut incoming = FrameBuffer::new();
        let hello = tokio::time::timeout(DEADLINE, read_message(&mut from_guard, &mut incoming));
        match hello.await {
            Ok(Some(FromGuard::Hello { release, .. })) if release == env!("CARGO_PKG_VERSION") => {}
            Ok(Some(FromGuard::Hello { release, .. })) => {
                let reason = format!("is version {release}, this library is {}", env!("CARGO_PKG_VERSION"));
                return Err(Error::HelperUnfit { program: program.to_owned(), reason });
            }
            Ok(_) => {
                let reason = "it is no guard, or ended without a word".to_owned();
                return Err(Error::HelperUnfit { program: program.to_owned(), reason });
            }
            Err(_) => {
                let phase = "starting the guard";
                return Err(Error::TimedOut { phase, after: DEADLINE, missing: Vec::new() });
            }
        }
        let waiting = Waiting::default();
        let (events, receiver) = mpsc::unbounded_channel();
        tokio::spawn(listen(from_guard, incoming, Arc::clone(&waiting), events));
        let next = std::sync::atomic::AtomicU32::new(1);
        let guard = Self { to_guard: tokio::sync::Mutex::new(Some(to_guard)), waiting, next, stage_base };
        Ok((guard, receiver))
    }

    /// Has the guard remove a socket should this process be killed.
    pub(crate) async fn remember_socket(&self, socket: PathBuf) -> Result<()> {
        self.say(&ToGuard::RemoveSocket(socket.into_os_string())).await
    }

    /// Lets everything that was started outlive this process.
    pub(crate) async fn detach(&self) -> Result<()> {
        self.say(&ToGuard::Detach).await
    }

    /// Does something before the guard is dismissed, which it is not meanwhile; nothing when it was.
    pub(crate) async fn before_dismissal<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let to_guard = self.to_guard.lock().await;
        to_guard.is_some().then(act)
    }

    /// Ends the connection, whoever still has a handle of the app: a guard with nothing to guard leaves, one that was told to detach stays
    /// until its agents have ended. Its end is the last event.
    pub(crate) async fn dismiss(&self) {
        drop(self.to_guard.lock().await.take());
    }

    /// As [`Guard::dismiss`], where nobody can wait: does nothing while something is being said.
    pub(crate) fn abandon(&self) {
        if let Ok(mut to_guard) = self.to_guard.try_lock() {
            drop(to_guard.take());
        }
    }

    async fn say(&self, message: &ToGuard) -> Result<()> {
        let bytes = frame::encode(message).map_err(|e| Error::Protocol(e.to_string()))?;
        let mut to_guard = self.to_guard.lock().await;
        let written = match to_guard.as_mut() {
            Some(to_guard) => to_guard.write_all(&bytes).await,
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        written.map_err(|e| Error::Lost { what: vec!["the guard".to_owned()], reason: e.to_string() })
    }
}

#[async_trait]
impl ProcessOwner for Guard {
    async fn start_agent(&self, program: &Path, ticket: Vec<u8>) -> gantry_wlm::Result<()> {
        let not_started = |kind, message: String| gantry_wlm::Error::NotStarted(Failure::new(kind, message));
        let id = ProcessId(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(id, answer);
        let order = StartAgent {
            id,
            program: program.into(),
            ticket: Blob(ticket),
            stage_base: self.stage_base.clone().map(Into::into),
        };
        self.say(&ToGuard::StartAgent(order)).await.map_err(|e| not_started(e.kind(), e.to_string()))?;
        match tokio::time::timeout(DEADLINE, answered).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(failure))) => Err(gantry_wlm::Error::NotStarted(failure)),
            Ok(Err(_)) => Err(not_started(Kind::Lost, "the guard is gone".to_owned())),
            Err(_) => Err(not_started(
                Kind::TimedOut,
                format!("the guard did not answer within {} s", DEADLINE.as_secs()),
            )),
        }
    }
}

async fn listen(
    mut from_guard: OwnedReadHalf,
    mut incoming: FrameBuffer,
    waiting: Waiting,
    events: mpsc::UnboundedSender<GuardEvent>,
) {
    while let Some(message) = read_message(&mut from_guard, &mut incoming).await {
        match message {
            FromGuard::Hello { .. } => {}
            FromGuard::Started { id, .. } => answer(&waiting, id, Ok(())),
            FromGuard::NotStarted { id, failure } => answer(&waiting, id, Err(failure)),
            FromGuard::Exited { id, status, last_words } => {
                let failure =
                    Failure::new(Kind::LauncherFailed, format!("the agent ended: {status} {last_words}"));
                answer(&waiting, id, Err(failure));
                // Nobody listens any more when the app is gone.
                drop(events.send(GuardEvent::AgentEnded { status, last_words }));
            }
        }
    }
    lock(&waiting).clear();
    drop(events.send(GuardEvent::Gone));
}

fn answer(waiting: &Waiting, id: ProcessId, result: std::result::Result<(), Failure>) {
    if let Some(answer) = lock(waiting).remove(&id) {
        // Whoever asked may have stopped waiting.
        drop(answer.send(result));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two ends that are none of 0, 1 and 2, even where the tool has closed those: it may write to them all the same, and its guard's standard
/// input must come from elsewhere.
fn make_pair() -> std::io::Result<(StdUnixStream, StdUnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    // The standard library duplicates to 3 or above, always.
    let above = |end: StdUnixStream| if end.as_raw_fd() > 2 { Ok(end) } else { end.try_clone() };
    Ok((above(ours)?, above(theirs)?))
}

/// The next message; none when the guard is gone or makes no sense.
async fn read_message(from: &mut OwnedReadHalf, incoming: &mut FrameBuffer) -> Option<FromGuard> {
    loop {
        if let Some(message) = incoming.next_message().ok()? {
            return Some(message);
        }
        let mut bytes = [0; 4096];
        match from.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => incoming.push(&bytes[..n]).ok()?,
        }
    }
}
