//! One started program: its lines and JSON events as they arrive, and its end. All waits have timeouts.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::proc::{self, Pidfd};

/// A program that was started by a [`World`](crate::World). Dropping it kills it, and only it.
#[derive(Debug)]
pub struct Run {
    pid: i32,
    line: String,
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
    news: Receiver<News>,
    seen: Seen,
    /// Lines of stdout before this one have been handed out by `next_line` or `next_event`.
    taken: usize,
}

/// How a program ended and everything that it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// All lines of stdout.
    pub stdout: Vec<String>,
    /// All lines of stderr.
    pub stderr: Vec<String>,
}

impl Finished {
    /// The exit code. If a signal ended it: 128 plus the signal's number, as in a shell.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// The lines of stdout that are JSON objects.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.stdout.iter().filter_map(|line| parse_event(line)).collect()
    }
}

/// The events of a program.
#[derive(Debug)]
enum News {
    Out(String),
    Err(String),
    /// All writers have closed stdout, or stderr.
    OutEnded,
    ErrEnded,
    Exited(ExitStatus),
}

/// The events so far.
#[derive(Debug, Default)]
struct Seen {
    stdout: Vec<String>,
    stderr: Vec<String>,
    out_ended: bool,
    err_ended: bool,
    status: Option<ExitStatus>,
}

impl Seen {
    fn hear(&mut self, news: News) {
        match news {
            News::Out(line) => self.stdout.push(line),
            News::Err(line) => self.stderr.push(line),
            News::OutEnded => self.out_ended = true,
            News::ErrEnded => self.err_ended = true,
            News::Exited(status) => self.status = Some(status),
        }
    }
}

impl Run {
    #[track_caller]
    pub(crate) fn spawn(mut command: Command) -> Self {
        let program = command.get_program().to_owned();
        let words = std::iter::once(program.as_os_str()).chain(command.get_args());
        let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let pid = i32::try_from(child.id()).expect("a pid");
        let (tell, news) = channel();
        listen(child.stdout.take(), tell.clone(), News::Out, News::OutEnded);
        listen(child.stderr.take(), tell.clone(), News::Err, News::ErrEnded);
        let stdin = child.stdin.take();
        let child = Arc::new(Mutex::new(child));
        reap(pid, Arc::clone(&child), tell);
        Self { pid, line, child, stdin, news, seen: Seen::default(), taken: 0 }
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to this process only, not to its children.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        proc::send(self.pid, signal);
    }

    /// Kills it with SIGKILL; that it has ended already is fine. Does not wait.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // std knows whether it was waited for, so that no other process can be hit; an error means that it was.
        drop(child.kill());
    }

    /// Writes to its stdin. Waits while the pipe is full.
    ///
    /// # Panics
    /// When it no longer reads, or stdin was closed.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap_or_else(|| panic!("stdin of {} is closed", self.line));
        let written = stdin.write_all(bytes).and_then(|()| stdin.flush());
        written.unwrap_or_else(|error| panic!("stdin of {}: {error}", self.line));
    }

    /// Lets it see the end of its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of stdout that was not returned yet.
    ///
    /// # Panics
    /// When none arrives before `timeout`, or stdout has ended; with all output so far.
    #[track_caller]
    pub fn next_line(&mut self, timeout: Duration) -> String {
        match self.find_line(timeout, |line| Some(line.to_owned())) {
            Ok(line) => line,
            Err(why) => self.fail("no further line", why),
        }
    }

    /// The next JSON event with this name (`{"event":NAME,...}`). Earlier events are skipped, and stay in
    /// [`Run::stdout`].
    ///
    /// # Panics
    /// When it does not arrive before `timeout`, or stdout has ended; with all output so far.
    #[track_caller]
    pub fn next_event(&mut self, name: &str, timeout: Duration) -> Value {
        let found = self.find_line(timeout, |line| parse_event(line).filter(|event| event["event"] == name));
        match found {
            Ok(event) => event,
            Err(why) => self.fail(&format!("no event {name:?}"), why),
        }
    }

    /// Waits for a line of stderr that contains `part`, and returns it.
    ///
    /// # Panics
    /// When it does not arrive before `timeout`, or stderr has ended; with all of stderr so far.
    #[track_caller]
    pub fn stderr_line(&mut self, part: &str, timeout: Duration) -> String {
        let end = Instant::now() + timeout;
        loop {
            if let Some(line) = self.seen.stderr.iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            if self.seen.err_ended {
                self.fail(&format!("no {part:?} on stderr"), "which has ended");
            }
            if !self.hear(end) {
                self.fail(&format!("no {part:?} on stderr"), &format!("after {timeout:?}"));
            }
        }
    }

    /// Every line of stdout so far.
    pub fn stdout(&mut self) -> &[String] {
        self.drain();
        &self.seen.stdout
    }

    /// Every line of stderr so far.
    pub fn stderr(&mut self) -> &[String] {
        self.drain();
        &self.seen.stderr
    }

    /// Every JSON event so far, in order.
    pub fn events(&mut self) -> Vec<Value> {
        self.drain();
        self.seen.stdout.iter().filter_map(|line| parse_event(line)).collect()
    }

    /// Waits for its end and for the end of its output. Leaves stdin unchanged.
    ///
    /// This fails if another process inherited its output and lives on: a program that returns must not leave writers
    /// of its caller's pipes.
    ///
    /// # Panics
    /// When it has not ended, or another process still holds its output, at `timeout`.
    #[track_caller]
    pub fn wait(&mut self, timeout: Duration) -> Finished {
        let end = Instant::now() + timeout;
        loop {
            let seen = &self.seen;
            if let (Some(status), true, true) = (seen.status, seen.out_ended, seen.err_ended) {
                return Finished { status, stdout: seen.stdout.clone(), stderr: seen.stderr.clone() };
            }
            if !self.hear(end) {
                let what =
                    if self.seen.status.is_some() { "ended, but its output is held open" } else { "no end" };
                self.fail(what, &format!("after {timeout:?}"));
            }
        }
    }

    /// Waits for its end only, even if other processes hold its output.
    ///
    /// # Panics
    /// When it has not ended at `timeout`.
    #[track_caller]
    pub fn exited(&mut self, timeout: Duration) -> ExitStatus {
        let end = Instant::now() + timeout;
        loop {
            if let Some(status) = self.seen.status {
                return status;
            }
            if !self.hear(end) {
                self.fail("no end", &format!("after {timeout:?}"));
            }
        }
    }

    /// Looks through the lines of stdout from the first that was not handed out yet.
    fn find_line<T>(
        &mut self,
        timeout: Duration,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, &'static str> {
        let end = Instant::now() + timeout;
        loop {
            while let Some(line) = self.seen.stdout.get(self.taken) {
                self.taken += 1;
                if let Some(found) = pick(line) {
                    return Ok(found);
                }
            }
            if self.seen.out_ended {
                return Err("on stdout, which has ended");
            }
            if !self.hear(end) {
                return Err("before the deadline");
            }
        }
    }

    /// Waits for one piece of news. False: the timeout has expired.
    fn hear(&mut self, end: Instant) -> bool {
        match self.news.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(news) => self.seen.hear(news),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn drain(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            self.seen.hear(news);
        }
    }

    #[track_caller]
    fn fail(&mut self, what: &str, why: &str) -> ! {
        self.drain();
        let state =
            proc::state(self.pid).map_or_else(|| "gone".to_owned(), |state| format!("in state {state}"));
        let mut text = format!("{what} {why}\n  of {} (pid {}, {state}", self.line, self.pid);
        let status = self.seen.status.map_or_else(String::new, |status| format!(", {status}"));
        text += &format!("{status})\n");
        for (name, lines) in [("stdout", &self.seen.stdout), ("stderr", &self.seen.stderr)] {
            for line in lines {
                text += &format!("  {name}: {line}\n");
            }
        }
        panic!("{text}")
    }
}

/// Kills it, by pid; the thread that waits for it reaps it.
impl Drop for Run {
    fn drop(&mut self) {
        self.kill();
    }
}

fn parse_event(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok().filter(Value::is_object)
}

/// Reads lines on a thread until all writers have closed. A failed send means that the `Run` is gone.
fn listen<R: Read + Send + 'static>(
    source: Option<R>,
    tell: Sender<News>,
    line: fn(String) -> News,
    ended: News,
) {
    let Some(source) = source else { return };
    thread::spawn(move || {
        let mut reader = BufReader::new(source);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned();
            bytes.clear();
            if tell.send(line(text)).is_err() {
                return;
            }
        }
        drop(tell.send(ended));
    });
}

/// Waits for the end on a thread and reaps at once, so that a zombie is not taken for a leak. A pidfd reports the end
/// without the lock, so `kill` stays possible meanwhile.
fn reap(pid: i32, child: Arc<Mutex<Child>>, tell: Sender<News>) {
    let process = Pidfd::open(pid).expect("a pidfd of our own child");
    thread::spawn(move || {
        while !process.wait_end(Duration::from_secs(3600)) {}
        let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
        if let Ok(status) = status {
            drop(tell.send(News::Exited(status)));
        }
    });
}
