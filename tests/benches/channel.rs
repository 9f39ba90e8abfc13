//! How fast a tool and its daemons speak over trees of real agents, all on this machine.
//!
//! Every row is one operation as a tool sees it, with real daemons: `ask_1_kb` is a broadcast of 1 KB and a gather of as much from each; `sum` is a broadcast of
//! nothing and a reduction to two numbers; `broadcast_20_mb` ends when every daemon has told the hash of what it read. Arguments are the number of nodes and
//! the tree's radix. All nodes share this machine's cores, so beyond a few of them times grow with their number whatever the tree.

use std::sync::LazyLock;
use std::time::Duration;

use divan::Bencher;
use divan::counter::BytesCount;
use gantry_frontend::filter::Filter;
use gantry_frontend::{App, Channel, Config, DaemonRequest, Frontend, LaunchRequest, Policy, Session};
use tokio::runtime::Runtime;

const DEADLINE: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 20_000_000;
const TREES: [(u32, u32); 8] = [(1, 64), (4, 64), (16, 64), (64, 64), (4, 2), (16, 2), (16, 4), (64, 4)];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

fn main() {
    // Helpers of the same profile lie beside this bench.
    let _built = gantry_tests::binaries();
    divan::main();
}

/// An app with a daemon on each of its nodes.
struct Tool {
    app: Option<App>,
    session: Session,
}

impl Tool {
    fn start((nodes, radix): (u32, u32), step: &str) -> Self {
        RUNTIME.block_on(async {
            let config =
                Config { wlm: Some("localhost".to_owned()), radix, control: false, ..Config::default() };
            let nodes = nodes.to_string();
            let request = LaunchRequest::new(["-N", &nodes, "-n", &nodes, "/bin/sleep", "1000"]);
            let app = Frontend::new(config).launch(request, DEADLINE).await.expect("an app");
            let session = app.session(DEADLINE).await.expect("a session");
            let program = gantry_tests::binaries().dir.join("channel_daemon");
            let request = DaemonRequest::new(program).args([step]);
            session.manifest().exec_daemon(request, DEADLINE).await.expect("a daemon");
            Self { app: Some(app), session }
        })
    }

    fn ask(&self, bytes: &[u8]) {
        let channel = self.session.channel();
        RUNTIME.block_on(async {
            send(&channel, bytes).await;
            channel.gather(1, Policy::All, DEADLINE).await.expect("answers");
        });
    }

    fn sum(&self) {
        let channel = self.session.channel();
        RUNTIME.block_on(async {
            send(&channel, b"").await;
            channel.reduce(1, Filter::Sum, Policy::All, DEADLINE).await.expect("a sum");
        });
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if let Some(app) = self.app.take() {
            RUNTIME.block_on(app.close(DEADLINE)).expect("an end");
        }
    }
}

async fn send(channel: &Channel, bytes: &[u8]) {
    assert!(channel.broadcast(1, bytes, DEADLINE).await.expect("delivered").is_empty());
}

#[divan::bench(sample_count = 100, sample_size = 1, args = TREES)]
fn ask_1_kb(bencher: Bencher, tree: (u32, u32)) {
    let tool = Tool::start(tree, "echoes:1");
    let question = vec![7; 1024];
    tool.ask(&question);
    bencher.bench_local(|| tool.ask(&question));
}

#[divan::bench(sample_count = 100, sample_size = 1, args = TREES)]
fn sum(bencher: Bencher, tree: (u32, u32)) {
    let tool = Tool::start(tree, "sums:1");
    tool.sum();
    bencher.bench_local(|| tool.sum());
}

#[divan::bench(sample_count = 3, sample_size = 1, args = [(1, 64), (4, 64), (16, 64), (64, 64)])]
fn broadcast_20_mb(bencher: Bencher, tree: (u32, u32)) {
    let tool = Tool::start(tree, "hashes:1");
    let bytes = vec![7; LARGE_BYTES];
    bencher.counter(BytesCount::new(LARGE_BYTES)).bench_local(|| tool.ask(&bytes));
}
