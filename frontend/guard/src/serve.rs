//! The guard's process: one loop over the tool's socket and the ends of its children. It carries out the responses of
//! [`Policy`].

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_shared::wire::build::describe;
use gantry_shared::wire::frame::{self, FrameBuffer};
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use gantry_types::status::ExitStatus;
use gantry_wlm::host::GANTRY_KEPT;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};

use crate::child::{Running, agent_failure, is_readable, start_agent, start_step, step_failure};
use crate::driven::{self, Driven};
use crate::launcher;
use crate::policy::{Event, Policy, Response};
use crate::table::TableReader;
use gantry_guard::helpers::GUARD;
use gantry_guard::protocol::{FromGuard, OwnedJob, ProcessId};

/// The timeout of a write to the tool. After it, the tool counts as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// The timeout of a sweep. All other work waits for it.
const SWEEP_DEADLINE: Duration = Duration::from_secs(5);

/// How often the guard kills the remains of dead agents before it exits anyway.
const LAST_ROUNDS: u32 = 50;

/// Guards until nothing is left. `socket` is connected to the tool.
///
/// # Errors
/// The set-up failed. Nothing was started.
pub(crate) fn serve(socket: UnixStream) -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    let children_ended = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    socket.set_write_timeout(Some(WRITE_DEADLINE))?;
    // Forked children of the tool keep its descriptors open, so the tool may end before the socket does.
    let tool_process = getsockopt(&socket, PeerCredentials).ok().and_then(|it| Pid::new(it.pid()));
    let tool_process = tool_process.and_then(|pid| gantry_wlm::host::open_pidfd(pid).ok());
    let mut guard = Guard {
        tool: Some(socket),
        tool_process,
        incoming: FrameBuffer::new(),
        children_ended,
        policy: Policy::default(),
        children: HashMap::new(),
        driven: None,
        table: TableReader::default(),
        descriptors: VecDeque::new(),
        pipes: Vec::new(),
        drains: false,
        canceller: None,
    };
    let pid = Pid::new(nix::unistd::getpid().as_raw()).ok_or(io::ErrorKind::InvalidData)?;
    guard.tell(&FromGuard::Hello { release: describe(), pid });
    while guard.turn()? {}
    Ok(())
}

struct Guard {
    tool: Option<UnixStream>,
    /// Readable when the tool has ended.
    tool_process: Option<OwnedFd>,
    incoming: FrameBuffer,
    children_ended: SignalFd,
    policy: Policy,
    children: HashMap<Pid, Running>,
    /// The launcher, if it is driven. Another thread is its parent.
    driven: Option<Driven>,
    table: TableReader,
    /// Descriptors of an order that is not complete yet.
    descriptors: VecDeque<OwnedFd>,
    /// The pipes of a launcher's output. The guard drains them once the tool does not read.
    pipes: Vec<File>,
    drains: bool,
    /// The process that cancels the job of a tool that is gone. It outlives the guard if the WLM gives no answer.
    canceller: Option<Pid>,
}

impl Guard {
    /// Waits for events and handles them. False: the guard may exit.
    fn turn(&mut self) -> io::Result<bool> {
        let [child_ready, tool_ready, tool_ended] = self.wait()?;
        let mut events = Vec::new();
        for child in self.children.values_mut() {
            child.hear();
        }
        if child_ready {
            while self.children_ended.read_signal()?.is_some() {}
            self.take_ended(&mut events);
        }
        if tool_ready {
            self.hear(&mut events);
        }
        if tool_ended {
            self.hear_last(&mut events);
        }
        while let Some(news) = self.driven.as_mut().and_then(Driven::take_news) {
            match news {
                driven::News::Event(event) => events.push(event),
                driven::News::Message(message) => self.tell(&message),
            }
        }
        if self.drains {
            self.drain_pipes();
        }
        let mut stay = true;
        for event in events {
            stay &= self.decide(event);
        }
        // Check this last: the events above may have made it relevant.
        let alone = self.policy.checks_orphans() && self.orphans().is_empty();
        stay &= self.decide(Event::Tick { alone });
        Ok(stay)
    }

    /// Whether children have ended, the tool has sent data, the tool has ended.
    fn wait(&self) -> io::Result<[bool; 3]> {
        let timeout = self.policy.deadline().map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = vec![PollFd::new(self.children_ended.as_fd(), PollFlags::POLLIN)];
        if let Some(tool) = &self.tool {
            fds.push(PollFd::new(tool.as_fd(), PollFlags::POLLIN));
            fds.extend(self.tool_process.iter().map(|tool| PollFd::new(tool.as_fd(), PollFlags::POLLIN)));
        }
        if self.drains {
            fds.extend(self.pipes.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        }
        let said = self.children.values().filter_map(|child| child.stderr.as_ref());
        fds.extend(said.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        fds.extend(
            self.driven.iter().filter_map(Driven::bell).map(|bell| PollFd::new(bell, PollFlags::POLLIN)),
        );
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::any).unwrap_or(false);
        let tool = 1 + usize::from(self.tool.is_some());
        let ended = self.tool.is_some() && self.tool_process.is_some() && ready(fds.get(tool));
        Ok([ready(fds.first()), self.tool.is_some() && ready(fds.get(1)), ended])
    }

    /// Reads the tool's messages. An invalid frame counts as the tool's end.
    fn hear(&mut self, events: &mut Vec<Event>) {
        let Some(tool) = &mut self.tool else { return };
        let mut bytes = [0; 16 * 1024];
        let gone = match launcher::receive(tool, &mut bytes, &mut self.descriptors) {
            Ok(0) => true,
            Ok(n) if self.incoming.push(&bytes[..n]).is_ok() => loop {
                match self.incoming.next_message() {
                    Ok(Some(message)) => events.push(Event::Said(message)),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            },
            Ok(_) => true,
            Err(e) => e.kind() != io::ErrorKind::Interrupted,
        };
        if gone {
            self.tool = None;
            events.push(Event::ToolGone);
        }
    }

    /// The tool has ended: handles its last messages.
    fn hear_last(&mut self, events: &mut Vec<Event>) {
        while let Some(tool) = &self.tool {
            if tool.set_nonblocking(true).is_err() {
                self.tool = None;
                events.push(Event::ToolGone);
                return;
            }
            // The end of the data counts as the tool's end.
            self.hear(events);
        }
    }

    /// Reaps ended agents, and orphans of dead agents.
    fn take_ended(&mut self, events: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for (pid, child) in &mut self.children {
            if let Ok(Some(status)) = child.process.try_wait() {
                use std::os::unix::process::ExitStatusExt;
                ended.push((*pid, ExitStatus::from_wait_status(status.into_raw())));
            }
        }
        for (pid, status) in ended {
            let words = self.children.remove(&pid).map(Running::last_words).unwrap_or_default();
            events.push(Event::ChildEnded(pid, status, words));
        }
        for pid in self.orphans() {
            reap(pid);
        }
    }

    fn decide(&mut self, event: Event) -> bool {
        let mut stay = true;
        for response in self.policy.handle(event, Instant::now()) {
            match response {
                Response::Start(agent) => {
                    let started = start_agent(&agent).map_err(|error| agent_failure(&agent, &error));
                    stay &= self.take_started(agent.id, started);
                }
                Response::StartStep(step) => {
                    let started = start_step(&step).map_err(|error| step_failure(&step, &error));
                    stay &= self.take_started(step.id, started);
                }
                Response::StartLauncher(order) if order.driven.is_some() => {
                    match Driven::start(&order, &mut self.descriptors) {
                        Ok((driven, pipes)) => (self.driven, self.pipes) = (Some(driven), pipes),
                        Err(failure) => stay &= self.decide(Event::NotStarted(order.id, failure)),
                    }
                }
                Response::StartLauncher(order) => {
                    let started = launcher::start(&order, &mut self.descriptors);
                    let started = started.map(|(child, pipes)| {
                        self.pipes = pipes;
                        child
                    });
                    stay &= self.take_started(order.id, started);
                }
                Response::TellJob(launcher) => {
                    // Only the launcher's parent may read its memory on some systems.
                    let job =
                        launcher.and_then(|pid| gantry_wlm::mpir::read_job(pid, &gantry_wlm::host::Machine));
                    self.tell(&FromGuard::Job(job));
                }
                Response::ReadTable { launcher, wrapped } => {
                    let told = self.table.read(launcher, wrapped);
                    self.tell(&told);
                }
                Response::Cancel(job) => self.canceller = start_canceller(&job),
                Response::Drain => self.drains = true,
                Response::Tell(message) => self.tell(&message),
                Response::LetLauncherGo => {
                    if let Some(driven) = &mut self.driven {
                        driven.let_go();
                    }
                }
                Response::AskToGo(pids) => {
                    if let Some(driven) = &mut self.driven {
                        driven.end_standing();
                    }
                    pids.into_iter().for_each(|pid| self.ask_to_go(pid));
                }
                Response::Kill(pids) => pids.into_iter().for_each(|pid| self.kill_group(pid)),
                Response::KillLaunchers(pids) => {
                    pids.into_iter().for_each(|pid| self.signal(pid, Signal::SIGKILL));
                }
                Response::KillOrphans => self.kill_orphans(),
                Response::RemoveSocket(socket) => remove_socket(Path::new(&socket)),
                Response::Sweep(program, base) => sweep(&program, base.as_deref()),
                Response::Leave => stay = false,
            }
        }
        stay
    }

    fn take_started(&mut self, id: ProcessId, started: Result<Child, Failure>) -> bool {
        let pid = |child: &Child| i32::try_from(child.id()).ok().and_then(Pid::new);
        match started.map(|child| (pid(&child), child)) {
            Ok((Some(pid), child)) => {
                self.children.insert(pid, child.into());
                self.decide(Event::Started(id, pid))
            }
            Ok((None, _)) => true,
            Err(failure) => self.decide(Event::NotStarted(id, failure)),
        }
    }

    /// Drains the launcher's pipes after the tool has gone, so that their writers do not block.
    fn drain_pipes(&mut self) {
        self.pipes.retain_mut(|pipe| !is_readable(pipe.as_fd()) || launcher::drain(pipe));
    }

    fn tell(&mut self, message: &FromGuard) {
        let Some(tool) = &mut self.tool else { return };
        let sent = frame::encode(message).map_err(io::Error::other).and_then(|bytes| tool.write_all(&bytes));
        if sent.is_err() {
            // The tool is gone or does not read. The shutdown makes the next read report its end.
            drop(tool.shutdown(std::net::Shutdown::Both));
        }
    }

    fn ask_to_go(&self, pid: Pid) {
        match self.driven.as_ref().filter(|driven| driven.process(pid).is_some()) {
            Some(driven) => driven.ask_to_go(),
            None => self.signal(pid, Signal::SIGTERM),
        }
    }

    /// Sends a signal to a child that was not reaped. The policy may not know yet that a child was reaped, and its pid
    /// may belong to another process by then.
    fn signal(&self, pid: Pid, signal: Signal) {
        if self.children.contains_key(&pid) {
            kill(raw(pid), signal).ok();
        } else if let Some(process) = self.driven.as_ref().and_then(|driven| driven.process(pid)) {
            // Another thread reaps it.
            gantry_wlm::host::signal_process(process, signal as libc::c_int).ok();
        }
    }

    /// As [`Guard::signal`], but SIGKILL to the process group.
    fn kill_group(&self, pid: Pid) {
        if self.children.contains_key(&pid) {
            // It may have ended meanwhile.
            killpg(raw(pid), Signal::SIGKILL).ok();
        }
    }

    /// Children that the guard has not started. The guard is a subreaper, so these are the remains of a dead agent.
    fn orphans(&self) -> Vec<Pid> {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|pid| Pid::new(pid.parse().ok()?))
            .filter(|pid| !self.children.contains_key(pid) && self.canceller != Some(*pid))
            .collect()
    }

    /// Kills orphans, and orphans of those, until none is left.
    fn kill_orphans(&self) {
        for _ in 0..LAST_ROUNDS {
            let orphans = self.orphans();
            if orphans.is_empty() {
                return;
            }
            for pid in &orphans {
                // It may have ended meanwhile.
                kill(raw(*pid), Signal::SIGKILL).ok();
            }
            for pid in orphans {
                // A killed process ends at once, unless it is in an uninterruptible system call. Then init inherits it.
                if waits_in_vain(pid) {
                    return;
                }
            }
        }
    }
}

fn raw(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.get())
}

/// Reaps a child that has ended. A stop of one that another thread traces must stay there for that thread.
fn reap(pid: Pid) {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    if let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) = waitid(Id::Pid(raw(pid)), peek) {
        // An error means that it was reaped.
        waitpid(raw(pid), Some(WaitPidFlag::WNOHANG)).ok();
    }
}

/// Waits for a killed child, a second at most. Returns true if it still lives. The poll is on the child's pidfd, so
/// it returns at once when the child ends.
fn waits_in_vain(pid: Pid) -> bool {
    let ended = || !matches!(waitpid(raw(pid), Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive));
    if ended() {
        return false;
    }
    let second = PollTimeout::from(1000u16);
    if let Ok(fd) = gantry_wlm::host::open_pidfd(pid) {
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, second).ok();
    }
    !ended()
}

/// Removes a socket of a killed tool. A tool that ended properly has removed it itself.
fn remove_socket(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path).ok();
    }
}

/// Removes the storage of killed agents.
fn sweep(program: &std::ffi::OsStr, base: Option<&std::ffi::OsStr>) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the guard is the one place that starts long-lived processes"
    )]
    let mut command = Command::new(program);
    command.arg("sweep").args(base);
    // After a failed sweep, the user's next agent on this machine sweeps.
    run_briefly(command, SWEEP_DEADLINE);
}

/// Starts a process that cancels a job.
fn start_canceller(job: &OwnedJob) -> Option<Pid> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the guard is the one place that starts long-lived processes"
    )]
    let mut command = Command::new("/proc/self/exe");
    command.arg0(GUARD).args(["cancel", &job.wlm, &job.job.0]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env(GANTRY_KEPT, "1").process_group(0);
    Pid::new(command.spawn().ok()?.id().try_into().ok()?)
}

/// Runs a command to its end, or until the timeout.
fn run_briefly(mut command: Command, timeout: Duration) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env(GANTRY_KEPT, "1");
    let Ok(mut child) = command.spawn() else { return };
    let ended = i32::try_from(child.id())
        .ok()
        .and_then(Pid::new)
        .and_then(|pid| gantry_wlm::host::open_pidfd(pid).ok());
    if let Some(ended) = ended {
        let limit = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(ended.as_fd(), PollFlags::POLLIN)], limit).ok();
        // The command has ended, or hangs on its disk and must not block the guard. One that survives SIGKILL is reaped
        // later as an orphan.
        if !matches!(child.try_wait(), Ok(Some(_))) {
            child.kill().ok();
            child.try_wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use gantry_shared::wire::message::Blob;
    use nix::sys::signal::raise;

    use super::*;
    use crate::policy::PATIENCE;
    use gantry_guard::protocol::{StartAgent, StartStep, ToGuard};

    /// A guard without a tool and without children.
    fn idle() -> Guard {
        Guard {
            tool: None,
            tool_process: None,
            incoming: FrameBuffer::new(),
            children_ended: SignalFd::new(&SigSet::empty()).unwrap(),
            policy: Policy::default(),
            children: HashMap::new(),
            driven: None,
            table: TableReader::default(),
            descriptors: VecDeque::new(),
            pipes: Vec::new(),
            drains: false,
            canceller: None,
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of signals to processes")]
    fn a_pid_that_was_waited_for_is_not_signalled() {
        let mut guard = idle();
        let start = || {
            let child = Command::new("/bin/cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
            (Pid::new(child.id().cast_signed()).unwrap(), child)
        };
        // Another process that has the same pid now.
        let (pid, mut another) = start();
        guard.signal(pid, Signal::SIGKILL);
        guard.kill_group(pid);
        drop(another.stdin.take());
        assert!(another.wait().unwrap().success());
        let (pid, child) = start();
        guard.children.insert(pid, child.into());
        guard.signal(pid, Signal::SIGKILL);
        assert!(!guard.children.get_mut(&pid).unwrap().process.wait().unwrap().success());
    }

    /// The process group of an ended agent stands here for another process that has its pid now.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of signals to processes")]
    fn a_reaped_child_is_not_killed_before_the_policy_learns_of_its_end() {
        let mut guard = idle();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec 3<&0; cat <&3 &"]).process_group(0);
        let mut agent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
        let pid = Pid::new(agent.id().cast_signed()).unwrap();
        let order = StartAgent {
            id: ProcessId(1),
            program: "agent".into(),
            ticket: Blob::default(),
            stage_base: None,
        };
        drop(guard.policy.handle(Event::Said(ToGuard::StartAgent(order)), Instant::now()));
        drop(guard.policy.handle(Event::Started(ProcessId(1), pid), Instant::now()));
        guard.children.insert(pid, agent.into());
        let mut events = Vec::new();
        let late = Instant::now() + PATIENCE;
        while events.is_empty() {
            assert!(Instant::now() < late, "the agent does not end");
            guard.take_ended(&mut events);
            std::thread::yield_now();
        }
        assert!(guard.decide(Event::ToolGone), "the policy takes it for alive");
        guard.kill_group(pid);
        input.write_all(b"still here").unwrap();
        drop(input);
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert_eq!(said, "still here", "its group was killed");
    }

    #[test]
    fn a_step_that_says_more_than_a_pipe_holds_ends_and_its_last_words_are_told() {
        let mut guard = idle();
        // Another thread of this process could take SIGCHLD. Only this thread gets what it sends to itself.
        let stand_in = SigSet::from(Signal::SIGUSR1);
        stand_in.thread_block().unwrap();
        guard.children_ended = SignalFd::with_flags(&stand_in, SfdFlags::SFD_NONBLOCK).unwrap();
        let (tool, mut told) = UnixStream::pair().unwrap();
        guard.tool = Some(tool);
        let script =
            "i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo $i: a node says why >&2; done; exit 3";
        let (id, argv) = (ProcessId(1), ["/bin/sh", "-c", script].map(Into::into).to_vec());
        let step = StartStep { id, argv, env: Vec::new(), ticket: Blob::default() };
        guard.decide(Event::Said(ToGuard::StartStep(step)));
        guard.decide(Event::Said(ToGuard::AgentsThere));
        // A step that does not end is killed after a while.
        guard.decide(Event::ToolGone);
        let late = Instant::now() + PATIENCE / 2;
        while guard.turn().unwrap() {
            if guard.children.values().all(|child| child.stderr.is_none()) || Instant::now() > late {
                raise(Signal::SIGUSR1).unwrap();
            }
        }
        drop(guard);
        let (mut bytes, mut said, mut messages) = (Vec::new(), FrameBuffer::new(), Vec::new());
        told.read_to_end(&mut bytes).unwrap();
        said.push(&bytes).unwrap();
        while let Some(message) = said.next_message().unwrap() {
            messages.push(message);
        }
        let Some(FromGuard::Exited { status, last_words, .. }) = messages.pop() else {
            panic!("{messages:?}")
        };
        assert_eq!(status, ExitStatus::Code(3));
        assert!(last_words.ends_with("\n5000: a node says why"), "{last_words}");
    }

    #[test]
    fn a_sweep_that_hangs_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        let started = Instant::now();
        sweep(program.as_os_str(), None);
        assert!(started.elapsed() < 4 * SWEEP_DEADLINE);
    }
}
