//! A stand-in for the moms of a job: a server for task management that starts real processes.
//!
//! It has the observed quirks of the real one (`tests/fixtures/pbs`). It drops an incomplete packet and never answers
//! it. The type of its own packets is arbitrary. It disconnects at invalid requests. A host with a dead mom is silent.
//! Hosts answer independently, so replies overtake each other. In one point it differs: one process plays the moms of
//! all hosts.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use gantry_wlm::pbs::tm::dis::{DisError, Reader};
use gantry_wlm::pbs::tm::packet::{self, LARGEST_REPLY_BYTES};
use gantry_wlm::pbs::tm::reply::{Answer, Roots, encode};
use gantry_wlm::pbs::tm::request::Head;
use gantry_wlm::pbs::tm::{Code, Command, NodeId, TaskId, Verb};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

use crate::proc;
use crate::sys::in_session_of_its_own;

/// How much later than the own host another host answers.
const DISTANCE: Duration = Duration::from_millis(3);

/// The status of a program that cannot be executed.
const NOT_EXECUTED: i32 = 254;
/// The status of a killed process is this plus the signal's number.
const KILLED: i32 = 256;

/// A command that is known and not there.
const REGISTER: i32 = 109;

/// A job to be played.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its cookie.
    pub cookie: String,
    /// Where its tasks begin.
    pub home: PathBuf,
    /// The host of every node.
    pub hosts: Vec<String>,
    /// How long the last host waits before it answers.
    pub slowness: Duration,
}

/// Two orders to a mom that plays, from outside of its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ends the mom of that host.
    Die(usize),
    /// Ends the job.
    End,
}

#[derive(Debug)]
struct Task {
    host: usize,
    node: i32,
    parent: (i32, u32),
    pid: Option<i32>,
    attached: bool,
    status: watch::Sender<Option<i32>>,
    left: HashMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug)]
struct Mom {
    job: Job,
    port: u16,
    /// The hosts by the order in which the node file names them.
    names: Vec<String>,
    dead: Vec<usize>,
    tasks: BTreeMap<TaskId, Task>,
    last: Vec<u32>,
    ended: Rc<Notify>,
}

/// The answer. None: no answer is ever sent.
type Outcome = Option<std::result::Result<Answer, Code>>;

/// Plays the moms of `job` until an order ends it. `ready` gets the port.
///
/// # Errors
/// When there is no port to listen on.
pub async fn play(
    job: Job,
    mut orders: mpsc::UnboundedReceiver<Order>,
    ready: impl FnOnce(u16),
) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let mom = Rc::new(RefCell::new(Mom::new(job, port)));
    let ended = mom.borrow().ended.clone();
    ready(port);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tokio::task::spawn_local(serve(stream, mom.clone(), ended.clone()));
            }
            order = orders.recv() => match order {
                Some(Order::Die(host)) => mom.borrow_mut().dead.push(host),
                Some(Order::End) | None => break,
            },
        }
    }
    let all: Vec<_> = mom.borrow().tasks.values().map(|task| (task.pid, task.status.subscribe())).collect();
    all.iter().filter_map(|(pid, _)| *pid).for_each(|pid| signal_session(pid, Some(Signal::SIGKILL)));
    for (pid, mut status) in all {
        if pid.is_some() {
            drop(status.wait_for(Option::is_some).await);
        }
    }
    // Waiting clients get the ends of tasks before the connection closes.
    tokio::time::sleep(DISTANCE * 3).await;
    ended.notify_waiters();
    tokio::task::yield_now().await;
    Ok(())
}

async fn serve(stream: TcpStream, mom: Rc<RefCell<Mom>>, ended: Rc<Notify>) {
    let (mut reader, mut writer) = stream.into_split();
    let (replies, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
    let hang_up = Rc::new(Notify::new());
    let mut version = None;
    loop {
        tokio::select! {
            () = ended.notified() => return,
            () = hang_up.notified() => return,
            Some(reply) = outgoing.recv() => {
                if writer.write_all(&reply).await.is_err() {
                    return;
                }
            }
            read = reader.readable() => {
                if read.is_err() {
                    return;
                }
                let Some(bytes) = what_is_there(&mut reader) else { return };
                for message in whole_packets(&bytes) {
                    if take(message, &mom, &mut version, &replies, &hang_up).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// All available bytes. None: the peer has disconnected.
fn what_is_there(reader: &mut tokio::net::tcp::OwnedReadHalf) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 65536];
    loop {
        match reader.try_read(&mut piece) {
            Ok(0) => return None,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(bytes),
            Err(_) => return None,
        }
    }
}

/// The messages of the complete packets. An incomplete packet and invalid bytes are dropped.
fn whole_packets(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Ok(Some((message, length))) = packet::open(bytes, LARGEST_REPLY_BYTES) {
        messages.push(message);
        bytes = &bytes[length..];
    }
    messages
}

/// Carries out the requests of a packet. An error: the mom hangs up.
fn take(
    message: &[u8],
    mom: &Rc<RefCell<Mom>>,
    version: &mut Option<i32>,
    replies: &mpsc::UnboundedSender<Vec<u8>>,
    hang_up: &Rc<Notify>,
) -> std::result::Result<(), ()> {
    let mut reader = Reader::new(message);
    while !reader.rest().is_empty() {
        let (head, command) = match read(&mut reader) {
            Ok(request) => request,
            // In a stream the rest could come in another packet. Here it never does.
            Err(DisError::Short) => return Ok(()),
            Err(_) => return Err(()),
        };
        let known = head.protocol == 2 && (1..=2).contains(&head.version);
        if !known || version.is_some_and(|before| before != head.version) || !mom.borrow().trusts(&head) {
            return Err(());
        }
        *version = Some(head.version);
        let (mom, replies, hang_up) = (mom.clone(), replies.clone(), hang_up.clone());
        tokio::task::spawn_local(async move {
            let event = head.event;
            let unknown = matches!(command, Command::Other { .. });
            let Some(outcome) = answer(&mom, head, command).await else { return };
            let mut reply = packet::seal(&encode(event, &outcome).expect("a short reply")).expect("a packet");
            // An arbitrary value.
            reply[6] = 0x79;
            drop(replies.send(reply));
            if unknown {
                tokio::time::sleep(DISTANCE).await;
                hang_up.notify_one();
            }
        });
    }
    Ok(())
}

fn read(reader: &mut Reader<'_>) -> std::result::Result<(Head, Command), DisError> {
    let head = Head::decode(reader)?;
    let command = Command::decode(head.verb, reader)?;
    Ok((head, command))
}

async fn answer(mom: &Rc<RefCell<Mom>>, head: Head, command: Command) -> Outcome {
    let caller = head.caller.task;
    if head.verb == Verb::Attach {
        return Some(mom.borrow_mut().attach(&command));
    }
    if let Command::Other { number, .. } = command {
        return Some(Err(if number == REGISTER { Code::NOT_IMPLEMENTED } else { Code::UNKNOWN_COMMAND }));
    }
    let Some((here, attached)) = mom.borrow().tasks.get(&caller).map(|task| (task.host, task.attached))
    else {
        return Some(Err(Code::NOT_FOUND));
    };
    let mut there = here;
    if let Some(node) = command.node() {
        let Some(host) = mom.borrow().host_of(node) else { return Some(Err(Code::NOT_FOUND)) };
        there = host;
        if there != here {
            // In the name of an attached task another mom cannot be asked: it is not answered, ever.
            if attached || mom.borrow().dead.contains(&there) {
                return None;
            }
            let last = mom.borrow().names.len() - 1;
            let slowness = if there == last { mom.borrow().job.slowness } else { Duration::ZERO };
            tokio::time::sleep(DISTANCE + slowness).await;
        }
    }
    let not_found = if there == here { Code::NOT_FOUND } else { Code::NOT_FOUND_ELSEWHERE };
    if let Command::Obit { task, .. } = &command {
        let Some(mut status) = mom.borrow().status_of(*task, there) else { return Some(Err(not_found)) };
        let ended = status.wait_for(Option::is_some).await.map(|status| *status);
        if mom.borrow().dead.contains(&there) && there != here {
            return None;
        }
        return Some(Ok(Answer::Status(ended.ok().flatten().unwrap_or(0))));
    }
    if let Command::Spawn { node, argv, variables } = command {
        return Some(Ok(Answer::Task(spawn(mom, caller, node, there, &argv, &variables))));
    }
    Some(mom.borrow_mut().answer(caller, here, there, command).map_err(|()| not_found))
}

/// Starts a process and waits for it in the background. Reports success in any case.
fn spawn(
    mom: &Rc<RefCell<Mom>>,
    caller: TaskId,
    node: NodeId,
    host: usize,
    argv: &[Vec<u8>],
    variables: &[Vec<u8>],
) -> TaskId {
    let parent = (mom.borrow().tasks[&caller].node, caller.0);
    let task = mom.borrow_mut().new_task(host, node.0, parent, false);
    let mut command = mom.borrow().command(task, host, argv, variables);
    let started = tokio::process::Command::from(in_session_of_its_own(&mut command)).spawn();
    let mut mom_now = mom.borrow_mut();
    let entry = mom_now.tasks.get_mut(&task).expect("it was just made");
    match started {
        Err(_) => drop(entry.status.send_replace(Some(NOT_EXECUTED))),
        Ok(mut child) => {
            entry.pid = child.id().and_then(|pid| i32::try_from(pid).ok());
            let told = entry.status.clone();
            tokio::task::spawn_local(async move {
                use std::os::unix::process::ExitStatusExt;
                let status = child.wait().await.ok();
                let number = |status: std::process::ExitStatus| {
                    status.code().or(status.signal().map(|signal| KILLED + signal)).unwrap_or(0)
                };
                told.send_replace(Some(status.map_or(0, number)));
            });
        }
    }
    task
}

impl Mom {
    fn new(job: Job, port: u16) -> Self {
        let mut names: Vec<String> = Vec::new();
        for host in &job.hosts {
            if !names.contains(host) {
                names.push(host.clone());
            }
        }
        let last = vec![0; names.len()];
        let mut mom = Self {
            job,
            port,
            names,
            dead: Vec::new(),
            tasks: BTreeMap::new(),
            last,
            ended: Rc::new(Notify::new()),
        };
        let script = mom.new_task(0, 0, (-1, 0), false);
        debug_assert_eq!(script, TaskId::SCRIPT);
        mom
    }

    fn trusts(&self, head: &Head) -> bool {
        let caller = &head.caller;
        if head.verb == Verb::Attach {
            return caller.cookie.is_none();
        }
        caller.job == self.job.id.as_bytes() && caller.cookie.expose() == self.job.cookie.as_bytes()
    }

    fn host_of(&self, node: NodeId) -> Option<usize> {
        let name = self.job.hosts.get(usize::try_from(node.0).ok()?)?;
        self.names.iter().position(|known| known == name)
    }

    fn status_of(&self, task: TaskId, host: usize) -> Option<watch::Receiver<Option<i32>>> {
        self.tasks.get(&task).filter(|task| task.host == host).map(|task| task.status.subscribe())
    }

    /// The next number of that host: a counter, with the host in front.
    fn new_task(&mut self, host: usize, node: i32, parent: (i32, u32), attached: bool) -> TaskId {
        self.last[host] += 1;
        let nodes = u32::try_from(self.job.hosts.len()).expect("few nodes");
        let number = u32::try_from(host).expect("few hosts") << nodes.leading_zeros();
        let id = TaskId(self.last[host] | number);
        let task = Task {
            host,
            node,
            parent,
            pid: None,
            attached,
            status: watch::Sender::new(None),
            left: HashMap::new(),
        };
        self.tasks.insert(id, task);
        id
    }

    fn command(
        &self,
        task: TaskId,
        host: usize,
        argv: &[Vec<u8>],
        variables: &[Vec<u8>],
    ) -> std::process::Command {
        use std::os::unix::ffi::OsStrExt;
        let text = |bytes: &[u8]| std::ffi::OsStr::from_bytes(bytes).to_owned();
        let mut command = std::process::Command::new(text(argv.first().map_or(&b""[..], Vec::as_slice)));
        command.args(argv.iter().skip(1).map(|argument| text(argument)));
        command.env_clear().current_dir(&self.job.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The test's leak check finds the process by these variables.
        command.envs(std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GANTRY_TEST")));
        command.env("PATH", "/bin:/usr/bin").env("HOME", &self.job.home).env("PBS_ENVIRONMENT", "PBS_BATCH");
        command.env("PBS_JOBID", &self.job.id).env("PBS_JOBCOOKIE", &self.job.cookie);
        command.env("PBS_NODENUM", host.to_string()).env("PBS_TASKNUM", format!("{:08X}", task.0));
        command.env("PBS_MOMPORT", self.port.to_string()).env("PBS_NODEFILE", self.job.home.join("nodes"));
        command.env("STAND_IN_HOST", &self.names[host]);
        for variable in variables {
            if let Some(at) = variable.iter().position(|byte| *byte == b'=') {
                command.env(text(&variable[..at]), text(&variable[at + 1..]));
            }
        }
        command
    }

    fn answer(
        &mut self,
        caller: TaskId,
        here: usize,
        there: usize,
        command: Command,
    ) -> std::result::Result<Answer, ()> {
        let task = |tasks: &mut BTreeMap<TaskId, Task>, id: TaskId| {
            let here = tasks.get(&id).filter(|task| task.host == there).map(drop);
            here.ok_or(()).map(|()| id)
        };
        Ok(match command {
            Command::Init => {
                let (parent_node, parent_task) = self.tasks[&caller].parent;
                let count = i32::try_from(self.job.hosts.len()).expect("few nodes");
                let nodes = (0..count).map(NodeId).collect();
                Answer::Init(Roots {
                    nodes,
                    parent_job: self.job.id.clone().into_bytes(),
                    parent_node,
                    parent_task,
                })
            }
            Command::Tasks { node } => {
                let fits = |task: &Task| task.host == there && (here == there || task.node == node.0);
                Answer::Tasks(self.tasks.iter().filter(|(_, task)| fits(task)).map(|(id, _)| *id).collect())
            }
            Command::Resources { .. } => {
                let text = format!(
                    "Linux {} 6.1 #1 SMP @0 x86_64:ncpus={}",
                    self.names[there],
                    self.job.hosts.len()
                );
                Answer::Resources(text.into_bytes())
            }
            Command::Signal { task: id, signal, .. } => {
                let id = task(&mut self.tasks, id)?;
                let task = &self.tasks[&id];
                if let (Some(pid), None) = (task.pid, *task.status.borrow()) {
                    signal_session(pid, Signal::try_from(signal).ok());
                }
                Answer::Done
            }
            Command::Publish { name, info } => {
                self.tasks.get_mut(&caller).ok_or(())?.left.insert(name, info);
                Answer::Done
            }
            Command::Subscribe { task: id, name, .. } => {
                let id = task(&mut self.tasks, id)?;
                Answer::Info(self.tasks[&id].left.get(&name).cloned().ok_or(())?)
            }
            // Those are answered elsewhere.
            _ => return Err(()),
        })
    }

    fn attach(&mut self, command: &Command) -> std::result::Result<Answer, Code> {
        let Command::Attach { uid, pid } = *command else { return Err(Code::UNKNOWN_COMMAND) };
        if u32::try_from(uid).ok() != Some(nix::unistd::geteuid().as_raw()) {
            return Err(Code(17009));
        }
        let session =
            proc::stat(pid).map(|stat| stat.session).filter(|session| *session > 1).ok_or(Code(17011))?;
        if self.tasks.values().any(|task| task.pid == Some(session)) {
            return Err(Code(17008));
        }
        let task = self.new_task(0, -1, (-1, 1), true);
        self.tasks.get_mut(&task).expect("it was just made").pid = Some(session);
        Ok(Answer::Task(task))
    }
}

/// Sends a signal to every process of a session. `None` sends no signal.
fn signal_session(session: i32, signal: Option<Signal>) {
    for pid in proc::all() {
        if proc::stat(pid).is_some_and(|stat| stat.session == session) {
            // It may have ended in this moment.
            let _gone = kill(Pid::from_raw(pid), signal);
        }
    }
}
