//! The channel on nodes of a testbed, compared to `sbcast` and `pdsh` with the same bytes, in turns, in one allocation.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench channel_slurm           # 4 and 16 nodes
//! cargo bench -p gantry-tests --bench channel_slurm -- 4 8    # these numbers of nodes
//! ```
//!
//! A broadcast ends when every daemon has sent the hash of all its bytes. `sbcast` ends when its files are written, in
//! the nodes' memory. A gather is 1 KB to each node and back; `pdsh` transfers the same over ssh. All nodes share this
//! machine's cores, so only the ratios are meaningful. It needs root, and prints a Markdown table of medians.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it compares itself")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gantry_frontend::{Channel, Config as Choices, DaemonRequest, Frontend, LaunchRequest, Policy};
use gantry_tests::binaries;
use gantry_tests::measured::Measurement;
use gantry_tests::testbed::{Config, Testbed, usable};

const DEADLINE: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 20_000_000;
const ROUNDS: usize = 11;

/// The first argument of the part of this bench that runs on the login node, inside the allocation.
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
    println!(
        "| nodes | what | time | plain way | its time | ratio |\n| ---: | --- | ---: | --- | ---: | ---: |"
    );
    for nodes in asked {
        let config = Config::with_nodes(nodes);
        if let Err(why) = usable(&config) {
            return println!("not measured: {why}");
        }
        let bed = Testbed::up(&config, &binaries().dir.join("testbed")).expect("a testbed");
        let nodes = nodes.to_string();
        let mut inside = bed.login().command_in("/", "salloc").expect("the login node");
        inside.args(["--quiet", "-N", &nodes, "-n", &nodes]);
        // This process's environment does not reach that host.
        inside.args(["env", &format!("GANTRY_BIN_DIR={}", binaries().dir.display())]);
        inside.arg(std::env::current_exe().expect("this program")).args([INSIDE, &nodes]);
        finish(&mut inside);
    }
}

fn measure(nodes: u16) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large");
    let noise: Vec<u8> = (0..LARGE_BYTES as u64)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().into_iter().take(1))
        .collect();
    std::fs::write(&file, &noise).expect("a file");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let choices = Choices { runtime_dir: Some(folder.path().join("runtime")), ..Choices::default() };
    runtime.block_on(async {
        let words = ["-N", &nodes.to_string(), "-n", &nodes.to_string(), "/bin/true"].map(str::to_owned);
        let request = LaunchRequest::new(words).hold(true);
        let app = Frontend::new(choices).launch(request, DEADLINE).await.expect("an app");
        // One channel for each, because all members of a channel answer.
        let (echoing, hashing) = (app.session(DEADLINE).await, app.session(DEADLINE).await);
        let (echoing, hashing) = (echoing.expect("a session"), hashing.expect("a session"));
        for (session, step) in [(&echoing, "echoes:1"), (&hashing, "hashes:1")] {
            let daemon = DaemonRequest::new(binaries().dir.join("channel_daemon")).args([step]);
            session.manifest().exec_daemon(daemon, DEADLINE).await.expect("a daemon");
        }
        compare(&echoing.channel(), &hashing.channel(), nodes, (&noise, &file)).await;
        app.release(DEADLINE).await.expect("a release");
        app.close(DEADLINE).await.expect("an end");
    });
}

async fn compare(echoing: &Channel, hashing: &Channel, nodes: u16, (noise, file): (&[u8], &Path)) {
    let (mut broadcast, mut sbcast, mut gather, mut pdsh) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        broadcast.push(timed(ask(hashing, noise)).await);
        sbcast.push(
            timed(async { finish(Command::new("sbcast").arg("--force").arg(file).arg("/tmp/large")) }).await,
        );
        gather.push(timed(ask(echoing, &[7; 1024])).await);
        pdsh.push(timed(async { one_kb_by_pdsh(nodes) }).await);
    }
    let row = |what: &str, ours: Vec<Duration>, plain: &str, theirs: Vec<Duration>| {
        let (ours, theirs) = (median(ours), median(theirs));
        let kept = Measurement {
            bench: "channel_slurm",
            row: &format!("{plain} {nodes}"),
            what: &format!("channel on Slurm, {nodes} nodes: {what}"),
            gantry: ours.as_secs_f64() * 1e3,
            plain: theirs.as_secs_f64() * 1e3,
            unit: "ms",
            way: plain,
        };
        println!("{kept}");
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        println!(
            "| {nodes} | {what} (median of {ROUNDS}) | {ours:.1?} | {plain} | {theirs:.1?} | {ratio:.3} |"
        );
    };
    row("20 MB to every node, hashed there", broadcast, "sbcast", sbcast);
    row("1 KB to and from every node", gather, "pdsh, from every node", pdsh);
}

/// A message to all, and an answer from each.
async fn ask(channel: &Channel, bytes: &[u8]) {
    assert!(channel.broadcast(1, bytes, DEADLINE).await.expect("delivered").is_empty());
    channel.gather(1, Policy::All, DEADLINE).await.expect("answers");
}

fn one_kb_by_pdsh(nodes: u16) {
    let hosts = format!("n[001-{nodes:03}]");
    let mut pdsh = Command::new("pdsh");
    pdsh.args(["-R", "ssh", "-f", "64", "-N", "-w", &hosts, "head -c 768 /dev/urandom | base64 -w0; echo"]);
    let output = pdsh.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("pdsh");
    assert_eq!(output.stdout.len(), 1025 * usize::from(nodes), "{output:?}");
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

fn finish(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().expect("started");
    assert!(status.success(), "{command:?}: {status}");
}
