//! The time until an app is held under Slurm with a daemon on every node, and the time until all of it is gone. Both
//! are compared to bare steps of srun, in one run.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench slurm           # 4, 16 and 64 nodes
//! cargo bench -p gantry-tests --bench slurm -- 4 64   # these numbers of nodes
//! ```
//!
//! It makes a testbed for each number of nodes. Everything runs inside one allocation of it, two ranks per node, in
//! turns, so a busy moment of the machine affects all columns. All nodes share this machine's cores, so only the ratios
//! are meaningful. It needs root, and prints a Markdown table of medians.
//!
//! The cost of a daemon and of a session's end is compared to the smallest program that needs the same processes on as
//! many nodes (`tests/programs/bare_node.c`). If that program alone takes longer on these cores, gantry cannot meet a
//! goal in milliseconds.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{App, Config as Choices, DaemonRequest, Frontend, HoldMethod, LaunchRequest, Session};
use gantry_tests::bare::{self, BareNodes, Order};
use gantry_tests::binaries;
use gantry_tests::measured::Measurement;
use gantry_tests::testbed::config::address;
use gantry_tests::testbed::{Config, Testbed, usable};

const DEADLINE: Duration = Duration::from_secs(60);
const TRUE: &str = "/bin/true";

/// After this time, started processes have loaded their libraries. Then they do not use the cores during the next
/// measurement.
const SETTLE: Duration = Duration::from_millis(150);

/// The first argument of the part of this bench that runs on the login node, inside the allocation.
const INSIDE: &str = "--inside";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut asked: Vec<u16> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if args.iter().any(|arg| arg == INSIDE) {
        return asked.into_iter().for_each(measure);
    }
    if asked.is_empty() {
        asked = vec![4, 16, 64];
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("command: cargo bench -p gantry-tests --bench slurm\nmachine: {cores} cores");
    println!("helpers: {}\n", binaries().dir.display());
    bare::prepare();
    println!("| nodes | what | time | plain way | its time | ratio | goal |");
    println!("| ---: | --- | ---: | --- | ---: | ---: | ---: |");
    for nodes in asked {
        let config = Config::with_nodes(nodes);
        if let Err(why) = usable(&config) {
            return println!("not measured: {why}");
        }
        let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
        let (nodes, ranks) = (nodes.to_string(), (2 * nodes).to_string());
        let mut inside = bed.login().command_in("/", "salloc").expect("the login node");
        inside.args(["--quiet", "-N", &nodes, "-n", &ranks]);
        inside.arg(std::env::current_exe().expect("this program")).args([INSIDE, &nodes]);
        finish(&mut inside);
    }
}

/// The times for one number of nodes.
#[derive(Debug, Default)]
struct Times {
    bare: Vec<Duration>,
    two_bare: Vec<Duration>,
    held: Vec<Duration>,
    with_daemon: Vec<Duration>,
    further: Vec<Duration>,
    destroyed: Vec<Duration>,
    released: Vec<Duration>,
    exited: Vec<Duration>,
    closed: Vec<Duration>,
    driven: Vec<Duration>,
    driven_with_daemon: Vec<Duration>,
    detached: Vec<Duration>,
    bare_further: Vec<Duration>,
    bare_destroyed: Vec<Duration>,
    bare_released: Vec<Duration>,
}

fn measure(nodes: u16) {
    let rounds: usize = match nodes {
        0..=8 => 15,
        9..=32 => 9,
        _ => 5,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let choices = Choices { runtime_dir: Some(folder.path().join("runtime")), ..Choices::default() };
    let bench = Bench { frontend: Frontend::new(choices), nodes };
    let mut times = Times::default();
    let mut bare = start_bare(nodes);
    for round in 0..=rounds {
        let start = Instant::now();
        bench.bare();
        times.bare.push(start.elapsed());
        runtime.block_on(bench.brought(&mut bare, &mut times)).expect("a launch");
        let start = Instant::now();
        bench.bare();
        bench.bare();
        times.two_bare.push(start.elapsed());
        runtime.block_on(bench.driven(&mut times)).expect("a launch by MPIR");
        if round == 0 {
            // The caches are still empty in this round.
            times = Times::default();
        }
    }
    for _ in 0..rounds.div_ceil(2) {
        runtime.block_on(bench.let_go(&mut times)).expect("a launch that is detached from");
    }
    print(nodes, times);
}

/// A bare program on every node, parallel to all other steps.
fn start_bare(nodes: u16) -> BareNodes {
    let mut srun = Command::new("srun");
    let count = nodes.to_string();
    srun.args(["--overlap", "--mem=0", "-N", &count, "-n", &count, "--ntasks-per-node=1"])
        .stdin(Stdio::null());
    let here = SocketAddr::from((address("login").expect("the login node's address"), 0));
    BareNodes::start(&mut srun, here, nodes)
}

struct Bench {
    frontend: Frontend,
    nodes: u16,
}

impl Bench {
    fn args(&self, program: &[&str]) -> Vec<String> {
        let (nodes, ranks) = (self.nodes.to_string(), (2 * self.nodes).to_string());
        ["-N", &nodes, "-n", &ranks].iter().chain(program).map(|&word| word.to_owned()).collect()
    }

    fn bare(&self) {
        finish(Command::new("srun").args(self.args(&[TRUE])));
    }

    async fn held(&self, method: HoldMethod, program: &[&str]) -> gantry_frontend::Result<App> {
        let request = LaunchRequest::new(self.args(program)).hold(true).hold_method(method);
        self.frontend.launch(request, DEADLINE).await
    }

    /// A whole life: held, a daemon on every node, three more daemons, and the end of all of it. The small steps
    /// alternate with bare processes.
    async fn brought(&self, bare: &mut BareNodes, times: &mut Times) -> gantry_frontend::Result<()> {
        let start = Instant::now();
        let app = self.held(HoldMethod::Exec, &[TRUE]).await?;
        times.held.push(start.elapsed());
        let session = app.session(DEADLINE).await?;
        self.daemon(&session).await?;
        times.with_daemon.push(start.elapsed());
        bare.time(Order::Hold);
        bare.time(Order::Start);
        for _ in 0..3 {
            tokio::time::sleep(SETTLE).await;
            let start = Instant::now();
            self.daemon(&session).await?;
            times.further.push(start.elapsed());
            tokio::time::sleep(SETTLE).await;
            times.bare_further.push(bare.time(Order::Start));
        }
        tokio::time::sleep(SETTLE).await;
        let ended = bare.time(Order::End);
        times.bare_destroyed.push(ended);
        times.bare_released.push(ended + bare.time(Order::LetGo));
        bare.time(Order::Collect);
        tokio::time::sleep(SETTLE).await;
        let start = Instant::now();
        session.destroy(DEADLINE).await?;
        times.destroyed.push(start.elapsed());
        app.release(DEADLINE).await?;
        times.released.push(start.elapsed());
        let start = Instant::now();
        app.wait().await?;
        times.exited.push(start.elapsed());
        let start = Instant::now();
        app.close(DEADLINE).await?;
        times.closed.push(start.elapsed());
        Ok(())
    }

    /// Returns when it runs on every node. It ends as soon as it is asked to.
    async fn daemon(&self, session: &Session) -> gantry_frontend::Result<()> {
        let daemon = session.manifest().exec_daemon(DaemonRequest::new("/bin/sleep").args(["600"]), DEADLINE);
        assert_eq!(daemon.await?.processes().len(), usize::from(self.nodes));
        Ok(())
    }

    /// Held by srun itself, with agents in a separate step, and a daemon on every node.
    async fn driven(&self, times: &mut Times) -> gantry_frontend::Result<()> {
        let start = Instant::now();
        let app = self.held(HoldMethod::Mpir, &[TRUE]).await?;
        times.driven.push(start.elapsed());
        let session = app.session(DEADLINE).await?;
        self.daemon(&session).await?;
        times.driven_with_daemon.push(start.elapsed());
        session.destroy(DEADLINE).await?;
        app.release(DEADLINE).await?;
        app.wait().await?;
        app.close(DEADLINE).await
    }

    /// Destroys the session. The app continues without this tool.
    async fn let_go(&self, times: &mut Times) -> gantry_frontend::Result<()> {
        let app = self.held(HoldMethod::Exec, &["/bin/sleep", "600"]).await?;
        let session = app.session(DEADLINE).await?;
        self.daemon(&session).await?;
        app.release(DEADLINE).await?;
        let job = app.info().job.expect("its job and step");
        let start = Instant::now();
        session.destroy(DEADLINE).await?;
        app.detach(DEADLINE).await?;
        times.detached.push(start.elapsed());
        finish(Command::new("scancel").args(["--signal=KILL", &job]));
        // An allocation without steps is quiet again.
        while is_listed(&job) {}
        Ok(())
    }
}

/// Whether Slurm still lists this step. Takes as long as Slurm needs to answer.
fn is_listed(step: &str) -> bool {
    let steps = Command::new("squeue").args(["--noheader", "--steps", step]).stdin(Stdio::null()).output();
    !steps.expect("squeue").stdout.is_empty()
}

fn print(nodes: u16, times: Times) {
    let (bare, two) = (median(times.bare), median(times.two_bare));
    let keep = |row: &str, what: &str, times: &[Duration], way: &str, plain: Duration| {
        let what = format!("Slurm, {nodes} nodes: {what}, and a daemon on every node");
        let (gantry, plain) = (median(times.to_vec()).as_secs_f64() * 1e3, plain.as_secs_f64() * 1e3);
        let row = format!("{row} {nodes}");
        println!(
            "{}",
            Measurement { bench: "slurm", row: &row, what: &what, gantry, plain, unit: "ms", way }
        );
    };
    keep("held", "held", &times.with_daemon, "one step of srun, to its end", bare);
    let by_mpir = "held by MPIR";
    keep("mpir", by_mpir, &times.driven_with_daemon, "two steps of srun, to their ends", two);
    let row = |what: &str, times: Vec<Duration>, plain: Option<(&str, Duration)>, goal: &str| {
        let (rounds, time) = (times.len(), median(times));
        let compared = plain.map_or("| |".to_owned(), |(way, plain)| {
            format!("{way} | {} | {:.2}", show(plain), time.as_secs_f64() / plain.as_secs_f64())
        });
        println!("| {nodes} | {what} (median of {rounds}) | {} | {compared} | {goal} |", show(time));
    };
    row("launch until all are held", times.held, Some(("one step", bare)), "");
    row("- and a daemon runs on every node", times.with_daemon, Some(("one step", bare)), "1.1");
    row("held by MPIR, agents in a step of their own", times.driven, Some(("two steps", two)), "");
    row("- and a daemon runs on every node", times.driven_with_daemon, Some(("two steps", two)), "1.3");
    let [started, ended, let_go] =
        [times.bare_further, times.bare_destroyed, times.bare_released].map(median);
    let floor = |plain| Some(("bare processes", plain));
    row("a further daemon on every node", times.further, floor(started), "15 ms");
    row("session with four daemons destroyed", times.destroyed, floor(ended), "");
    row("- and the held app released", times.released, floor(let_go), "50 ms");
    row("session with a daemon destroyed, running app detached from", times.detached, None, "50 ms");
    row("from the release to srun's end", times.exited, None, "");
    row("agents and guard gone after that", times.closed, None, "");
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
