//! The cost of messages between a tool and its daemons over the tree, compared to a model: latency times depth, and
//! bytes.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench channel
//! ```
//!
//! Prints three Markdown tables.
//!
//! - *Simulated* agents, 64 to 16,384 in one process. Their links have 50 us and 1 GB/s in simulated time, so the
//!   results do not depend on this machine.
//! - *Real* agents and daemons, all on this machine. `ask` is 1 KB to each and the same back. `sum` is a reduction to
//!   two numbers. `broadcast` ends when every daemon has sent the hash of the bytes that it read. The model uses the
//!   latency and the speed of one node in the same run. All nodes share this machine's cores. So beyond a few nodes the
//!   work for each node costs more than the distance; the table has a column for the time per node.
//! - *How long others wait* while trees of many megabytes are merged.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "the simulation is a test of a program: cargo runs it")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::filter::Filter;
use gantry_frontend::{App, Channel, Config, DaemonRequest, Frontend, LaunchRequest, Policy, Session};

const DEADLINE: Duration = Duration::from_secs(120);
const LARGE_BYTES: usize = 20_000_000;
/// Nodes, radix, and how deep that is.
const TREES: [(u32, u32, u32); 6] = [(1, 64, 1), (4, 64, 1), (4, 2, 2), (16, 4, 2), (64, 64, 1), (64, 4, 3)];
const ROUNDS: usize = 21;
const LARGE_ROUNDS: usize = 3;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    simulate();
    // The helpers of the same profile are in this bench's folder.
    let _built = gantry_tests::binaries();
    println!(
        "\n| real agents: nodes | radix | depth | what | time | for each node | model | ratio |\n| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |"
    );
    let mut one = [Duration::ZERO; 3];
    for (nodes, radix, depth) in TREES {
        let times = measure(nodes, radix).await;
        if nodes == 1 {
            one = times;
        }
        let large = one[2].saturating_sub(one[0]);
        for (what, time, model) in [
            ("ask", times[0], one[0] * depth),
            ("sum", times[1], one[1] * depth),
            // Every node's bytes pass the same cores.
            ("broadcast of 20 MB", times[2], one[0] * depth + large * nodes),
        ] {
            let ratio = time.as_secs_f64() / model.as_secs_f64();
            println!(
                "| {nodes} | {radix} | {depth} | {what} | {time:.2?} | {:.2?} | {model:.2?} | {ratio:.2} |",
                time / nodes
            );
        }
    }
    wait_while_much_is_merged().await;
}

/// The agents' own simulation, which prints its rows.
fn simulate() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let folder = gantry_tests::target_dir();
    let mut test = Command::new(cargo);
    test.args([
        "test",
        "--quiet",
        "--profile",
        if cfg!(debug_assertions) { "test" } else { "bench" },
        "-p",
        "gantry-agent",
        "--lib",
        "--target-dir",
    ]);
    test.arg(folder).args(["simulated", "--", "--nocapture", "--test-threads", "1"]);
    let done = test
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::null())
        .output()
        .expect("cargo");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    println!(
        "| simulated: what | agents | time | model | ratio | busiest link, bytes | all links, bytes | this machine's time |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let rows: Vec<&str> =
        text.lines().map(|line| line.trim_start_matches('.')).filter(|line| line.starts_with("| ")).collect();
    assert!(!rows.is_empty(), "{text}");
    println!("{}", rows.join("\n"));
}

/// An app with a daemon on each of its nodes, in a separate session for each of these steps.
async fn start(nodes: u32, radix: u32, steps: &[&str]) -> (App, Vec<Session>) {
    let wlm = Some("localhost".to_owned());
    let config = Config { wlm, radix, control: false, ..Config::default() };
    let count = nodes.to_string();
    let request = LaunchRequest::new(["-N", &count, "-n", &count, "/bin/sleep", "1000"]);
    let app = Frontend::new(config).launch(request, DEADLINE).await.expect("an app");
    let mut sessions = Vec::new();
    for step in steps {
        let session = app.session(DEADLINE).await.expect("a session");
        let program = gantry_tests::binaries().dir.join("channel_daemon");
        let request = DaemonRequest::new(program).args([*step]);
        session.manifest().exec_daemon(request, DEADLINE).await.expect("a daemon");
        sessions.push(session);
    }
    (app, sessions)
}

/// Medians of a question to all, a sum, and a large broadcast.
async fn measure(nodes: u32, radix: u32) -> [Duration; 3] {
    let (app, sessions) = start(nodes, radix, &["echoes:1", "sums:1", "hashes:1"]).await;
    let [asks, sums, hashes] = [0, 1, 2].map(|at: usize| sessions[at].channel());
    let (question, large) = (vec![7; 1024], vec![7; LARGE_BYTES]);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    // The first of each is not counted: daemons may still be on their way.
    for round in 0..=ROUNDS {
        let took = [timed(ask(&asks, &question)).await, timed(sum(&sums)).await];
        if round > 0 {
            times[0].push(took[0]);
            times[1].push(took[1]);
        }
    }
    for _ in 0..LARGE_ROUNDS {
        times[2].push(timed(ask(&hashes, &large)).await);
    }
    app.close(DEADLINE).await.expect("an end");
    times.map(median)
}

/// The time of a small request: alone, and while three nodes send trees of many megabytes, which two of them merge.
async fn wait_while_much_is_merged() {
    let (app, sessions) = start(3, 1, &["echoes:1", "large:2:200"]).await;
    let [asks, trees] = [0, 1].map(|at: usize| sessions[at].channel());
    ask(&asks, b"x").await;
    let mut idle = Vec::new();
    for _ in 0..ROUNDS {
        idle.push(timed(ask(&asks, b"x")).await);
    }
    let mut busy = Vec::new();
    let (begun, merging) = (Instant::now(), trees.reduce(2, Filter::PrefixTree, Policy::All, DEADLINE));
    tokio::pin!(merging);
    let reduced = loop {
        tokio::select! {
            reduced = &mut merging => break reduced.expect("a tree"),
            took = timed(ask(&asks, b"x")) => busy.push(took),
        }
    };
    println!(
        "\n| how long others wait | questions | median | longest |\n| --- | ---: | ---: | ---: |\n| nothing is merged | {} | {:.2?} | {:.2?} |",
        idle.len(),
        median(idle.clone()),
        idle.iter().max().expect("some"),
    );
    println!(
        "| trees of {} MB are merged, in {:.2?}; goal: 50 ms | {} | {:.2?} | {:.2?} |",
        reduced.bytes.len() / 1_000_000,
        begun.elapsed(),
        busy.len(),
        median(busy.clone()),
        busy.iter().max().expect("some"),
    );
    app.close(DEADLINE).await.expect("an end");
}

async fn ask(channel: &Channel, bytes: &[u8]) {
    assert!(channel.broadcast(1, bytes, DEADLINE).await.expect("delivered").is_empty());
    channel.gather(1, Policy::All, DEADLINE).await.expect("answers");
}

async fn sum(channel: &Channel) {
    assert!(channel.broadcast(1, b"", DEADLINE).await.expect("delivered").is_empty());
    channel.reduce(1, Filter::Sum, Policy::All, DEADLINE).await.expect("a sum");
}

async fn timed(what: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    what.await;
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
