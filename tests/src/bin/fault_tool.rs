//! A tool for tests that kill it. It executes commands from standard input, one per line. It prints a line of JSON for
//! each command, and for every event of its apps.
//!
//! | command | action |
//! | --- | --- |
//! | `launch ARGS` | launches |
//! | `hold ARGS` | launches held |
//! | `unread ARGS` | launches; the tool receives the ranks' output and does not read it |
//! | `attach TARGET` | attaches |
//! | `env NAME=VALUE` | sets a variable for the launches that follow; refused when it has no `=` |
//! | `session` | makes a session of the last app |
//! | `file PATH` | puts a file into the last session |
//! | `daemon PROGRAM ARGS` | starts a daemon in the last session |
//! | `log FOLDER PROGRAM ARGS` | as `daemon`, with its output in files of that folder of each node |
//! | `release`, `detach`, `close` | of the last app |
//! | `destroy` | of the last session |
//! | `coalloc SPEC` | requests a co-allocated job |
//! | `let-go`, `leave` | releases that job when all have checked in; detaches from it |
//! | `fork` | makes a child that has all its descriptors and does nothing |
//! | `ignore` | ignores SIGCHLD |
//!
//! A command's answer is `{"done":COMMAND,"ms":N,...}` or `{"failed":COMMAND,"ms":N,"kind":K,"message":M,"hint":H}`. At
//! the end of its input it ends without any clean-up, like a program that returns from main.
#![expect(clippy::disallowed_methods, reason = "a test program is the user: it reads its environment")]

use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gantry_frontend::coallocation::{Coallocator, Job, SubjobOutput, Unready};
use gantry_frontend::{
    App, Config, Daemon, DaemonRequest, Error, Frontend, LaunchRequest, OutputTo, Session,
};
use gantry_types::output::DaemonOutput;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

/// How long a command may take: `FAULT_TOOL_SECONDS`, or a minute.
static DEADLINE: LazyLock<Duration> = LazyLock::new(|| {
    let seconds = std::env::var("FAULT_TOOL_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
});

#[derive(Default)]
struct Tool {
    frontend: Frontend,
    env: Vec<String>,
    apps: Vec<App>,
    sessions: Vec<Session>,
    daemons: Vec<Daemon>,
    job: Option<Job>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let wlm = std::env::var("FAULT_TOOL_WLM").ok();
    let stage_base = std::env::var_os("FAULT_TOOL_STAGE").map(Into::into);
    let mut config = Config { wlm, stage_base, ..Config::default() };
    if let Some(radix) = std::env::var("FAULT_TOOL_RADIX").ok().and_then(|radix| radix.parse().ok()) {
        config.radix = radix;
    }
    let mut tool = Tool { frontend: Frontend::new(config), ..Tool::default() };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((command, args)) = words.split_first() else { continue };
        let start = Instant::now();
        let result = tool.obey(command, args).await;
        let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let answer = match result {
            Ok(Value::Object(mut said)) => {
                said.insert("done".to_owned(), json!(command));
                said.insert("ms".to_owned(), json!(ms));
                Value::Object(said)
            }
            Ok(other) => json!({"done": command, "ms": ms, "value": other}),
            Err(error) => json!({
                "failed": command, "ms": ms, "kind": error.kind(), "message": error.to_string(), "hint": error.hint(),
            }),
        };
        say(&answer)?;
    }
    // As when main returns: no orderly drop, and no waiting.
    std::mem::forget(tool);
    Ok(())
}

/// Prints whole lines, even from several threads.
fn say(line: &Value) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

impl Tool {
    async fn obey(&mut self, command: &str, args: &[&str]) -> Result<Value, Error> {
        match command {
            "launch" => self.launch(LaunchRequest::new(args.iter().copied())).await,
            "hold" => self.launch(LaunchRequest::new(args.iter().copied()).hold(true)).await,
            // The tool receives the ranks' output and never reads it.
            "unread" => self.launch(LaunchRequest::new(args.iter().copied()).output(OutputTo::Stream)).await,
            "attach" => {
                let app = self.frontend.attach(args.first().copied().unwrap_or_default(), *DEADLINE).await?;
                Ok(self.keep(app))
            }
            "env" => {
                let text = args.join(" ");
                drop(LaunchRequest::default().env_string(&text)?);
                self.env.push(text);
                Ok(Value::Null)
            }
            "session" => {
                let session = self.app()?.session(*DEADLINE).await?;
                let dirs = session.dirs(gantry_backend::NodeId(0)).cloned();
                self.sessions.push(session);
                Ok(json!({"root": dirs.map(|dirs| dirs.root)}))
            }
            "file" => {
                let session = self.sessions.last().ok_or_else(|| gone("session"))?;
                let mut manifest = session.manifest();
                manifest.add_file(args.first().copied().unwrap_or_default())?;
                manifest.send(*DEADLINE).await.map(|_| Value::Null)
            }
            "daemon" | "log" => {
                let mut words = args.iter().copied();
                let output = match command {
                    "log" => DaemonOutput::Log(words.next().unwrap_or_default().into()),
                    _ => DaemonOutput::Forward,
                };
                let program = words.next().ok_or_else(|| gone("program"))?;
                let session = self.sessions.last().ok_or_else(|| gone("session"))?;
                let request = DaemonRequest::new(program).args(words).output(output);
                let daemon = session.manifest().exec_daemon(request, *DEADLINE).await?;
                let pids: Vec<i32> = daemon.processes().iter().map(|(_, pid)| pid.get()).collect();
                let placement = self.app()?.placement();
                let host = |node| placement.host(node).map(str::to_owned);
                let hosts: Vec<_> = daemon.processes().iter().map(|(node, _)| host(*node)).collect();
                self.daemons.push(daemon);
                Ok(json!({"pids": pids, "hosts": hosts}))
            }
            "release" => self.app()?.release(*DEADLINE).await.map(|()| Value::Null),
            "detach" => {
                let app = self.apps.pop().ok_or_else(|| gone("app"))?;
                app.detach(*DEADLINE).await.map(|()| Value::Null)
            }
            "close" => {
                let app = self.apps.pop().ok_or_else(|| gone("app"))?;
                app.close(*DEADLINE).await.map(|()| Value::Null)
            }
            "destroy" => {
                let session = self.sessions.pop().ok_or_else(|| gone("session"))?;
                session.destroy(*DEADLINE).await.map(|()| Value::Null)
            }
            "coalloc" => {
                let coallocator = Coallocator::new(Config::default(), SubjobOutput::Null)?;
                self.job = Some(coallocator.request(&args.join(" "), *DEADLINE)?);
                Ok(Value::Null)
            }
            "let-go" => {
                let job = self.job.as_ref().ok_or_else(|| gone("job"))?;
                job.release(Unready::Await, *DEADLINE).await.map(|()| Value::Null)
            }
            "leave" => {
                let job = self.job.take().ok_or_else(|| gone("job"))?;
                job.detach(*DEADLINE).await.map(|()| Value::Null)
            }
            "fork" => Ok(json!({"pid": gantry_tests::fork_idle().map_err(failed)?})),
            "ignore" => gantry_tests::ignore_children().map(|()| Value::Null).map_err(failed),
            other => Err(Error::Invalid { message: format!("no command {other}"), hint: None }),
        }
    }

    async fn launch(&mut self, mut request: LaunchRequest) -> Result<Value, Error> {
        for text in &self.env {
            request = request.env_string(text)?;
        }
        let app = self.frontend.launch(request, *DEADLINE).await?;
        Ok(self.keep(app))
    }

    fn keep(&mut self, app: App) -> Value {
        let mut events = app.events();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if let Ok(value) = serde_json::to_value(event) {
                    // The reader may be gone.
                    drop(say(&value));
                }
            }
        });
        let info = app.info();
        let ranks = info.ranks.iter().filter_map(|rank| Some((rank.host.clone(), rank.pid?.get())));
        let (hosts, pids): (Vec<String>, Vec<i32>) = ranks.unzip();
        let said = json!({"app": app.id(), "pids": pids, "hosts": hosts});
        self.apps.push(app);
        said
    }

    fn app(&self) -> Result<&App, Error> {
        self.apps.last().ok_or_else(|| gone("app"))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::Invalid { message: error.to_string(), hint: None }
}

fn gone(what: &str) -> Error {
    Error::Gone { what: format!("the last {what}") }
}
