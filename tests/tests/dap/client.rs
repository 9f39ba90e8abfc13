//! A minimal client of the Debug Adapter Protocol for the tests.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gantry_tests::{World, becomes_true};
use serde_json::{Value, json};

/// The timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Editor {
    to: Box<dyn Write>,
    news: Receiver<Value>,
    seq: i64,
    /// Events and requests that no caller has taken yet.
    pub(crate) kept: VecDeque<Value>,
    child: Option<Child>,
}

impl Editor {
    /// Starts `gantry dap`.
    pub(crate) fn start(world: &World) -> Self {
        Self::start_with(world.gantry_command(["dap"]))
    }

    /// Starts an adapter with this command.
    pub(crate) fn start_with(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gantry dap");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut editor = Self::of(to, from);
        editor.child = Some(child);
        editor
    }

    /// Connects to an adapter's port.
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let from = stream.try_clone().expect("a second handle");
        Self::of(stream, from)
    }

    fn of(to: impl Write + 'static, from: impl Read + Send + 'static) -> Self {
        let (send, news) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            while let Some(message) = read(&mut from) {
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        Self { to: Box::new(to), news, seq: 0, kept: VecDeque::new(), child: None }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().expect("a process").id()).expect("a pid")
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).expect("it is read");
        self.to.flush().expect("it is read");
    }

    pub(crate) fn send(&mut self, command: &str, arguments: Value) -> i64 {
        self.seq += 1;
        let message =
            json!({ "seq": self.seq, "type": "request", "command": command, "arguments": arguments });
        let body = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        self.seq
    }

    /// Waits for the next matching message. Keeps all others.
    #[track_caller]
    pub(crate) fn next(&mut self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&is_meant) {
            return self.kept.remove(at).expect("it is there");
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(message) = self.news.recv_timeout(left) else {
                panic!("no {what}; what came: {:?}", self.kept);
            };
            if is_meant(&message) {
                return message;
            }
            self.kept.push_back(message);
        }
    }

    /// Sends a request and returns the response, even if it is an error.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments);
        self.next(command, |it| it["type"] == "response" && it["request_seq"] == seq)
    }

    /// Sends a request that must succeed and returns the response's body.
    #[track_caller]
    pub(crate) fn done(&mut self, command: &str, arguments: Value) -> Value {
        let response = self.ask(command, arguments);
        assert_eq!(response["success"], true, "{response}");
        response["body"].clone()
    }

    #[track_caller]
    pub(crate) fn event(&mut self, name: &str) -> Value {
        self.next(name, |it| it["event"] == name)["body"].clone()
    }

    /// Starts a session with a configuration, up to the point where breakpoints can be set.
    #[track_caller]
    pub(crate) fn begin(&mut self, request: &str, configuration: Value) {
        self.done("initialize", json!({ "adapterID": "gantry", "supportsStartDebuggingRequest": true }));
        self.done(request, configuration);
        self.event("initialized");
    }

    /// Waits until a thread has this name, and returns its number.
    #[track_caller]
    pub(crate) fn thread(&mut self, name: &str) -> i64 {
        let mut last = Value::Null;
        let mut found = None;
        let came = becomes_true(PATIENCE, || {
            last = self.done("threads", json!({}));
            let threads = last["threads"].as_array().expect("threads");
            found = threads.iter().find(|it| it["name"] == name).and_then(|it| it["id"].as_i64());
            found.is_some()
        });
        found.filter(|_| came).unwrap_or_else(|| panic!("no thread '{name}': {last}"))
    }

    #[track_caller]
    pub(crate) fn frames(&mut self, thread: i64) -> Vec<Value> {
        let stack = self.done("stackTrace", json!({ "threadId": thread }));
        stack["stackFrames"].as_array().expect("frames").clone()
    }

    /// The variables that a reference stands for.
    #[track_caller]
    pub(crate) fn variables(&mut self, reference: &Value) -> Vec<Value> {
        let body = self.done("variables", json!({ "variablesReference": reference }));
        body["variables"].as_array().expect("variables").clone()
    }

    /// The answer to a line that is typed at the prompt.
    #[track_caller]
    pub(crate) fn typed(&mut self, line: &str) -> String {
        let body = self.done("evaluate", json!({ "expression": line, "context": "repl" }));
        body["result"].as_str().expect("a text").to_owned()
    }

    /// Waits for output of ranks that contains this text.
    #[track_caller]
    pub(crate) fn output(&mut self, part: &str) {
        self.next(part, |it| {
            it["event"] == "output" && it["body"]["output"].as_str().is_some_and(|text| text.contains(part))
        });
    }

    /// Disconnects and waits for the adapter to exit.
    #[track_caller]
    pub(crate) fn leave(mut self, arguments: Value) {
        self.done("disconnect", arguments);
        assert!(self.ended().success());
    }

    /// Waits for the adapter to exit.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("a process");
        let mut status = None;
        assert!(becomes_true(PATIENCE, || {
            status = child.try_wait().expect("a child");
            status.is_some()
        }));
        status.expect("it has ended")
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn read(from: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", number)) => length = number.parse().ok()?,
            _ if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}
