//! The time until an app is held on hosts that are reached by ssh, through both clients. It is compared to pdsh, which
//! runs `true` there over the same ssh, in one run.
//!
//! ```sh
//! cargo build --profile bench --workspace --bins --features gantry-wlm/libssh2
//! GANTRY_BIN_DIR=$PWD/target/release cargo bench -p gantry-tests --bench ssh           # 4, 16 and 64 hosts
//! GANTRY_BIN_DIR=$PWD/target/release cargo bench -p gantry-tests --bench ssh -- 4 16   # these numbers of hosts
//! ```
//!
//! It makes a testbed for each number of hosts. Everything runs on its login node in turns, so a busy moment of the
//! machine affects all columns. All hosts share this machine's cores, so only the ratios are meaningful. It needs root
//! and pdsh, and prints a Markdown table of medians. A further daemon is compared to the smallest program that needs
//! one process on as many hosts (`tests/programs/bare_node.c`).
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{Config as Choices, DaemonRequest, Frontend, LaunchRequest};
use gantry_tests::bare::{self, BareNodes, Order};
use gantry_tests::binaries;
use gantry_tests::measured::Measurement;
use gantry_tests::testbed::config::address;
use gantry_tests::testbed::{Config, Testbed, usable};

const DEADLINE: Duration = Duration::from_secs(60);

/// The first argument of the part of this bench that runs on the login node.
const INSIDE: &str = "--inside";

/// The first argument of a single launch in a separate process: its environment selects the client.
const ONCE: &str = "--once";

/// The variable that selects the client, and its values.
const CLIENT: &str = "GANTRY_SSH";
const CLIENTS: [&str; 2] = ["openssh", "libssh2"];

/// Connections that are made at a time: ours by default, and pdsh's.
const WINDOW: &str = "32";

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
        asked = vec![4, 16, 64];
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench ssh\nmachine: {cores} cores");
    println!("helpers: {}\n", binaries().dir.display());
    bare::prepare();
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

/// Times of one client.
#[derive(Default)]
struct Times {
    /// Until a rank on each host was held: all agents are ready then.
    ready: Vec<Duration>,
    /// Until two ranks on each were.
    held: Vec<Duration>,
    /// Until a further daemon ran on every host.
    further: Vec<Duration>,
}

fn measure(hosts: u16) {
    let rounds = match hosts {
        ..=8 => 9,
        9..=32 => 5,
        _ => 3,
    };
    let named = format!("n[001-{hosts:03}]");
    let mut plain = Vec::new();
    let mut bare = Vec::new();
    let mut nodes = start_bare(&named, hosts);
    let mut ways: [Times; CLIENTS.len()] = Default::default();
    for round in 0..=rounds {
        let start = Instant::now();
        finish(Command::new("pdsh").args(["-R", "ssh", "-f", WINDOW, "-w", &named, "true"]));
        let pdsh = start.elapsed();
        let times = CLIENTS.map(|client| (launch(&named, client), launch(&format!("{named}:2"), client)));
        let started = nodes.time(Order::Start);
        nodes.time(Order::End);
        // The caches are still empty in the first round.
        if round == 0 {
            continue;
        }
        plain.push(pdsh);
        bare.push(started);
        for (way, ([ready, further], [held, _])) in ways.iter_mut().zip(times) {
            way.ready.push(ready);
            way.held.push(held);
            way.further.push(further);
        }
    }
    let (plain, bare) = (median(plain), median(bare));
    println!(
        "| {hosts} | pdsh -R ssh true, {WINDOW} at a time (median of {rounds}) | {} | 1 | |",
        show(plain)
    );
    let row = |what: &str, time: Duration, of: Option<Duration>, goal: &str| {
        let ratio = of.map(|of| format!("{:.2}", time.as_secs_f64() / of.as_secs_f64()));
        println!("| {hosts} | {what} | {} | {} | {goal} |", show(time), ratio.unwrap_or_default());
    };
    for (client, times) in CLIENTS.iter().zip(ways) {
        let ready = median(times.ready);
        println!(
            "{}",
            Measurement {
                bench: "ssh",
                row: &format!("{client} {hosts}"),
                what: &format!("ssh, {hosts} hosts, a rank on each: held, by {client}"),
                gantry: ready.as_secs_f64() * 1e3,
                plain: plain.as_secs_f64() * 1e3,
                unit: "ms",
                way: "`pdsh -R ssh` of `true`",
            }
        );
        row(&format!("{client}: all agents ready, a rank on each held"), ready, Some(plain), "1.5");
        let held = median(times.held);
        row(&format!("{client}: two ranks on each held, to all agents ready"), held, Some(ready), "1.3");
        row(&format!("{client}: a further daemon on every host"), median(times.further), None, "15 ms");
    }
    row("a bare process on every host", bare, None, "");
}

/// A bare program on every host.
fn start_bare(named: &str, hosts: u16) -> BareNodes {
    let mut pdsh = Command::new("pdsh");
    pdsh.args(["-R", "ssh", "-f", &hosts.to_string(), "-w", named]).stdin(Stdio::null());
    let here = SocketAddr::from((address("login").expect("the login node's address"), 0));
    BareNodes::start(&mut pdsh, here, hosts)
}

/// The time until ranks on these hosts are held, and the time to start a further daemon there.
fn launch(hosts: &str, client: &str) -> [Duration; 2] {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let output =
        command.args([ONCE, hosts]).env(CLIENT, client).stdin(Stdio::null()).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut micros = text.split_whitespace().filter_map(|word| word.parse().ok().map(Duration::from_micros));
    match (micros.next(), micros.next()) {
        (Some(held), Some(further)) => [held, further],
        _ => panic!("{client}: {output:?}"),
    }
}

/// One launch, held and ended. Prints the microseconds until it was held, and those for its second daemon.
fn once(hosts: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let choices = Choices { runtime_dir: Some(folder.path().join("runtime")), ..Choices::default() };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let frontend = Frontend::new(choices);
    let request = LaunchRequest::new(["--hosts", hosts, "/bin/true"]).hold(true);
    let start = Instant::now();
    let times = runtime.block_on(async {
        let app = frontend.launch(request, DEADLINE).await?;
        let held = start.elapsed();
        let session = app.session(DEADLINE).await?;
        let sleep = || DaemonRequest::new("/bin/sleep").args(["600"]);
        session.manifest().exec_daemon(sleep(), DEADLINE).await?;
        let start = Instant::now();
        session.manifest().exec_daemon(sleep(), DEADLINE).await?;
        let further = start.elapsed();
        app.kill(DEADLINE).await?;
        app.close(DEADLINE).await?;
        Ok::<_, gantry_frontend::Error>([held, further])
    });
    let [held, further] = times.expect("a launch");
    println!("{} {}", held.as_micros(), further.as_micros());
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
