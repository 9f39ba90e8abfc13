//! The time to launch an app, to start a daemon, and to release ranks. Each is compared to the plainest way to do the
//! same, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench launch             # all
//! cargo bench -p gantry-tests --bench launch -- daemon   # launch, daemon, release or crowd alone
//! ```
//!
//! Both columns of a row are measured in turns, so a busy moment of the machine affects both. Prints a Markdown table.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(
    clippy::disallowed_methods,
    reason = "the plain way starts programs itself and looks until something is so"
)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{App, Config, DaemonRequest, Frontend, LaunchRequest, Session};
use gantry_tests::measured::{Measurement, machine};
use gantry_tests::{binaries, proc};
use gantry_types::id::Pid;
use gantry_types::output::DaemonOutput;
use nix::sys::stat::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

const DEADLINE: Duration = Duration::from_secs(60);
const TRUE: &str = "/bin/true";

/// Besieged launches are measured in a network namespace, where the crowd reaches no other program. This argument
/// selects that part of the bench.
const BESIEGED: &str = "besieged";

#[tokio::main]
async fn main() -> gantry_frontend::Result<()> {
    let helpers = &binaries().dir;
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if only == BESIEGED {
        let folder = tempfile::tempdir().expect("a temporary folder");
        return Bench::new(folder.path()).besieged(64, 16, 10).await;
    }
    let wanted = |name: &str| name.contains(&only);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bench = Bench::new(folder.path());
    println!(
        "command: cargo bench -p gantry-tests --bench launch\nmachine: {}\nhelpers: {}\n",
        machine(),
        helpers.display()
    );
    println!("| what | gantry | plain | ratio | difference | plain way |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for (ranks, rounds) in [(1, 30), (64, 20), (512, 3)].into_iter().filter(|_| wanted("launch")) {
        bench.launch(ranks, rounds).await?;
    }
    if wanted("daemon") {
        bench.daemons(50).await?;
    }
    if wanted("release") {
        bench.release(512, 5).await?;
    }
    if wanted("crowd") {
        let exe = std::env::current_exe().expect("this bench");
        let script = format!("ip link set lo up && ulimit -n $(ulimit -Hn) && exec \"$0\" {BESIEGED}");
        let ran = Command::new("unshare").args(["--net", "sh", "-c", &script]).arg(exe).status();
        if !ran.is_ok_and(|status| status.success()) {
            println!(
                "| launches beside a crowd: not measured, which takes root and a network namespace | | | | | |"
            );
        }
    }
    Ok(())
}

/// Where all apps of this bench live.
struct Bench {
    frontend: Frontend,
    fifo: PathBuf,
    /// Starts a [`PlainRelease`] when it exists.
    go: PathBuf,
}

impl Bench {
    fn new(folder: &Path) -> Self {
        let [fifo, go] = ["fifo", "go"].map(|name| folder.join(name));
        for path in [&fifo, &go] {
            nix::unistd::mkfifo(path, Mode::S_IRWXU).expect("a FIFO");
        }
        let config = Config {
            stage_base: Some(folder.to_path_buf()),
            runtime_dir: Some(folder.join("runtime")),
            ..Config::default()
        };
        Self { frontend: Frontend::new(config), fifo, go }
    }

    async fn held(&self, ranks: usize, program: &[&str]) -> gantry_frontend::Result<App> {
        let ranks = ranks.to_string();
        let args = ["-n", &ranks].into_iter().chain(program.iter().copied());
        self.frontend.launch(LaunchRequest::new(args).hold(true), DEADLINE).await
    }

    /// A whole life: launched held, released, waited for; against programs that are started at once and waited for.
    async fn launch(&self, ranks: usize, rounds: usize) -> gantry_frontend::Result<()> {
        let (mut whole, mut held, mut released, mut closed) =
            (Row::default(), Row::default(), Row::default(), Row::default());
        for _ in 0..rounds {
            let start = Instant::now();
            let app = self.held(ranks, &[TRUE]).await?;
            held.gantry.push(start.elapsed());
            let release = Instant::now();
            app.release(DEADLINE).await?;
            app.wait().await?;
            released.gantry.push(release.elapsed());
            whole.gantry.push(start.elapsed());
            let close = Instant::now();
            app.close(DEADLINE).await?;
            closed.gantry.push(close.elapsed());

            let start = Instant::now();
            for _ in 0..ranks {
                wait(&mut spawn(&[TRUE]));
            }
            whole.plain.push(start.elapsed());
            let start = Instant::now();
            let mut children: Vec<Child> = (0..ranks).map(|_| spawn(&[TRUE])).collect();
            held.plain.push(start.elapsed());
            children.iter_mut().for_each(wait);
        }
        whole.keep(
            &ranks.to_string(),
            &format!("launch held, release, wait for the end: {ranks} x `{TRUE}`"),
            "fork, exec, wait in a loop",
        );
        whole.print(&format!("launch held, release, wait: {ranks} x {TRUE}"), "fork, exec, wait in a loop");
        held.print(&format!("- of it: until {ranks} are held"), "fork, exec in a loop");
        released.print("- of it: from the release to the end of all", "");
        closed.print("- and then: closing, until nothing is left", "");
        Ok(())
    }

    /// A launch while another user makes 2,000 hostile connections to its socket and some to those of its agents,
    /// compared to a launch alone.
    async fn besieged(&self, ranks: usize, nodes: usize, rounds: usize) -> gantry_frontend::Result<()> {
        let mut row = Row::default();
        let (ranks, nodes) = (ranks.to_string(), nodes.to_string());
        for plain in (0..rounds).flat_map(|_| [false, true]) {
            let crowd = (!plain).then(|| {
                let mut crowd = Command::new(env!("CARGO_BIN_EXE_crowd"));
                crowd.args(["65534", "2000", "100"]).stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut crowd = crowd.spawn().expect("the crowd");
                let mut ready = [0; 6];
                crowd.stdout.as_mut().expect("its output").read_exact(&mut ready).expect("its first word");
                crowd
            });
            let start = Instant::now();
            let request = LaunchRequest::new(["-n", &ranks, "-N", &nodes, TRUE]).hold(true);
            let app = self.frontend.launch(request, DEADLINE).await?;
            row.push(plain, start.elapsed());
            if let Some(mut crowd) = crowd {
                drop(crowd.stdin.take());
                wait(&mut crowd);
            }
            app.close(DEADLINE).await?;
        }
        row.print(
            &format!("launch held, {ranks} ranks on {nodes} nodes, beside 2,000 hostile connections"),
            "the same, alone",
        );
        Ok(())
    }

    /// A daemon's start: until its first byte on a FIFO that it opens, and until its first byte of output in the tool.
    async fn daemons(&self, rounds: usize) -> gantry_frontend::Result<()> {
        let app = self.held(4, &["/bin/sleep", "600"]).await?;
        let session = app.session(DEADLINE).await?;
        let script = format!("echo > {}", self.fifo.display());
        let mut fifo = pipe::OpenOptions::new().read_write(true).open_receiver(&self.fifo).expect("the FIFO");
        let (mut first, mut started, mut heard) = (Row::default(), Row::default(), Row::default());
        for _ in 0..rounds {
            let fresh = app.session(DEADLINE).await?;
            first.gantry.push(until_fifo(&fresh, &script, &mut fifo).await?);
            started.gantry.push(until_fifo(&session, &script, &mut fifo).await?);
            let mut byte = [0];
            for row in [&mut first, &mut started] {
                let start = Instant::now();
                let mut child = spawn(&["/bin/sh", "-c", &script]);
                fifo.read_exact(&mut byte).await.expect("a byte");
                row.plain.push(start.elapsed());
                wait(&mut child);
            }
            heard.gantry.push(until_output(&session).await?);
            let start = Instant::now();
            let mut child =
                Command::new("/bin/echo").arg("here").stdout(Stdio::piped()).spawn().expect("echo");
            let mut output = child.stdout.take().expect("a pipe");
            output.read_exact(&mut byte).expect("a byte");
            heard.plain.push(start.elapsed());
            wait(&mut child);
            fresh.destroy(DEADLINE).await?;
        }
        started.keep("daemon-start", "daemon in a session, to its first instruction", "fork, exec");
        heard.keep(
            "daemon-output",
            "daemon in a session, to its first output in the tool",
            "fork, exec, pipe",
        );
        started.print("daemon start in a session, to its first byte on a FIFO (sh)", "fork, exec");
        first.print("the first daemon in a new session, to its first byte on a FIFO (sh)", "fork, exec");
        heard.print(
            "daemon start in a session, to its first byte of output in the tool (echo)",
            "fork, exec, pipe",
        );
        app.close(DEADLINE).await
    }

    /// From the call of release, compared to SIGCONT sent in a loop to ranks that are held in the same way.
    ///
    /// A daemon sends those signals, because the kernel may divide the processors among sessions (sched(7),
    /// autogroups). A process of another session has half of them for itself. The agent competes with the ranks of its
    /// session.
    async fn release(&self, ranks: usize, rounds: usize) -> gantry_frontend::Result<()> {
        let (mut answered, mut seen, mut ended) = (Row::default(), Row::default(), Row::default());
        for plain in (0..rounds).flat_map(|_| [false, true]) {
            let app = self.held(ranks, &["/bin/sleep", "600"]).await?;
            let pids = pids_of(&app);
            // It looks meanwhile: the return of the call would wait behind 512 ranks that want a processor.
            let watched = pids.clone();
            let mut way = if plain { Some(self.plain_release(&app, &pids).await?) } else { None };
            let watcher = std::thread::spawn(move || until_none_stopped(&watched));
            let start = Instant::now();
            let_go(&app, way.as_mut()).await?;
            answered.push(plain, start.elapsed());
            let running = watcher.join().expect("the watcher");
            seen.push(plain, running.saturating_duration_since(start));
            app.close(DEADLINE).await?;

            let app = self.held(ranks, &[TRUE]).await?;
            let mut way = if plain { Some(self.plain_release(&app, &pids_of(&app)).await?) } else { None };
            let start = Instant::now();
            let_go(&app, way.as_mut()).await?;
            app.wait().await?;
            ended.push(plain, start.elapsed());
            app.close(DEADLINE).await?;
        }
        let way = "SIGCONT in a loop, by a process of the same session";
        ended.keep("release-end", &format!("release of {ranks} ranks, until all have run to their end"), way);
        seen.keep("release-seen", &format!("release of {ranks} sleepers, until none is stopped"), way);
        ended.print(&format!("release of {ranks} held ranks, until all have run to their end ({TRUE})"), way);
        seen.print(&format!("release of {ranks} held ranks, until none is stopped (/bin/sleep)"), way);
        answered.print("- of it: until the call returns", way);
        Ok(())
    }

    /// Starts the daemon, and waits until it waits.
    async fn plain_release(&self, app: &App, pids: &[i32]) -> gantry_frontend::Result<PlainRelease> {
        let mut options = pipe::OpenOptions::new();
        let go = options.read_write(true).open_sender(&self.go).expect("the FIFO");
        let mut done = options.open_receiver(&self.fifo).expect("the FIFO");
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        let (pids, done_path, go_path) = (pids.join(" "), self.fifo.display(), self.go.display());
        let script =
            format!("echo > {done_path}; read go < {go_path}; kill -CONT {pids}; echo > {done_path}");
        let session = app.session(DEADLINE).await?;
        session.manifest().exec_daemon(DaemonRequest::new("/bin/sh").args(["-c", &script]), DEADLINE).await?;
        done.read_exact(&mut [0]).await.expect("a byte");
        Ok(PlainRelease { _session: session, go, done })
    }
}

/// A daemon that sends SIGCONT to all ranks on request.
struct PlainRelease {
    /// Its daemon lives as long as this.
    _session: Session,
    go: pipe::Sender,
    done: pipe::Receiver,
}

async fn let_go(app: &App, plain: Option<&mut PlainRelease>) -> gantry_frontend::Result<()> {
    let Some(plain) = plain else { return app.release(DEADLINE).await };
    plain.go.write_all(b"\n").await.expect("the daemon reads");
    plain.done.read_exact(&mut [0]).await.expect("a byte");
    Ok(())
}

fn pids_of(app: &App) -> Vec<i32> {
    app.placement().iter().map(|rank| rank.pid.map_or(0, Pid::get)).collect()
}

/// From the call to a byte on the FIFO that the daemon opens.
async fn until_fifo(
    session: &Session,
    script: &str,
    fifo: &mut pipe::Receiver,
) -> gantry_frontend::Result<Duration> {
    let start = Instant::now();
    let request = DaemonRequest::new("/bin/sh").args(["-c", script]);
    let mut byte = [0];
    let (daemon, there) = tokio::join!(session.manifest().exec_daemon(request, DEADLINE), async {
        let read = fifo.read_exact(&mut byte).await;
        read.map(|_| start.elapsed())
    });
    daemon?.wait().await;
    Ok(there.expect("a byte"))
}

/// From the call to the first byte of the daemon's output here.
async fn until_output(session: &Session) -> gantry_frontend::Result<Duration> {
    let start = Instant::now();
    let request = DaemonRequest::new("/bin/echo").args(["here"]).output(DaemonOutput::Forward);
    let daemon = session.manifest().exec_daemon(request, DEADLINE).await?;
    let mut output = daemon.take_output().expect("its output");
    output.next().await.expect("a piece of output");
    let there = start.elapsed();
    daemon.wait().await;
    Ok(there)
}

fn spawn(program: &[&str]) -> Child {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}"))
}

fn wait(child: &mut Child) {
    assert!(child.wait().expect("our own child").success());
}

/// Polls one process after another until it is not stopped. Returns the time of the end.
fn until_none_stopped(pids: &[i32]) -> Instant {
    let end = Instant::now() + DEADLINE;
    for pid in pids {
        while proc::state(*pid) == Some('T') {
            assert!(Instant::now() < end, "process {pid} is still stopped");
            std::thread::yield_now();
        }
    }
    Instant::now()
}

/// The times of one line of the table.
#[derive(Default)]
struct Row {
    gantry: Vec<Duration>,
    plain: Vec<Duration>,
}

impl Row {
    fn push(&mut self, plain: bool, time: Duration) {
        if plain { self.plain.push(time) } else { self.gantry.push(time) }
    }

    /// Prints the row for the page of measurements.
    fn keep(&self, row: &str, what: &str, way: &str) {
        let ms = |times: &[Duration]| median(times.to_vec()).map(|time| time.as_secs_f64() * 1e3);
        if let (Some(gantry), Some(plain)) = (ms(&self.gantry), ms(&self.plain)) {
            println!("{}", Measurement { bench: "launch", row, what, gantry, plain, unit: "ms", way });
        }
    }

    fn print(self, what: &str, plain_way: &str) {
        let rounds = self.gantry.len();
        let (gantry, plain) = (median(self.gantry), median(self.plain));
        let compared = match (gantry, plain) {
            (Some(gantry), Some(plain)) => {
                let ratio = gantry.as_secs_f64() / plain.as_secs_f64();
                let difference = (gantry.as_secs_f64() - plain.as_secs_f64()) * 1e3;
                format!("{} | {} | {ratio:.1} | {difference:+.2} ms", show(gantry), show(plain))
            }
            (gantry, _) => format!("{} | | |", gantry.map(show).unwrap_or_default()),
        };
        println!("| {what} (median of {rounds}) | {compared} | {plain_way} |");
    }
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

fn show(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
