//! The tool's end of the guard's socket. The guard itself is a separate program, `gantry-guard`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use gantry_shared::wire::build::describe;
use gantry_shared::wire::frame::{self, FrameBuffer, FrameError};
use gantry_shared::wire::message::Blob;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;
use gantry_wlm::{JobRef, ProcessOwner, StepStart};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use zeroize::{Zeroize, Zeroizing};

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::request::show_args;
use gantry_guard::protocol::{
    Drive, FromGuard, HeldRanks, LauncherTable, OwnedJob, ProcessId, StartAgent, StartLauncher, StartStep,
    ToGuard,
};

/// How long a guard may take to say hello, and to start a process.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long a guard may take to inspect a launcher.
const JOB_DEADLINE: Duration = Duration::from_secs(2);

/// An unasked report of the guard.
#[derive(Debug)]
pub(crate) enum GuardEvent {
    /// An agent that it started has ended.
    AgentEnded {
        /// The name of its node.
        node: String,
        /// How.
        status: ExitStatus,
        /// The last lines of its standard error.
        last_words: String,
    },
    /// The command that has started agents elsewhere has ended.
    StepEnded {
        /// Its executable and arguments.
        command: Vec<String>,
        /// How.
        status: ExitStatus,
        /// The last lines of its standard error.
        last_words: String,
    },
    /// The launcher that it started has ended.
    LauncherEnded(ExitStatus),
    /// The ranks of a driven launcher exist and are stopped.
    Held(Box<HeldRanks>),
    /// The ranks did not appear, and the launcher was killed.
    NotHeld(Failure),
    /// The guard is gone.
    Gone,
}

/// A process that the guard starts besides the launcher.
#[derive(Debug, Clone)]
enum Ward {
    /// The agent of the node of this name.
    Agent(String),
    /// A command that starts agents elsewhere: its executable and arguments.
    Step(Vec<String>),
}

type Wards = Arc<Mutex<HashMap<ProcessId, Ward>>>;

/// The caller that waits for an answer about the launcher.
type Asked<T> = Arc<Mutex<Option<oneshot::Sender<T>>>>;

/// Its job and step.
type Job = Asked<Option<(String, String)>>;

/// Its table of ranks.
type Table = Asked<LauncherTable>;

type Waiting = Arc<Mutex<HashMap<ProcessId, oneshot::Sender<std::result::Result<(), Failure>>>>>;

/// A launcher to start, and what it is connected to.
#[derive(Debug)]
pub(crate) struct LauncherStart {
    /// The executable and its arguments.
    pub(crate) argv: Vec<OsString>,
    /// The whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The directory to start in.
    pub(crate) cwd: PathBuf,
    /// Standard input, output and error.
    pub(crate) stdio: [OwnedFd; 3],
    /// Read ends of pipes that the guard drains after the app was detached and this process is gone.
    pub(crate) pipes: Vec<OwnedFd>,
    /// As [`StartLauncher::driven`].
    pub(crate) driven: Option<Drive>,
}

/// A live guard. Dropping it without [`Guard::detach`] makes the guard end what it started.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    /// None after its dismissal.
    to_guard: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
    waiting: Waiting,
    launcher: Arc<OnceLock<ProcessId>>,
    wards: Wards,
    job: Job,
    table: Table,
    next: std::sync::atomic::AtomicU32,
    stage_base: Option<PathBuf>,
}

impl Guard {
    /// Starts the guard `program` and waits for its hello.
    pub(crate) async fn start(
        program: &Path,
        stage_base: Option<PathBuf>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<GuardEvent>)> {
        let Helper { pid, from: from_guard, to: to_guard, incoming } = Helper::start(program, &[]).await?;
        let waiting = Waiting::default();
        let (events, receiver) = mpsc::unbounded_channel();
        let launcher = Arc::new(OnceLock::new());
        let wards = Wards::default();
        let (job, table) = (Job::default(), Table::default());
        let known = (Arc::clone(&launcher), Arc::clone(&wards), Arc::clone(&job), Arc::clone(&table));
        tokio::spawn(listen(from_guard, incoming, Arc::clone(&waiting), known, events));
        let next = std::sync::atomic::AtomicU32::new(1);
        let to_guard = tokio::sync::Mutex::new(Some(to_guard));
        let guard = Self { pid, to_guard, waiting, launcher, wards, job, table, next, stage_base };
        Ok((guard, receiver))
    }

    /// The guard's process, from which launchers descend.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Has the guard remove a socket if this process is killed.
    pub(crate) async fn remember_socket(&self, socket: PathBuf) -> Result<()> {
        self.say(&ToGuard::RemoveSocket(socket.into_os_string())).await
    }

    /// Tells the guard that the launcher's ranks exist. From now on agents notice by themselves when they are no longer
    /// needed, so the guard lets the job of [`Guard::at_loss`] go.
    pub(crate) async fn ranks_there(&self) -> Result<()> {
        self.at_loss(None).await?;
        self.say(&ToGuard::RanksThere).await
    }

    /// Continues the launcher, if it is stopped at its breakpoint.
    pub(crate) async fn let_launcher_go(&self) -> Result<()> {
        self.say(&ToGuard::LetLauncherGo).await
    }

    /// Has the guard cancel a job if this process is gone. None: it cancels none.
    pub(crate) async fn at_loss(&self, job: Option<OwnedJob>) -> Result<()> {
        self.say(&ToGuard::AtLoss(job)).await
    }

    /// The job and step that the launcher has made, if it shows them: at once, or never.
    pub(crate) async fn launcher_job(&self) -> Option<JobRef> {
        let (answer, answered) = oneshot::channel();
        *lock(&self.job) = Some(answer);
        self.say(&ToGuard::TellJob).await.ok()?;
        let (job, step) = tokio::time::timeout(JOB_DEADLINE, answered).await.ok()?.ok()??;
        Some(JobRef(format!("{job}.{step}")))
    }

    /// The proctable that the launcher keeps for debuggers. None: the guard does not answer. `wrapped`: another program
    /// starts the launcher.
    pub(crate) async fn launcher_table(&self, wrapped: bool) -> Option<LauncherTable> {
        let (answer, answered) = oneshot::channel();
        *lock(&self.table) = Some(answer);
        self.say(&ToGuard::ReadTable { wrapped }).await.ok()?;
        tokio::time::timeout(DEADLINE, answered).await.ok()?.ok()
    }

    /// Tells the guard that the agents of a step exist.
    pub(crate) async fn agents_there(&self) -> Result<()> {
        self.say(&ToGuard::AgentsThere).await
    }

    /// Detaches: everything that the guard started outlives this process.
    pub(crate) async fn detach(&self) -> Result<()> {
        self.say(&ToGuard::Detach).await
    }

    /// Runs `act` while the guard cannot be dismissed. Does nothing after its dismissal.
    pub(crate) async fn before_dismissal<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let to_guard = self.to_guard.lock().await;
        to_guard.is_some().then(act)
    }

    /// Closes the connection, even if handles of the app still exist. A guard without children exits; a detached one
    /// stays until its agents have ended. Its end is the last event.
    pub(crate) async fn dismiss(&self) {
        drop(self.to_guard.lock().await.take());
    }

    /// As [`Guard::dismiss`], without waiting. Does nothing while a message is being sent.
    pub(crate) fn abandon(&self) {
        if let Ok(mut to_guard) = self.to_guard.try_lock() {
            drop(to_guard.take());
        }
    }

    /// Starts the app's launcher. Returns when it is executed. Must be called only once.
    ///
    /// # Errors
    /// It cannot be executed; the guard is gone.
    pub(crate) async fn start_launcher(&self, start: LauncherStart) -> Result<()> {
        let LauncherStart { argv, env, cwd, stdio, pipes, driven } = start;
        let (id, answered) = self.expect_start();
        self.launcher.get_or_init(|| id);
        let order = StartLauncher { id, argv, env, cwd: cwd.into_os_string(), driven };
        let descriptors: Vec<OwnedFd> = stdio.into_iter().chain(pipes).collect();
        self.say_with(&ToGuard::StartLauncher(order), &descriptors).await?;
        drop(descriptors);
        let not_started = |failure| Error::Node { hosts: Vec::new(), failure };
        wait_for_start(answered).await.map_err(not_started)
    }

    fn expect_start(&self) -> (ProcessId, Answered) {
        let id = ProcessId(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).insert(id, answer);
        (id, answered)
    }

    async fn say(&self, message: &ToGuard) -> Result<()> {
        self.say_with(message, &[]).await
    }

    /// Sends a message. Descriptors go with its first byte.
    async fn say_with(&self, message: &ToGuard, descriptors: &[OwnedFd]) -> Result<()> {
        let bytes = match message {
            ToGuard::StartLauncher(_) | ToGuard::StartStep(_) => encode_command(message)?,
            _ => encode(message).map_err(|error| Error::Internal(error.to_string()))?,
        };
        let mut to_guard = self.to_guard.lock().await;
        let written = match to_guard.as_mut() {
            Some(to_guard) => write_with(to_guard, &bytes, descriptors).await,
            None => return Err(Error::Gone { what: "the guard".to_owned() }),
        };
        written.map_err(|e| Error::Lost { what: vec!["the guard".to_owned()], reason: e.to_string() })
    }
}

/// The guard's executable in a process of its own, and the socket to it.
#[derive(Debug)]
pub(crate) struct Helper {
    pid: Pid,
    pub(crate) from: OwnedReadHalf,
    pub(crate) to: OwnedWriteHalf,
    /// Bytes of a message that is not complete yet.
    pub(crate) incoming: FrameBuffer,
}

impl Helper {
    /// Starts it and waits for its hello.
    pub(crate) async fn start(program: &Path, args: &'static [&'static str]) -> Result<Self> {
        let (ours, theirs) = make_pair().map_err(|e| Error::io("cannot make a socket pair", e))?;
        let owned = program.to_owned();
        let spawned =
            tokio::task::spawn_blocking(move || gantry_wlm::host::spawn_orphan(&owned, args, theirs.into()));
        let started = spawned.await?;
        started.map_err(|e| {
            let error = Error::io(format!("cannot start {}", program.display()), e);
            let failure =
                error.to_failure().with_hint("see that all of gantry is installed and may be executed");
            Error::Node { hosts: Vec::new(), failure }
        })?;
        ours.set_nonblocking(true).map_err(|e| Error::io("cannot prepare the guard's socket", e))?;
        let stream =
            UnixStream::from_std(ours).map_err(|e| Error::io("cannot prepare the guard's socket", e))?;
        let (mut from, to) = stream.into_split();
        let mut incoming = FrameBuffer::new();
        let hello = tokio::time::timeout(DEADLINE, read_message(&mut from, &mut incoming));
        let pid = match hello.await {
            Ok(Some(FromGuard::Hello { release, pid })) if release == describe() => pid,
            Ok(Some(FromGuard::Hello { release, .. })) => {
                let reason = format!("is version {release}, this library is {}", describe());
                return Err(Error::HelperUnfit { program: program.to_owned(), reason });
            }
            Ok(_) => {
                let reason = "it is not a guard, or ended without a message".to_owned();
                return Err(Error::HelperUnfit { program: program.to_owned(), reason });
            }
            Err(_) => {
                let phase = "starting the guard";
                return Err(Error::TimedOut { phase, after: DEADLINE, missing: Vec::new() });
            }
        };
        Ok(Self { pid, from, to, incoming })
    }
}

/// The frame of a message for a helper. It may contain a secret.
fn encode(message: &impl Serialize) -> std::result::Result<Zeroizing<Vec<u8>>, FrameError> {
    frame::encode(message).map(Zeroizing::new)
}

/// The same for a message with a command and its environment, whose size the user decides.
pub(crate) fn encode_command(message: &impl Serialize) -> Result<Zeroizing<Vec<u8>>> {
    encode(message).map_err(|error| match error {
        FrameError::Oversized { limit, .. } => Error::Invalid {
            message: format!("the arguments and environment variables have more than {limit} bytes in all"),
            hint: Some("put long ones into a file".to_owned()),
        },
        error => Error::Internal(error.to_string()),
    })
}

async fn write_with(to: &mut OwnedWriteHalf, bytes: &[u8], descriptors: &[OwnedFd]) -> std::io::Result<()> {
    let mut sent = 0;
    if !descriptors.is_empty() {
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let socket = to.as_ref();
        sent = socket
            .async_io(Interest::WRITABLE, || {
                let slices = [IoSlice::new(bytes)];
                let flags = MsgFlags::MSG_NOSIGNAL;
                Ok(sendmsg::<()>(socket.as_raw_fd(), &slices, &rights, flags, None)?)
            })
            .await?;
    }
    to.write_all(bytes.get(sent..).unwrap_or_default()).await
}

type Answered = oneshot::Receiver<std::result::Result<(), Failure>>;

async fn wait_for_start(answered: Answered) -> std::result::Result<(), Failure> {
    match tokio::time::timeout(DEADLINE, answered).await {
        Ok(Ok(started)) => started,
        Ok(Err(_)) => Err(Failure::new(Kind::Lost, "the guard has ended")),
        Err(_) => {
            let message = format!("the guard did not answer within {} s", DEADLINE.as_secs());
            Err(Failure::new(Kind::TimedOut, message))
        }
    }
}

#[async_trait]
impl ProcessOwner for Guard {
    async fn start_agent(&self, name: &str, program: &Path, ticket: Vec<u8>) -> gantry_wlm::Result<()> {
        let (id, answered) = self.expect_start();
        lock(&self.wards).insert(id, Ward::Agent(name.to_owned()));
        let order = StartAgent {
            id,
            program: program.into(),
            ticket: Blob(ticket),
            stage_base: self.stage_base.clone().map(Into::into),
        };
        let said = self.say(&ToGuard::StartAgent(order)).await;
        said.map_err(|e| gantry_wlm::Error::Failed(e.to_failure()))?;
        wait_for_start(answered).await.map_err(gantry_wlm::Error::Failed)
    }

    async fn start_step(&self, start: StepStart) -> gantry_wlm::Result<()> {
        let StepStart { argv, env, mut ticket } = start;
        let (id, answered) = self.expect_start();
        lock(&self.wards).insert(id, Ward::Step(show_args(&argv)));
        let mut order =
            ToGuard::StartStep(StartStep { id, argv, env, ticket: Blob(std::mem::take(&mut *ticket)) });
        let said = self.say(&order).await;
        if let ToGuard::StartStep(order) = &mut order {
            order.ticket.0.zeroize();
        }
        said.map_err(|e| gantry_wlm::Error::Failed(e.to_failure()))?;
        wait_for_start(answered).await.map_err(gantry_wlm::Error::Failed)
    }
}

async fn listen(
    mut from_guard: OwnedReadHalf,
    mut incoming: FrameBuffer,
    waiting: Waiting,
    (launcher, wards, job_asked, table_asked): (Arc<OnceLock<ProcessId>>, Wards, Job, Table),
    events: mpsc::UnboundedSender<GuardEvent>,
) {
    while let Some(message) = read_message::<FromGuard>(&mut from_guard, &mut incoming).await {
        match message {
            FromGuard::Hello { .. } => {}
            FromGuard::Started { id, .. } => answer(&waiting, id, Ok(())),
            FromGuard::NotStarted { id, failure } => answer(&waiting, id, Err(failure)),
            FromGuard::Held(ranks) => drop(events.send(GuardEvent::Held(ranks))),
            FromGuard::Job(job) => tell(&job_asked, job),
            FromGuard::Table(table) => tell(&table_asked, table),
            FromGuard::NotHeld(failure) => drop(events.send(GuardEvent::NotHeld(failure))),
            FromGuard::Exited { id, status, .. } if launcher.get() == Some(&id) => {
                drop(events.send(GuardEvent::LauncherEnded(status)));
            }
            FromGuard::Exited { id, status, last_words } => {
                let ward = lock(&wards).get(&id).cloned();
                // The receiver may be gone with the app.
                drop(match ward {
                    Some(Ward::Step(command)) => {
                        events.send(GuardEvent::StepEnded { command, status, last_words })
                    }
                    Some(Ward::Agent(node)) => {
                        let message = format!("the agent ended: {status} {last_words}");
                        answer(&waiting, id, Err(Failure::new(Kind::LauncherFailed, message)));
                        events.send(GuardEvent::AgentEnded { node, status, last_words })
                    }
                    None => Ok(()),
                });
            }
        }
    }
    lock(&waiting).clear();
    drop(events.send(GuardEvent::Gone));
}

fn tell<T>(asked: &Asked<T>, what: T) {
    if let Some(answer) = lock(asked).take() {
        // The caller may have stopped waiting.
        drop(answer.send(what));
    }
}

fn answer(waiting: &Waiting, id: ProcessId, result: std::result::Result<(), Failure>) {
    if let Some(answer) = lock(waiting).remove(&id) {
        // The caller may have stopped waiting.
        drop(answer.send(result));
    }
}

/// A socket pair with descriptors above 2, even if the tool has closed 0, 1 and 2. The tool may still write to those,
/// and its guard needs another standard input.
fn make_pair() -> std::io::Result<(StdUnixStream, StdUnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    // The standard library always duplicates to 3 or above.
    let above = |end: StdUnixStream| if end.as_raw_fd() > 2 { Ok(end) } else { end.try_clone() };
    Ok((above(ours)?, above(theirs)?))
}

/// The next message. None: its sender is gone, or the message is malformed.
pub(crate) async fn read_message<T: DeserializeOwned>(
    from: &mut OwnedReadHalf,
    incoming: &mut FrameBuffer,
) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (_from, to) = ours.into_split();
        Guard {
            pid: Pid::new(1).unwrap(),
            to_guard: tokio::sync::Mutex::new(Some(to)),
            waiting: Waiting::default(),
            launcher: Arc::default(),
            wards: Wards::default(),
            job: Job::default(),
            table: Table::default(),
            next: std::sync::atomic::AtomicU32::new(1),
            stage_base: None,
        }
    }

    #[tokio::test]
    async fn only_a_message_with_a_command_blames_its_size_on_the_user() {
        let (guard, long) = (guard(), "x".repeat(1 << 20));
        let step = StepStart { argv: vec![long.clone().into()], env: Vec::new(), ticket: Vec::new().into() };
        let error = guard.start_step(step).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.hint().as_deref()),
            (Kind::Invalid, Some("put long ones into a file"))
        );
        let error = guard.remember_socket(long.into()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Internal, "{error}");
    }
}
