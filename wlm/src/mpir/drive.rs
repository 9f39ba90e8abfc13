//! A launcher from its start to its end, driven by threads of its own and reached by messages.
//!
//! The owner (the guard) is one loop over descriptors. A [`Driver`] has a descriptor that becomes readable when there
//! is an event. The launcher dies with this process and with the driver: by `PTRACE_O_EXITKILL` while it is traced, by
//! `PR_SET_PDEATHSIG` afterwards.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;

use super::Table;
use super::breakpoint::Breakpoints;
use super::error::MpirError;
use super::launcher::{AtBreakpoint, Launcher, Trouble, explain};
use super::tracee::{Halt, Message, Order, Tracee, call};
use super::words::Words;
use crate::host::{Machine, restore_open_files};

/// The timeout for the end of a killed launcher.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for a launcher's last output if other processes share its standard error.
const WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// A launcher to start.
#[derive(Debug)]
pub struct LauncherCommand {
    /// Its command line; the first word is a path, or a name in the `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Its standard input.
    pub stdin: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// The destination of its standard error. The driver forwards it, and keeps the end of it.
    pub stderr: OwnedFd,
    /// The action at its breakpoint.
    pub at_breakpoint: AtBreakpoint,
    /// How it is stopped there.
    pub breakpoints: Breakpoints,
    /// The timeout for starting its ranks. After it the launcher is ended.
    pub deadline: Duration,
}

/// Events of a driver, in the order in which they may come.
#[derive(Debug)]
pub enum Event {
    /// The launcher runs. It is the leader of a new process group.
    Started(Pid),
    /// Its ranks are held.
    Held {
        /// Where they are.
        table: Table,
        /// The launcher's first thread is stopped at the breakpoint until [`Order::Release`]. Otherwise the launcher
        /// has continued.
        stands: bool,
    },
    /// Its ranks are not held, and the launcher has ended or was killed.
    Failed(MpirError),
    /// The launcher has ended. Nothing comes after this, nor after `Failed` for a launcher that was never started.
    Ended(ExitStatus),
}

/// A launcher that is driven. Dropping it ends the launcher.
#[derive(Debug)]
pub struct Driver {
    orders: Sender<Message>,
    events: Receiver<Event>,
    /// One byte for each event that the owner has not taken.
    bell: PipeReader,
}

impl Driver {
    /// Starts driving a launcher. Returns at once; progress comes as events.
    ///
    /// # Errors
    /// A thread or a pipe cannot be created.
    pub fn start(command: LauncherCommand) -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel();
        let (outbox, events) = mpsc::channel();
        let (bell, rope) = io::pipe()?;
        let news = orders.clone();
        std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || drive(command, news, inbox, &mut Outbox { outbox, rope }))?;
        Ok(Self { orders, events, bell })
    }

    /// Gives an order. A late one has no effect.
    pub fn order(&self, order: Order) {
        // The driver may have ended.
        self.orders.send(Message::Order(order)).ok();
    }

    /// The next event, if there is one. The driver's descriptor is readable while there is one, and after the last one.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.hear();
        Some(event)
    }

    /// Waits for the next event until the timeout expires. `None` also if there will be no more.
    pub fn next_event(&mut self, timeout: Duration) -> Option<Event> {
        let event = self.events.recv_timeout(timeout).ok()?;
        self.hear();
        Some(event)
    }

    /// Takes an event's byte from the bell. The byte is on its way if the event is there.
    fn hear(&mut self) {
        self.bell.read_exact(&mut [0]).ok();
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.order(Order::Kill);
    }
}

/// The sender of events, with the bell that rings for each.
struct Outbox {
    outbox: Sender<Event>,
    rope: PipeWriter,
}

impl Outbox {
    fn tell(&mut self, event: Event) {
        // The owner may have gone. Then it has ordered the end.
        if self.outbox.send(event).is_ok() {
            self.rope.write_all(&[1]).ok();
        }
    }
}

/// The tracer's thread.
fn drive(command: LauncherCommand, news: Sender<Message>, inbox: Receiver<Message>, outbox: &mut Outbox) {
    let until = Instant::now() + bounded(command.deadline);
    let argv = command.argv.clone();
    let (then, breakpoints) = (command.at_breakpoint, command.breakpoints);
    let started = prepare(command).map_err(call("make a pipe or thread")).and_then(|(command, words)| {
        Tracee::start(command, news, inbox, until).map(|tracee| (tracee, words))
    });
    let (tracee, words) = match started {
        Ok(started) => started,
        Err(halt) => {
            outbox.tell(Event::Failed(explain(halt.into(), &argv, &[], String::new)));
            return;
        }
    };
    outbox.tell(Event::Started(tracee.pid()));
    let mut launcher = match Launcher::new(tracee, &Machine, breakpoints, until) {
        Ok(launcher) => launcher,
        Err((mut tracee, halt)) => {
            let (trouble, status) = end(&mut tracee, halt.into());
            outbox.tell(Event::Failed(explain(trouble, &argv, &[], String::new)));
            outbox.tell(Event::Ended(status));
            return;
        }
    };
    let status = match launcher.hold(then) {
        Ok((table, stands)) => {
            outbox.tell(Event::Held { table, stands });
            launcher.serve_until_end()
        }
        Err(trouble) => {
            let (trouble, status) = end(&mut launcher.tracee, trouble);
            let words = || words.last(WORDS_PATIENCE);
            outbox.tell(Event::Failed(explain(trouble, &argv, &launcher.inspected, words)));
            status
        }
    };
    outbox.tell(Event::Ended(status));
}

/// Ends a launcher whose ranks are not held, unless it has ended.
fn end(tracee: &mut Tracee, trouble: Trouble) -> (Trouble, ExitStatus) {
    if let Trouble::Halted(Halt::Ended(status)) = trouble {
        return (trouble, status);
    }
    tracee.kill();
    let status = tracee.wait_end(Instant::now() + END_PATIENCE);
    (if trouble.is_end() { Halt::Ended(status).into() } else { trouble }, status)
}

fn prepare(command: LauncherCommand) -> io::Result<(Command, Words)> {
    let LauncherCommand { argv, env, cwd, stdin, stdout, stderr, .. } = command;
    let mut argv = VecDeque::from(argv);
    let program = argv.pop_front().unwrap_or_default();
    let (stderr, words) = Words::pass_on(stderr)?;
    #[expect(clippy::disallowed_methods, reason = "launchers start here, for the guard")]
    let mut command = Command::new(program);
    command.args(argv).env_clear().envs(env).current_dir(cwd).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    restore_open_files(&mut command);
    Ok((command, words))
}
