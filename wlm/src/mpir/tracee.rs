//! A launcher as a tracee: starts it, and runs it from stop to stop.
//!
//! Two threads share the work. The *watcher* starts the launcher, so it is its parent, and waits for status changes.
//! The *tracer* does everything else: ptrace requests must come from one thread. Orders and the watcher's news arrive
//! in the tracer's one inbox, so it can wait for both with one deadline.
//!
//! The started program, the *leader*, may be a script that starts the launcher as a child. Then its descendants are
//! traced as well, each with a watcher of its own, and one of them may come under control in the leader's place.
//!
//! Only the launcher's first thread is traced. A launcher that is stopped completely cannot answer its daemons, and a
//! workload manager takes that for a broken node.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use gantry_types::id::Pid;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;

use super::sys;
use crate::host::{open_pidfd, signal_process};

/// A message to the tracer.
#[derive(Debug)]
pub(super) enum Message {
    /// This process has stopped or ended; its status must be collected.
    News(i32),
    /// The launcher cannot be executed.
    NotStarted(io::Error),
    /// An order from the owner.
    Order(Order),
}

/// An order of the launcher's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Let a launcher at its breakpoint continue. Has no effect at any other time.
    Release,
    /// Let it continue without its ranks: as [`AtBreakpoint::LeaveAtOnce`](super::AtBreakpoint::LeaveAtOnce), decided
    /// later.
    Leave,
    /// Send the launcher a signal.
    Signal(Signal),
    /// End the launcher by SIGKILL. Its helpers are left alone: some launchers have one that ends the ranks when the
    /// launcher has died.
    Kill,
    /// SIGKILL to the launcher's process group, for helpers that do not end.
    KillGroup,
}

/// Why a launcher does not reach its target.
#[derive(Debug)]
pub(super) enum Halt {
    /// It cannot be executed.
    NotStarted(io::Error),
    /// It has ended, and its pid may be reused.
    Ended(ExitStatus),
    /// The timeout has expired.
    Deadline,
    /// The owner has ordered its end.
    Ordered,
    /// A call failed.
    Call { step: &'static str, source: io::Error },
}

impl Halt {
    /// Whether it was killed during a stop. Then ptrace reports that it does not exist, and its end is the next news.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Call { source, .. } if is_gone(source))
    }
}

/// A stop that the tracer has to decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has become another program.
    Exec,
    /// It has reached a breakpoint or made a step.
    Trap,
    /// One of its threads has called the breakpoint's function: [`Tracee::hear_word`].
    Word,
    /// It has a new child, which is stopped and traced, too.
    Fork {
        /// The child.
        child: i32,
        /// It uses its parent's memory until it becomes another program.
        borrows: bool,
    },
    /// This descendant of the leader has become another program, and is stopped.
    Below(i32),
}

/// A task for a launcher whose ranks are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// Let it continue.
    Release,
    /// Let it continue without its ranks.
    Leave,
    /// It has ended.
    Ended(ExitStatus),
}

/// The meaning of a tracee's wait status.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Ended(ExitStatus),
    Exec,
    Fork { borrows: bool },
    Below(i32),
    Signal(i32),
    GroupStop,
    Other,
}

/// A launcher that this thread traces.
#[derive(Debug)]
pub(super) struct Tracee {
    /// The process under control: the leader, or a descendant.
    pid: Pid,
    /// The started process. The launcher has ended when it has.
    leader: Pid,
    /// The pidfd of the process under control if it is not the leader.
    below: Option<OwnedFd>,
    inbox: Receiver<Message>,
    news: Sender<Message>,
    /// The processes whose stops are reported, and how their watchers learn that a status is collected.
    watched: BTreeMap<i32, Sender<()>>,
    /// The signal by which its other threads notify the first one. 0: they do not.
    word: i32,
    /// It runs untraced, or has ended below a script: it cannot be released.
    free: bool,
}

/// Options of every tracee: it dies with its tracer, and stops at exec.
const OPTIONS: i32 = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;

impl Tracee {
    /// Starts `command`, exclusively, and waits until it is stopped in its first program, before the first instruction
    /// and with all signals blocked. Its status changes go through `news` to `inbox`.
    pub(super) fn start(
        mut command: Command,
        news: Sender<Message>,
        inbox: Receiver<Message>,
        until: Instant,
    ) -> Result<Self, Halt> {
        let step = call("make a pipe");
        let (mut heard, say) = io::pipe().map_err(&step)?;
        let (gate, mut opener) = io::pipe().map_err(&step)?;
        sys::wait_at_gate(&mut command, say.as_fd(), gate.as_fd());
        let (collected, acknowledged) = mpsc::channel();
        let tell = news.clone();
        start_watcher(move || {
            let started = command.spawn();
            drop((command, say, gate));
            match started.map(|child| i32::try_from(child.id())) {
                Ok(Ok(pid)) => watch(pid, &tell, &acknowledged),
                Ok(Err(_)) => {}
                // The tracer may have ended.
                Err(error) => drop(tell.send(Message::NotStarted(error))),
            }
        })?;
        let mut number = [0; 4];
        let pid = match heard.read_exact(&mut number) {
            Ok(()) => i32::try_from(u32::from_ne_bytes(number)).ok().and_then(Pid::new),
            Err(_) => None,
        };
        let Some(pid) = pid else { return Err(never_born(&inbox)) };
        let watched = BTreeMap::from([(pid.get(), collected)]);
        let mut tracee = Self { pid, leader: pid, below: None, inbox, news, watched, word: 0, free: false };
        if let Err(source) = sys::seize(pid.get(), OPTIONS) {
            // The child waits at its gate, and ends there.
            tracee.kill();
            tracee.wait_end(until);
            return Err(Halt::Call { step: "trace it", source });
        }
        opener.write_all(&[1]).map_err(call("let it start"))?;
        match tracee.next_stop(until)? {
            Stop::Exec => Ok(tracee),
            _ => Err(call("start it")(io::ErrorKind::InvalidData.into())),
        }
    }

    /// The pid of the process under control.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// That pid as a number, for the system calls of this module.
    pub(super) fn raw(&self) -> i32 {
        self.pid.get()
    }

    /// Whether its children are traced from their start.
    pub(super) fn watch_forks(&self, watch: bool) -> Result<(), Halt> {
        let forks = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
        let options = if watch { OPTIONS | forks } else { OPTIONS };
        sys::set_options(self.raw(), options).map_err(call("set what to trace"))
    }

    /// Has the stops of a descendant reported. It is traced since its birth.
    pub(super) fn follow(&mut self, child: i32) -> Result<(), Halt> {
        let (collected, acknowledged) = mpsc::channel();
        let news = self.news.clone();
        start_watcher(move || watch(child, &news, &acknowledged))?;
        self.watched.insert(child, collected);
        Ok(())
    }

    /// Lets a descendant continue that is stopped at [`Stop::Below`].
    pub(super) fn pass(&self, descendant: i32) -> Result<(), Halt> {
        unless_gone(sys::go_on(descendant, 0)).map_err(call("let its child go on"))
    }

    /// Takes control of a descendant that is stopped at [`Stop::Below`].
    pub(super) fn control(&mut self, descendant: i32) -> Result<(), Halt> {
        let step = call("control its child");
        self.pid = Pid::new(descendant).ok_or(io::ErrorKind::InvalidData.into()).map_err(&step)?;
        self.below = Some(open_pidfd(self.pid).map_err(&step)?);
        Ok(())
    }

    /// Takes control of the leader again.
    pub(super) fn control_leader(&mut self) {
        (self.pid, self.below, self.word) = (self.leader, None, 0);
    }

    /// Whether the leader has not ended.
    pub(super) fn leader_runs(&self) -> bool {
        self.watched.contains_key(&self.leader.get())
    }

    /// From now on, a `signal` that it sends to itself is a notification for the tracer and is not delivered. 0: no
    /// signal.
    pub(super) fn hear_word(&mut self, signal: i32) {
        self.word = signal;
    }

    /// Lets it continue with `signal` or 0.
    pub(super) fn go_on(&self, signal: i32) -> Result<(), Halt> {
        unless_gone(sys::go_on(self.raw(), signal)).map_err(call("let it go on"))
    }

    /// Lets it execute one instruction. Signals that arrive meanwhile are sent again afterwards.
    pub(super) fn step(&mut self, until: Instant) -> Result<(), Halt> {
        let mut late = Vec::new();
        unless_gone(sys::step(self.raw())).map_err(call("make a step"))?;
        loop {
            match self.next_event(until)? {
                Event::Signal(libc::SIGTRAP) if self.made_by_kernel() => break,
                Event::Signal(signal) => late.push(signal),
                Event::Ended(status) => return Err(Halt::Ended(status)),
                Event::Below(pid) => {
                    self.pass(pid)?;
                    continue;
                }
                _ => {}
            }
            unless_gone(sys::step(self.raw())).map_err(call("make a step"))?;
        }
        for signal in late {
            // It may have been killed meanwhile.
            sys::kill(self.raw(), signal).ok();
        }
        Ok(())
    }

    /// Waits for a stop that needs a decision. All others are handled here: signals are delivered, and a launcher that
    /// a user stopped stays stopped until the user continues it.
    pub(super) fn next_stop(&mut self, until: Instant) -> Result<Stop, Halt> {
        loop {
            match self.next_event(until)? {
                Event::Ended(status) => return Err(Halt::Ended(status)),
                Event::Exec => return Ok(Stop::Exec),
                Event::Below(pid) => return Ok(Stop::Below(pid)),
                Event::Fork { borrows } => {
                    let child = sys::event_message(self.raw()).map_err(call("ask for its child"))?;
                    return Ok(Stop::Fork { child, borrows });
                }
                Event::Signal(libc::SIGTRAP) if self.made_by_kernel() => return Ok(Stop::Trap),
                Event::Signal(signal) if signal == self.word && self.sent_by_itself() => {
                    return Ok(Stop::Word);
                }
                Event::Signal(signal) => self.go_on(signal)?,
                Event::GroupStop => {
                    unless_gone(sys::listen(self.raw())).map_err(call("leave it stopped"))?;
                }
                Event::Other => self.go_on(0)?,
            }
        }
    }

    fn next_event(&mut self, until: Instant) -> Result<Event, Halt> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Message::News(pid)) => {
                    if let Some(event) = self.collect(pid)
                        && let Some(event) = self.sort(pid, event)?
                    {
                        return Ok(event);
                    }
                }
                Ok(Message::NotStarted(error)) => return Err(Halt::NotStarted(error)),
                Ok(Message::Order(Order::Release | Order::Leave)) => {}
                Ok(Message::Order(order @ Order::Signal(_))) => self.obey(order),
                Ok(Message::Order(order @ (Order::Kill | Order::KillGroup))) => {
                    self.obey(order);
                    return Err(Halt::Ordered);
                }
                // `news` keeps the inbox open.
                Err(_) => return Err(Halt::Deadline),
            }
        }
    }

    /// Collects the status change that a watcher has reported, and lets it wait for the next one.
    fn collect(&mut self, pid: i32) -> Option<Event> {
        // A descendant that is not traced any more may be reported once.
        let collected = self.watched.get(&pid)?;
        let event = match sys::collect(pid, false) {
            Ok(status) => status.map(classify),
            // The guard's own thread has collected an orphan first.
            Err(_) => Some(Event::Ended(ExitStatus::Unknown)),
        };
        if matches!(event, Some(Event::Ended(_))) {
            self.watched.remove(&pid);
        } else {
            // A watcher that has ended has nothing more to report.
            collected.send(()).ok();
        }
        event
    }

    /// Returns the events that need a decision. All others of processes that are not under control are handled here.
    fn sort(&mut self, pid: i32, event: Event) -> Result<Option<Event>, Halt> {
        if pid == self.raw() {
            return Ok(Some(event));
        }
        let continued = match event {
            Event::Ended(status) if pid == self.leader.get() => return Err(Halt::Ended(status)),
            Event::Ended(_) => Ok(()),
            Event::Exec => return Ok(Some(Event::Below(pid))),
            Event::Signal(signal) => sys::go_on(pid, signal),
            Event::GroupStop => sys::listen(pid),
            Event::Fork { .. } => {
                self.follow_child(pid)?;
                sys::go_on(pid, 0)
            }
            Event::Below(_) | Event::Other => sys::go_on(pid, 0),
        };
        unless_gone(continued).map_err(call("let its child go on"))?;
        Ok(None)
    }

    /// Follows the new child of a descendant, unless the descendant was killed meanwhile.
    fn follow_child(&mut self, parent: i32) -> Result<(), Halt> {
        sys::event_message(parent).map_or(Ok(()), |child| self.follow(child))
    }

    /// Stops all processes that are not under control, to end their tracing. They would be killed at its end.
    pub(super) fn leave_others(&self) {
        for pid in self.watched.keys().filter(|pid| **pid != self.raw()) {
            // It may have been killed.
            sys::interrupt(*pid).ok();
        }
    }

    /// Ends tracing of a process that has stopped and is not under control.
    fn let_alone(&mut self, pid: i32, event: &Event) {
        if matches!(event, Event::Fork { .. }) {
            // Its child would stay stopped: it ends with this thread.
            self.follow_child(pid).ok();
        }
        // It may have been killed.
        sys::detach(pid, if let Event::Signal(signal) = event { *signal } else { 0 }).ok();
        if pid != self.leader.get() {
            self.watched.remove(&pid);
        }
    }

    /// From a stop: ends tracing. The launcher continues.
    pub(super) fn set_free(&mut self) -> Result<(), Halt> {
        unless_gone(sys::detach(self.raw(), 0)).map_err(call("stop tracing it"))?;
        self.free = true;
        if self.below.is_some() {
            self.watched.remove(&self.raw());
        }
        Ok(())
    }

    /// Waits without a timeout for its end or for the order to release it. Obeys all other orders meanwhile.
    pub(super) fn next_errand(&mut self) -> Errand {
        loop {
            // `news` keeps the inbox open.
            let Ok(message) = self.inbox.recv() else { return Errand::Ended(ExitStatus::Unknown) };
            match message {
                Message::News(pid) => match self.collect(pid) {
                    Some(Event::Ended(status)) if pid == self.leader.get() => {
                        return Errand::Ended(status);
                    }
                    // The script goes on without it. Nothing is left to release.
                    Some(Event::Ended(_)) if pid == self.raw() => {
                        self.control_leader();
                        self.free = true;
                    }
                    Some(event) if self.free || pid != self.raw() => self.let_alone(pid, &event),
                    _ => {}
                },
                Message::Order(Order::Release) if !self.free => return Errand::Release,
                Message::Order(Order::Leave) if !self.free => return Errand::Leave,
                Message::Order(order) => self.obey(order),
                Message::NotStarted(_) => {}
            }
        }
    }

    /// Waits for the end of a killed launcher, at most until `until`.
    pub(super) fn wait_end(&mut self, until: Instant) -> ExitStatus {
        self.control_leader();
        loop {
            match self.next_event(until) {
                Ok(Event::Ended(status)) | Err(Halt::Ended(status)) => return status,
                Err(Halt::Deadline | Halt::NotStarted(_) | Halt::Call { .. }) => return ExitStatus::Unknown,
                Ok(_) | Err(Halt::Ordered) => {}
            }
        }
    }

    fn obey(&self, order: Order) {
        // Only this thread collects the leader's end, so until then the pid is its own. Sending fails only if it has
        // ended.
        match order {
            Order::Signal(signal) => {
                if let Some(below) = &self.below {
                    signal_process(below, signal.number()).ok();
                }
                // A script ends at once by a signal that its launcher uses to give back its nodes. The launcher must
                // not die with it by the end of the tracing.
                if self.below.is_none() || self.free {
                    sys::kill(self.leader.get(), signal.number()).ok();
                }
            }
            Order::Kill => self.kill(),
            Order::KillGroup => drop(sys::kill_group(self.leader.get(), libc::SIGKILL)),
            Order::Release | Order::Leave => {}
        }
    }

    /// SIGKILL to the leader. Descendants that are traced end with this thread.
    pub(super) fn kill(&self) {
        drop(sys::kill(self.leader.get(), libc::SIGKILL));
    }

    /// Whether the current SIGTRAP comes from a breakpoint or step, not from a `kill`.
    fn made_by_kernel(&self) -> bool {
        sys::signal_code(self.raw()).is_ok_and(|code| code > 0)
    }

    /// Whether the current signal was sent to this very thread, which probably only its own process does.
    fn sent_by_itself(&self) -> bool {
        sys::signal_code(self.raw()).is_ok_and(|code| code == libc::SI_TKILL)
    }
}

fn start_watcher(watcher: impl FnOnce() + Send + 'static) -> Result<(), Halt> {
    let thread = std::thread::Builder::new().name("launcher-watch".to_owned()).spawn(watcher);
    thread.map(drop).map_err(call("start a thread"))
}

/// A watcher: reports status changes until there can be no more.
fn watch(pid: i32, news: &Sender<Message>, acknowledged: &Receiver<()>) {
    loop {
        // It fails if another thread has collected the end, which is news as well.
        let waits = sys::wait_for_news(pid).is_ok();
        if news.send(Message::News(pid)).is_err() || !waits || acknowledged.recv().is_err() {
            return;
        }
    }
}

/// Receives the watcher's reason why there is no process.
fn never_born(inbox: &Receiver<Message>) -> Halt {
    loop {
        match inbox.recv() {
            Ok(Message::NotStarted(error)) => return Halt::NotStarted(error),
            Ok(Message::Order(_)) => {}
            Ok(Message::News(_)) | Err(_) => return Halt::NotStarted(io::ErrorKind::Interrupted.into()),
        }
    }
}

fn classify(status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Ended(ExitStatus::from_wait_status(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_EXEC => Event::Exec,
        libc::PTRACE_EVENT_FORK => Event::Fork { borrows: false },
        libc::PTRACE_EVENT_VFORK => Event::Fork { borrows: true },
        libc::PTRACE_EVENT_STOP => match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Event::GroupStop,
            _ => Event::Other,
        },
        _ => Event::Other,
    }
}

/// Ignores the error for a killed tracee: its end is the next news.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// Whether a call failed because there is no such process.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Adds the attempted step to an error.
pub(super) fn call(step: &'static str) -> impl Fn(io::Error) -> Halt {
    move |source| Halt::Call { step, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: i32, expected: &Event) {
        assert_eq!(&classify(status), expected, "{status:#x}");
    }

    #[test]
    fn stops_are_told_apart() {
        let stop = |signal: i32, event: i32| 0x7f | (signal << 8) | (event << 16);
        check(0x0300, &Event::Ended(ExitStatus::Code(3)));
        check(9, &Event::Ended(ExitStatus::Signal(Signal::KILL)));
        check(stop(libc::SIGTRAP, libc::PTRACE_EVENT_EXEC), &Event::Exec);
        check(stop(libc::SIGTRAP, libc::PTRACE_EVENT_FORK), &Event::Fork { borrows: false });
        check(stop(libc::SIGTRAP, libc::PTRACE_EVENT_VFORK), &Event::Fork { borrows: true });
        check(stop(libc::SIGTRAP, 0), &Event::Signal(libc::SIGTRAP));
        check(stop(libc::SIGSTOP, 0), &Event::Signal(libc::SIGSTOP));
        check(stop(libc::SIGTSTP, libc::PTRACE_EVENT_STOP), &Event::GroupStop);
        check(stop(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), &Event::Other);
    }

    /// The guard's own thread reaps orphans. One that it reaped before the watcher looked ended unheard.
    #[test]
    fn an_end_that_another_thread_has_collected_is_news() {
        #[expect(clippy::disallowed_methods, reason = "a process that has ended")]
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        let ((news, inbox), (_collected, acknowledged)) = (mpsc::channel(), mpsc::channel());
        watch(pid, &news, &acknowledged);
        assert!(matches!(inbox.try_recv(), Ok(Message::News(about)) if about == pid));
    }
}
