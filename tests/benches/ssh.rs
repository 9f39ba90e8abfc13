//! How fast an app is launched held on hosts that are reached by ssh, through both clients: beside pdsh, which runs `true` there over the same ssh, in one run.
//!
//! ```sh
//! cargo build --release --features gantry-wlm/libssh2
//! GANTRY_BIN_DIR=$PWD/target/release cargo bench -p gantry-tests --bench ssh           # 4 and 16 hosts
//! GANTRY_BIN_DIR=$PWD/target/release cargo bench -p gantry-tests --bench ssh -- 4 64   # these numbers of hosts
//! ```
//!
//! For each number a testbed is made; everything runs on its login node in turns, so that a busy moment of the machine hits all alike. All hosts share this
//! machine's cores: ratios are what to look at. It needs root and pdsh; prints a Markdown table of medians.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{Config as Choices, Frontend, LaunchRequest};
use gantry_tests::binaries;
use gantry_tests::testbed::{Config, Testbed, usable};

const DEADLINE: Duration = Duration::from_secs(60);

/// The first argument of the part of this bench that runs on the login node.
const INSIDE: &str = "--inside";

/// The first argument of a single launch, in a process of its own: the client is chosen by its environment.
const ONCE: &str = "--once";

/// The variable that chooses the client, and what it may say.
const CLIENT: &str = "GANTRY_SSH";
const CLIENTS: [&str; 2] = ["openssh", "libssh2"];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == ONCE) {
        return once(&args[at + 1]);
    }
    let mut asked: Vec<u16> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if args.iter().any(|arg| arg == INSIDE) {
        return asked.into_iter().for_each(measure);
    }
    if asked.is_empty() {
        asked = vec![4, 16];
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench ssh\nmachine: {cores} cores");
    println!("helpers: {}\n", binaries().dir.display());
    println!("| hosts | what | time | ratio | goal |\n| ---: | --- | ---: | ---: | ---: |");
    for hosts in asked {
        let config = Config::with_nodes(hosts);
        if let Err(why) = usable(&config) {
            return println!("not measured: {why}");
        }
        let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
        let mut inside = bed.login().command_in("/", std::env::current_exe().expect("this program"));
        finish(inside.as_mut().expect("the login node").args([INSIDE, &hosts.to_string()]));
    }
}

fn measure(hosts: u16) {
    let rounds = if hosts <= 8 { 15 } else { 9 };
    let named = format!("n[001-{hosts:03}]");
    let mut plain = Vec::new();
    let mut ways: Vec<Vec<Duration>> = vec![Vec::new(); 2 * CLIENTS.len()];
    for round in 0..=rounds {
        let start = Instant::now();
        finish(Command::new("pdsh").args(["-R", "ssh", "-w", &named, "true"]));
        let pdsh = start.elapsed();
        let mut times = Vec::new();
        for ranks in ["", ":2"] {
            for client in CLIENTS {
                times.push(launch(&format!("{named}{ranks}"), client));
            }
        }
        // In the first round nothing is in any cache yet.
        if round > 0 {
            plain.push(pdsh);
            ways.iter_mut().zip(times).for_each(|(way, time)| way.push(time));
        }
    }
    let plain = median(plain);
    println!("| {hosts} | pdsh -R ssh true (median of {rounds}) | {} | 1 | |", show(plain));
    let whats = ["a rank on each", "two ranks on each"]
        .into_iter()
        .flat_map(|what| CLIENTS.map(|client| (what, client)));
    for ((what, client), times) in whats.zip(ways) {
        let time = median(times);
        let ratio = time.as_secs_f64() / plain.as_secs_f64();
        println!("| {hosts} | held by {client}, {what} | {} | {ratio:.2} | 1.5 |", show(time));
    }
}

/// How long it takes until ranks on these hosts are held.
fn launch(hosts: &str, client: &str) -> Duration {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let output =
        command.args([ONCE, hosts]).env(CLIENT, client).stdin(Stdio::null()).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let micros = text.trim().parse().unwrap_or_else(|_| panic!("{client}: {output:?}"));
    Duration::from_micros(micros)
}

/// One launch, held and ended; prints how many microseconds passed until it was held.
fn once(hosts: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let choices = Choices { runtime_dir: Some(folder.path().join("runtime")), ..Choices::default() };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let frontend = Frontend::new(choices);
    let request = LaunchRequest::new(["--hosts", hosts, "/bin/true"]).hold(true);
    let start = Instant::now();
    let held = runtime.block_on(async {
        let app = frontend.launch(request, DEADLINE).await?;
        let held = start.elapsed();
        app.release(DEADLINE).await?;
        app.wait().await?;
        app.close(DEADLINE).await?;
        Ok::<_, gantry_frontend::Error>(held)
    });
    println!("{}", held.expect("a launch").as_micros());
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn show(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn finish(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status().expect("started");
    assert!(status.success(), "{command:?}: {status}");
}
