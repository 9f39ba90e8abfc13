//! The session for blocking programs. It has no thread and no runtime, and it reads only on request. The C functions
//! use it, so it behaves as tm_poll(3): the caller starts requests, and takes their results one by one in the order in
//! which they arrive.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;

use super::engine::{Engine, Finished, Waiter};
use super::environment::Environment;
use super::error::{Asked, Loss, Result, TmError};
use super::id::{EventId, NodeId, TaskId};
use super::nodes::Nodes;
use super::packet::Framing;
use super::reply::{Answer, Roots};
use super::request::{Caller, Command, Cookie, Verb};

/// How long a mom may take to read sent data while more waits.
const READING: Duration = Duration::from_secs(60);

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

/// No particular waiter: the next poll gets the result.
#[derive(Debug)]
struct Anybody;

impl Waiter for Anybody {}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub event: EventId,
    /// The request.
    pub asked: Asked,
    /// How it ended.
    pub outcome: Result<Answer>,
}

/// The result of a poll for ended requests.
#[derive(Debug)]
pub enum Polled {
    /// A request has ended.
    Ended(Ended),
    /// None so far: no request has ended, or a signal interrupted the wait.
    NotYet,
    /// None, and none is pending.
    Idle,
}

/// A connection to the job's mom.
#[derive(Debug)]
pub struct Session {
    environment: Environment,
    engine: Engine<Anybody>,
    stream: Option<TcpStream>,
    ended: VecDeque<Ended>,
    lost: Option<Loss>,
    roots: Roots,
    nodes: Nodes,
    tasks: HashMap<TaskId, NodeId>,
}

impl Session {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// [`TmError::Connect`] without a mom; [`TmError::Lost`] if it does not trust the caller; [`TmError::Refused`] if
    /// the calling task is unknown; [`TmError::TimedOut`].
    pub fn start(environment: Environment, framing: Framing, timeout: Duration) -> Result<Self> {
        let mut session = Self::new(environment, framing);
        if let Answer::Init(roots) = session.ask(&Command::Init, timeout)? {
            session.nodes = Nodes::new(&roots, &session.environment);
            let parent = TaskId(roots.parent_task);
            if parent != TaskId::NONE && roots.parent_job == session.environment.caller.job {
                session.tasks.insert(parent, NodeId(roots.parent_node));
            }
            session.roots = roots;
        }
        let environment = &session.environment;
        let own = environment.own_host.as_deref().map_or_else(Vec::new, |name| session.nodes.on_host(name));
        if session.roots.is_attached() {
            session.engine.restrict(own);
        }
        // If hosts have several nodes, the host's number differs from that of its node. Then use the node file.
        let hosts = session.nodes.one_per_host().unwrap_or_default();
        let index = usize::try_from(environment.host_index).unwrap_or(usize::MAX);
        let number = i32::try_from(environment.host_index).unwrap_or(NodeId::NONE.0);
        let node = hosts.get(index).map_or(NodeId(number), |(node, _)| *node);
        session.tasks.insert(session.environment.caller.task, node);
        Ok(session)
    }

    fn new(environment: Environment, framing: Framing) -> Self {
        Self {
            engine: Engine::new(environment.caller.clone(), framing),
            stream: None,
            ended: VecDeque::new(),
            lost: None,
            roots: Roots::default(),
            nodes: Nodes::new(&Roots::default(), &environment),
            tasks: HashMap::new(),
            environment,
        }
    }

    /// The calling task.
    #[must_use]
    pub fn own_task(&self) -> TaskId {
        self.environment.caller.task
    }

    /// The job of the calling task.
    #[must_use]
    pub fn own_job(&self) -> &[u8] {
        &self.environment.caller.job
    }

    /// The caller's place in its job.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The nodes of the job.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// A node of a task's host, for tasks that this session knows.
    #[must_use]
    pub fn node_of(&self, task: TaskId) -> Option<NodeId> {
        self.tasks.get(&task).copied()
    }

    /// Sends a request; its result comes with [`poll`](Self::poll). May wait for the mom to read earlier data.
    /// Reconnects if the connection was lost.
    ///
    /// # Errors
    /// Sending failed.
    pub fn begin(&mut self, command: &Command) -> Result<EventId> {
        let asked = Asked { verb: command.verb(), node: command.node() };
        if self.stream.is_none() {
            self.connect()?;
        }
        let event = self.engine.submit(command, Anybody).map_err(|(error, _)| error)?;
        let until = Instant::now() + READING;
        while self.write()? && self.engine.is_blocked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.lose(Loss::Stuck(READING));
            } else {
                self.read(Wait::For(left));
            }
        }
        match &self.lost {
            Some(loss) if self.stream.is_none() => Err(TmError::Lost { asked, loss: loss.clone() }),
            _ => Ok(event),
        }
    }

    /// The next request that has ended. With `wait`, blocks without a timeout until one has ended.
    ///
    /// # Errors
    /// [`TmError::Lost`]: the connection has ended, and with it all pending requests.
    pub fn poll(&mut self, wait: bool) -> Result<Polled> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Ok(Polled::Ended(ended));
            }
            if let Some(loss) = self.lost.take() {
                return Err(TmError::Lost { asked: Asked { verb: Verb::Init, node: None }, loss });
            }
            if self.engine.outstanding() == 0 {
                return Ok(Polled::Idle);
            }
            if !self.read(if wait { Wait::Always } else { Wait::Never })
                && self.ended.is_empty()
                && self.lost.is_none()
            {
                return Ok(Polled::NotYet);
            }
        }
    }

    /// A descriptor that becomes readable when a request may have ended. Waiting on it does not need this session.
    /// None: no request is pending.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn readable(&self) -> io::Result<Option<OwnedFd>> {
        let is_waiting = self.ended.is_empty() && self.lost.is_none() && self.engine.outstanding() > 0;
        let stream = self.stream.as_ref().filter(|_| is_waiting);
        stream.map(|stream| stream.as_fd().try_clone_to_owned()).transpose()
    }

    /// Sends a request and waits for its end. Keeps the results of others that end meanwhile.
    fn ask(&mut self, command: &Command, timeout: Duration) -> Result<Answer> {
        let asked = Asked { verb: command.verb(), node: command.node() };
        let until = Instant::now() + bounded(timeout);
        let event = self.begin(command)?;
        loop {
            if let Some(index) = self.ended.iter().position(|ended| ended.event == event)
                && let Some(ended) = self.ended.remove(index)
            {
                return ended.outcome;
            }
            if let Some(loss) = self.lost.take() {
                return Err(TmError::Lost { asked, loss });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TmError::TimedOut { asked, timeout });
            }
            self.read(Wait::For(left));
        }
    }

    fn connect(&mut self) -> Result<()> {
        let address = self.environment.address();
        let failed = |source| TmError::Connect { address, source: Arc::new(source) };
        let stream = TcpStream::connect(address).map_err(failed)?;
        // The last part of a packet must be sent without delay.
        stream.set_nodelay(true).map_err(failed)?;
        self.engine.renew();
        self.lost = None;
        self.stream = Some(stream);
        Ok(())
    }

    /// Writes as much as possible. False: the connection has ended.
    fn write(&mut self) -> Result<bool> {
        while let Some(packet) = self.engine.next_packet()? {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            let written = stream.set_nonblocking(false).and_then(|()| stream.write_all(&packet));
            if let Err(error) = written {
                self.last_words(error);
                return Ok(false);
            }
        }
        Ok(self.stream.is_some())
    }

    /// Reads once. Returns whether anything arrived, including the end.
    fn read(&mut self, wait: Wait) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut buffer = [0; READ_BYTES];
        let ready = match wait {
            Wait::Never => stream.set_nonblocking(true),
            Wait::Always => stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(None)),
            Wait::For(time) => {
                stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(time)))
            }
        };
        match ready.and_then(|()| stream.read(&mut buffer)) {
            Ok(0) => self.lose(self.engine.hung_up()),
            Ok(length) => self.hear(&buffer[..length]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return false;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.lose(self.engine.hung_up()),
            Err(error) => self.lose(Loss::Broken(Arc::new(error))),
        }
        true
    }

    /// When writing fails, the mom's last message can still be read.
    fn last_words(&mut self, error: io::Error) {
        while self.stream.is_some() && self.read(Wait::For(READING)) {}
        if self.stream.is_some() {
            self.lose(Loss::Broken(Arc::new(error)));
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let (ended, tasks) = (&mut self.ended, &mut self.tasks);
        let heard = self.engine.receive(bytes, |finished| {
            let Finished { event, asked, outcome, .. } = finished;
            if let (Some(node), Ok(answer)) = (asked.node, &outcome) {
                remember(tasks, node, answer);
            }
            ended.push_back(Ended { event, asked, outcome });
        });
        if let Err(nonsense) = heard {
            self.lose(nonsense.into());
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.stream = None;
        self.engine.lose(&loss, drop);
        self.lost = Some(loss);
    }
}

#[derive(Debug, Clone, Copy)]
enum Wait {
    Never,
    Always,
    For(Duration),
}

fn remember(tasks: &mut HashMap<TaskId, NodeId>, node: NodeId, answer: &Answer) {
    match answer {
        Answer::Task(task) => drop(tasks.entry(*task).or_insert(node)),
        Answer::Tasks(several) => {
            for task in several {
                tasks.entry(*task).or_insert(node);
            }
        }
        _ => {}
    }
}

/// Makes the session of any process a task of a job. Without a job's id, this means the only job of this user on this
/// host. The task cannot send requests to other hosts' moms.
///
/// # Errors
/// [`TmError::Refused`]: the process is a task already, belongs to another user, or does not exist; the job does not
/// exist or is another user's; [`TmError::Connect`]: there is no mom on this host; [`TmError::TimedOut`].
pub fn attach(job: &[u8], uid: u32, pid: i32, port: u16, timeout: Duration) -> Result<TaskId> {
    let caller = Caller { job: job.to_vec(), cookie: Cookie::none(), task: TaskId::NONE };
    let environment = Environment { caller, host_index: 0, port, hosts: None, own_host: None };
    let mut session = Session::new(environment, Framing::Packets);
    // The protocol has it as a signed number of the same size.
    match session.ask(&Command::Attach { uid: uid.cast_signed(), pid }, timeout)? {
        Answer::Task(task) => Ok(task),
        _ => Ok(TaskId::NONE),
    }
}
