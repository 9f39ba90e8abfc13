//! The client for concurrent programs. One tokio task owns the connection. Requests go to it, and each answer goes to
//! its requester, in any order.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::deadline::bounded;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant, timeout_at};

use super::connection::{self, Order, Waiting};
use super::engine::Engine;
use super::environment::{Environment, is_of_one_task};
use super::error::{Asked, Result, TmError};
use super::id::{NodeId, TaskId};
use super::nodes::Nodes;
use super::packet::Framing;
use super::reply::{Answer, Roots};
use super::request::{Command, Verb};

/// A task and a node of its host, which together name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    /// Its number, unique in the job.
    pub id: TaskId,
    /// A node of its host.
    pub node: NodeId,
}

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spawn {
    argv: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
}

impl Spawn {
    /// A program and its arguments. The node looks the program up in the task's own `PATH`.
    #[must_use]
    pub fn new<A: AsRef<OsStr>>(argv: impl IntoIterator<Item = A>) -> Self {
        let argv = argv.into_iter().map(|text| text.as_ref().as_bytes().to_vec()).collect();
        Self { argv, variables: Vec::new() }
    }

    /// Converts an argument list and an environment from C. Entries other than `NAME=value` are left out, as moms would
    /// drop them.
    #[must_use]
    pub fn from_texts(argv: Vec<Vec<u8>>, mut environment: Vec<Vec<u8>>) -> Self {
        environment.retain(|text| text.iter().position(|byte| *byte == b'=').is_some_and(|at| at > 0));
        Self { argv, variables: environment }
    }

    /// Sets a variable, in place of the mom's value. `TMPDIR` and `PBS_JOBDIR` cannot be set.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push([name.as_ref().as_bytes(), b"=", value.as_ref().as_bytes()].concat());
        self
    }

    /// Passes on variables of the caller, except those that PBS has set for it. With those the new task would be taken
    /// for its parent.
    #[must_use]
    pub fn inherit<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        mut self,
        all: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        for (name, value) in all {
            if !is_of_one_task(name.as_ref().as_bytes()) {
                self = self.variable(name, value);
            }
        }
        self
    }

    /// As a command for a node.
    #[must_use]
    pub fn on(self, node: NodeId) -> Command {
        Command::Spawn { node, argv: self.argv, variables: self.variables }
    }
}

/// A connection to the mom of this host.
///
/// All waits are cancel-safe. If a task starts although its requester is gone (its timeout has expired, its future
/// was dropped), it is killed. Dropping the client closes the connection; tasks continue, and end with their job at
/// the latest.
#[derive(Debug)]
pub struct Client {
    orders: mpsc::UnboundedSender<Order>,
    roots: Roots,
    nodes: Nodes,
}

impl Client {
    /// Connects and authenticates. Needs a tokio runtime with time and network.
    ///
    /// # Errors
    /// [`TmError::Connect`] without a mom; [`TmError::Lost`] if it does not trust the caller; [`TmError::Refused`] if
    /// the calling task is unknown; [`TmError::TimedOut`].
    pub async fn connect(environment: &Environment, framing: Framing, timeout: Duration) -> Result<Self> {
        let until = Instant::now() + bounded(timeout);
        let asked = Asked { verb: Verb::Init, node: None };
        let late = || TmError::TimedOut { asked, timeout };
        let stream = timeout_at(until, open(environment)).await.map_err(|_| late())??;
        let engine = Engine::new(environment.caller.clone(), framing);
        let (orders, received) = mpsc::unbounded_channel();
        let (restrict, restricted) = oneshot::channel();
        tokio::spawn(connection::drive(stream, engine, received, restricted));
        let roots = Roots::default();
        let mut client = Self { orders, nodes: Nodes::new(&roots, environment), roots };
        client.roots = match timeout_at(until, client.ask(Command::Init)).await.map_err(|_| late())?? {
            Answer::Init(roots) => roots,
            _ => Roots::default(),
        };
        client.nodes = Nodes::new(&client.roots, environment);
        if client.roots.is_attached() {
            let own = environment.own_host.as_deref();
            // The connection is there: it has just answered.
            drop(restrict.send(own.map_or_else(Vec::new, |name| client.nodes.on_host(name))));
        }
        Ok(client)
    }

    /// The caller's place in its job, from the mom's first answer.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The nodes of the job. Sends no request.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Starts a task: a new session, in the home of the job's owner, with its output in the job's. A successful start
    /// does not mean that the program was executed. That shows in the task's end (254) or in the program's own output.
    ///
    /// # Errors
    /// [`TmError::TooLarge`], [`TmError::Invalid`], [`TmError::AttachedCaller`] before anything is sent, and as for
    /// every request. A task that starts after the deadline is killed.
    pub async fn spawn(&self, node: NodeId, program: Spawn, timeout: Duration) -> Result<Task> {
        match self.ask_by(program.on(node), timeout).await? {
            Answer::Task(id) => Ok(Task { id, node }),
            _ => Ok(Task { id: TaskId::NONE, node }),
        }
    }

    /// Sends a signal to all processes of a task's session. A signal to an ended task is not an error.
    ///
    /// # Errors
    /// As for every request.
    pub async fn kill(&self, task: Task, signal: i32, timeout: Duration) -> Result<()> {
        self.ask_by(Command::Signal { node: task.node, task: task.id, signal }, timeout).await.map(drop)
    }

    /// Waits for a task's end: an exit code up to 255, 254 for a program that could not be executed, 256 plus a
    /// signal's number for a killed one; always 0 for an attached one. Has no timeout: a dead host reports nothing for
    /// as long as the job lives.
    ///
    /// # Errors
    /// As for every request.
    pub async fn obit(&self, task: Task) -> Result<i32> {
        match self.ask(Command::Obit { node: task.node, task: task.id }).await? {
            Answer::Status(status) => Ok(status),
            _ => Ok(0),
        }
    }

    /// The tasks of a node, including ended ones. For this host: all of them. For another host: those that were started
    /// at exactly this node.
    ///
    /// # Errors
    /// As for every request.
    pub async fn task_info(&self, node: NodeId, timeout: Duration) -> Result<Vec<Task>> {
        match self.ask_by(Command::Tasks { node }, timeout).await? {
            Answer::Tasks(tasks) => Ok(tasks.into_iter().map(|id| Task { id, node }).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Stores bytes under a name with the calling task. They replace earlier ones.
    ///
    /// # Errors
    /// [`TmError::TooLarge`], and as for every request.
    pub async fn publish(&self, name: &[u8], info: &[u8], timeout: Duration) -> Result<()> {
        let command = Command::Publish { name: name.to_vec(), info: info.to_vec() };
        self.ask_by(command, timeout).await.map(drop)
    }

    /// Reads the data that a task has stored under a name. Does not wait for it.
    ///
    /// # Errors
    /// [`TmError::Refused`] with a code that [`is_not_found`](super::Code::is_not_found), and as for every request.
    pub async fn subscribe(&self, task: Task, name: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        let command = Command::Subscribe { node: task.node, task: task.id, name: name.to_vec() };
        match self.ask_by(command, timeout).await? {
            Answer::Info(info) => Ok(info),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a command and waits for its answer, however long it takes.
    ///
    /// # Errors
    /// As for every request.
    pub async fn ask(&self, command: Command) -> Result<Answer> {
        let asked = Asked { verb: command.verb(), node: command.node() };
        let (waiter, answer) = oneshot::channel();
        // The receiver lives as long as this sender, except during the runtime's shutdown. Then waiters are dropped,
        // and their callers notice.
        drop(self.orders.send(Order { command, waiter: Waiting::Answer(waiter) }));
        answer.await.unwrap_or(Err(TmError::Gone { asked }))
    }

    /// As [`ask`](Self::ask), until the timeout expires.
    ///
    /// # Errors
    /// As for every request.
    pub async fn ask_by(&self, command: Command, timeout: Duration) -> Result<Answer> {
        let asked = Asked { verb: command.verb(), node: command.node() };
        time::timeout(timeout, self.ask(command)).await.unwrap_or(Err(TmError::TimedOut { asked, timeout }))
    }
}

async fn open(environment: &Environment) -> Result<TcpStream> {
    let address = environment.address();
    let failed = |source| TmError::Connect { address, source: Arc::new(source) };
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    // The last part of a packet must be sent without delay.
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}
