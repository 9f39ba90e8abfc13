//! The speed of a tree of real agents, three links deep, compared to plain TCP on the same machine in the same run.
//!
//! All nodes share this machine's cores, so the tree's numbers are sums over all links. `broadcast` seals once, and
//! each of the 14 nodes opens, hashes and forwards all of it. The case with one node has only one link. It is the fair
//! counterpart of `bulk_plain_tcp`.
//!
//! `-- rows` measures only the two rows of the page of measurements. That takes a quarter of a minute. Like every bench
//! of this folder, it first builds the helpers, silently and for some minutes, unless `GANTRY_BIN_DIR` names a folder
//! that has them.
//!
//! `bulk_200_mb` compares radices of the tree for bulk data, with all nodes as direct children of the frontend. With 0
//! the frontend sends to each node.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::BytesCount;
use gantry_frontend::{App, Config, Frontend, LaunchRequest, measure};
use gantry_tests::measured::Measurement;
use tokio::runtime::Runtime;

const DEADLINE: Duration = Duration::from_secs(60);
const BULK_BYTES: u64 = 64 * 1024 * 1024;
const LARGE_BYTES: u64 = 200_000_000;
const PIECE_BYTES: usize = 256 * 1024;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

fn main() {
    // The helpers of the same profile are in this bench's folder.
    let _built = gantry_tests::binaries();
    if std::env::args().any(|arg| arg == "rows") { rows() } else { divan::main() }
}

/// An order with its answer, and bulk data: in the deep tree and over plain TCP, in turns.
fn rows() {
    let nodes = Nodes::launch(Nodes::THREE_DEEP);
    let (mut echo, mut count) = (peer(64, true), peer(BULK_BYTES, false));
    let ping = |near: &mut TcpStream| {
        near.write_all(&[7; 64]).expect("sent");
        near.read_exact(&mut [0; 64]).expect("received");
    };
    let trips = in_turns(200, || nodes.ping(), || ping(&mut echo)).map(|time| time.as_secs_f64() * 1e3);
    let bulk = in_turns(7, || nodes.broadcast(BULK_BYTES), || send_all(&mut count, BULK_BYTES));
    let bulk = bulk.map(|time| BULK_BYTES as f64 / time.as_secs_f64() / 1e6);
    let tree = format!("tree of {} nodes, depth 3", Nodes::THREE_DEEP);
    for (row, what, [gantry, plain], unit, way) in [
        ("round trip", format!("order and answer, {tree}"), trips, "ms", "one TCP round trip on loopback"),
        (
            "bulk",
            format!("64 MiB to each node, {tree}, encrypted"),
            bulk,
            "MB/s",
            "one plain TCP copy on loopback",
        ),
    ] {
        println!("{}", Measurement { bench: "overlay", row, what: &what, gantry, plain, unit, way });
    }
}

/// The medians of two ways.
fn in_turns(rounds: usize, mut ours: impl FnMut(), mut plain: impl FnMut()) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, way) in times.iter_mut().zip([&mut ours as &mut dyn FnMut(), &mut plain]) {
            let start = Instant::now();
            way();
            times.push(start.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[rounds / 2]
    })
}

/// An app with one sleeping rank on each of its nodes.
struct Nodes(Option<App>);

impl Nodes {
    /// 2 nodes, 4 below them and 8 below those: three links.
    const THREE_DEEP: u32 = 14;

    fn launch(nodes: u32) -> Self {
        Self::launch_with(nodes, 2, 2)
    }

    fn launch_with(nodes: u32, radix: u32, bulk_radix: u32) -> Self {
        let wlm = Some("localhost".to_owned());
        let config = Config { wlm, radix, bulk_radix, control: false, ..Config::default() };
        let nodes = nodes.to_string();
        let args = ["-N", &nodes, "-n", &nodes, "/bin/sleep", "1000"];
        let app = RUNTIME.block_on(Frontend::new(config).launch(LaunchRequest::new(args), DEADLINE));
        Self(Some(app.expect("an app")))
    }

    fn app(&self) -> &App {
        self.0.as_ref().expect("it is there until it is dropped")
    }

    fn ping(&self) {
        RUNTIME.block_on(measure::ping(self.app(), DEADLINE)).expect("an answer of every node");
    }

    fn broadcast(&self, bytes: u64) {
        RUNTIME.block_on(measure::broadcast(self.app(), bytes, DEADLINE)).expect("all bytes at every node");
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Some(app) = self.0.take() {
            RUNTIME.block_on(app.close(DEADLINE)).expect("an end");
        }
    }
}

/// A peer on loopback. It echoes all bytes, or it counts them and sends one byte at the end of each round.
fn peer(round: u64, echo: bool) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection");
    for end in [&near, &far] {
        end.set_nodelay(true).expect("no delay");
    }
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut left = round;
        while let Ok(count @ 1..) = far.read(&mut buffer) {
            left -= count as u64;
            let answer = if echo { &buffer[..count] } else { &buffer[..usize::from(left == 0)] };
            if far.write_all(answer).is_err() {
                return;
            }
            if left == 0 {
                left = round;
            }
        }
    });
    near
}

#[divan::bench(sample_count = 200, sample_size = 1)]
fn round_trip_plain_tcp(bencher: Bencher) {
    let mut near = peer(64, true);
    bencher.bench_local(|| {
        near.write_all(&[7; 64]).expect("sent");
        near.read_exact(&mut [0; 64]).expect("received");
    });
}

#[divan::bench(sample_count = 200, sample_size = 1, args = [1, 2, 6, Nodes::THREE_DEEP])]
fn round_trip_nodes(bencher: Bencher, nodes: u32) {
    let nodes = Nodes::launch(nodes);
    bencher.bench_local(|| nodes.ping());
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn bulk_plain_tcp(bencher: Bencher) {
    plain_tcp(bencher, BULK_BYTES);
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn bulk_200_mb_plain_tcp(bencher: Bencher) {
    plain_tcp(bencher, LARGE_BYTES);
}

fn plain_tcp(bencher: Bencher, bytes: u64) {
    let mut near = peer(bytes, false);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| send_all(&mut near, bytes));
}

/// Sends so many bytes to a peer that counts them, and waits for its byte.
fn send_all(near: &mut TcpStream, bytes: u64) {
    let piece = vec![7; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(PIECE_BYTES as u64);
        near.write_all(&piece[..usize::try_from(now).expect("a piece")]).expect("sent");
        left -= now;
    }
    near.read_exact(&mut [0; 1]).expect("received");
}

#[divan::bench(sample_count = 10, sample_size = 1, args = [1, 2, 6, Nodes::THREE_DEEP])]
fn bulk_nodes(bencher: Bencher, nodes: u32) {
    let nodes = Nodes::launch(nodes);
    bencher.counter(BytesCount::new(BULK_BYTES)).bench_local(|| nodes.broadcast(BULK_BYTES));
}

/// As `cp` of a file that is in memory already.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn bulk_200_mb_copied(bencher: Bencher) {
    let from = tempfile::NamedTempFile::new().expect("a file");
    let to = tempfile::NamedTempFile::new().expect("a file");
    from.as_file().set_len(LARGE_BYTES).expect("room");
    bencher.counter(BytesCount::new(LARGE_BYTES)).bench_local(|| {
        assert_eq!(std::fs::copy(from.path(), to.path()).expect("copied"), LARGE_BYTES);
    });
}

/// Number of nodes, radix of bulk data.
#[divan::bench(sample_count = 3, sample_size = 1, args = [(1, 2), (8, 1), (8, 2), (8, 4), (8, 0), (64, 1), (64, 2), (64, 4), (64, 0)])]
fn bulk_200_mb(bencher: Bencher, (nodes, bulk_radix): (u32, u32)) {
    let nodes = Nodes::launch_with(nodes, 64, bulk_radix);
    bencher.counter(BytesCount::new(LARGE_BYTES)).bench_local(|| nodes.broadcast(LARGE_BYTES));
}
