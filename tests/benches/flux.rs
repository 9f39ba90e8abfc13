//! How fast an app is launched held under Flux, with a daemon on every node: beside one bare `flux run`, and beside Flux's own hold, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench flux           # 4 and 16 brokers
//! cargo bench -p gantry-tests --bench flux -- 4      # this number of brokers
//! ```
//!
//! For each number a testbed is made, and everything runs on its login node, two ranks on a node, in turns, so that a busy moment of the machine hits all alike.
//! All nodes share this machine's cores: ratios are what to look at. It needs root and Flux; prints a Markdown table of medians.
//!
//! Flux's own hold is the shell's option `stop-tasks-in-exec`: its time is that until `flux job hostpids` has told of every stopped rank, as a debugger waits for
//! it.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{Config as Choices, DaemonRequest, Frontend, LaunchRequest};
use gantry_tests::binaries;
use gantry_tests::measured::Measurement;
use gantry_tests::testbed::flux::installation;
use gantry_tests::testbed::{Config, Testbed, usable};

const DEADLINE: Duration = Duration::from_secs(60);
const TRUE: &str = "/bin/true";

/// The first argument of the part of this bench that runs on the login node.
const INSIDE: &str = "--inside";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut asked: Vec<u16> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if args.iter().any(|arg| arg == INSIDE) {
        return asked.into_iter().for_each(measure);
    }
    if asked.is_empty() {
        asked = vec![4, 16];
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench flux\nmachine: {cores} cores");
    println!("helpers: {}\n", binaries().dir.display());
    println!("| nodes | what | time | plain way | its time | ratio | goal |");
    println!("| ---: | --- | ---: | --- | ---: | ---: | ---: |");
    for nodes in asked {
        let config = installation().map(|installed| Config::with_nodes(0).and_by_flux(installed, nodes));
        let config = match config.and_then(|config| usable(&config).map(|()| config)) {
            Ok(config) => config,
            Err(why) => return println!("not measured: {why}"),
        };
        let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
        let exe = std::env::current_exe().expect("this program");
        let mut inside = bed.login().command_in("/", exe).expect("the login node");
        finish(inside.args([INSIDE, &nodes.to_string()]));
    }
}

/// The times of one number of nodes.
#[derive(Debug, Default)]
struct Times {
    bare: Vec<Duration>,
    stopped: Vec<Duration>,
    held: Vec<Duration>,
    with_daemon: Vec<Duration>,
}

fn measure(nodes: u16) {
    let rounds = if nodes > 8 { 9 } else { 15 };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let choices = Choices { runtime_dir: Some(folder.path().join("runtime")), ..Choices::default() };
    let frontend = Frontend::new(Choices { wlm: Some("flux".to_owned()), ..choices });
    let mut times = Times::default();
    for round in 0..=rounds {
        let start = Instant::now();
        finish(Command::new("flux").arg("run").args(ranks(nodes)).arg(TRUE));
        times.bare.push(start.elapsed());
        times.stopped.push(stopped_by_flux(nodes));
        runtime.block_on(held(&frontend, nodes, &mut times)).expect("a launch");
        if round == 0 {
            // Nothing is in any cache yet.
            times = Times::default();
        }
    }
    print(nodes, times);
}

fn ranks(nodes: u16) -> [String; 2] {
    [format!("-N{nodes}"), format!("-n{}", 2 * nodes)]
}

/// Flux's own hold.
fn stopped_by_flux(nodes: u16) -> Duration {
    let start = Instant::now();
    let mut submit = Command::new("flux");
    submit.arg("submit").args(ranks(nodes)).args(["-o", "stop-tasks-in-exec", TRUE]);
    let submitted = submit.stdin(Stdio::null()).output().expect("flux submit");
    let job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    let told = Command::new("flux").args(["job", "hostpids", &job]).stdin(Stdio::null()).output();
    let told = told.expect("flux job hostpids");
    let time = start.elapsed();
    assert_eq!(told.stdout.iter().filter(|byte| **byte == b':').count(), usize::from(2 * nodes), "{told:?}");
    finish(Command::new("flux").args(["job", "kill", "-s", "SIGCONT", &job]));
    finish(Command::new("flux").args(["job", "wait-event", "--quiet", &job, "clean"]));
    time
}

/// Held, and a daemon on every node; then all of it goes.
async fn held(frontend: &Frontend, nodes: u16, times: &mut Times) -> gantry_frontend::Result<()> {
    let start = Instant::now();
    let args = ranks(nodes).into_iter().chain([TRUE.to_owned()]);
    let app = frontend.launch(LaunchRequest::new(args).hold(true), DEADLINE).await?;
    times.held.push(start.elapsed());
    let session = app.session(DEADLINE).await?;
    let daemon = session.manifest().exec_daemon(DaemonRequest::new("/bin/sleep").args(["600"]), DEADLINE);
    assert_eq!(daemon.await?.processes().len(), usize::from(nodes));
    times.with_daemon.push(start.elapsed());
    session.destroy(DEADLINE).await?;
    app.release(DEADLINE).await?;
    app.wait().await?;
    app.close(DEADLINE).await
}

fn print(nodes: u16, times: Times) {
    let (bare, stopped) = (median(times.bare), median(times.stopped));
    let gantry = median(times.with_daemon.clone()).as_secs_f64() * 1e3;
    let what = format!("Flux, {nodes} nodes: held, and a daemon on every node");
    for (row, way, plain) in [
        ("held", "one flux run, to its end", bare),
        ("own hold", "flux submit with stop-tasks-in-exec, until all ranks are known", stopped),
    ] {
        let (row, plain) = (format!("{row} {nodes}"), plain.as_secs_f64() * 1e3);
        println!("{}", Measurement { bench: "flux", row: &row, what: &what, gantry, plain, unit: "ms", way });
    }
    let row = |what: &str, times: &[Duration], way: &str, plain: Duration, goal: &str| {
        let time = median(times.to_vec());
        let ratio = time.as_secs_f64() / plain.as_secs_f64();
        let rounds = times.len();
        let (time, plain) = (show(time), show(plain));
        println!(
            "| {nodes} | {what} (median of {rounds}) | {time} | {way} | {plain} | {ratio:.2} | {goal} |"
        );
    };
    row("launch until all are held", &times.held, "one flux run", bare, "");
    row("- and a daemon runs on every node", &times.with_daemon, "one flux run", bare, "1.2");
    row("launch until all are held", &times.held, "stop-tasks-in-exec", stopped, "");
    row("- and a daemon runs on every node", &times.with_daemon, "stop-tasks-in-exec", stopped, "1.2");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn show(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn finish(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().expect("started");
    assert!(status.success(), "{command:?}: {status}");
}
