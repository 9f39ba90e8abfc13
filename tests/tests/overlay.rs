//! Trees of 64 real agents on one machine. A deep tree has at most two children per agent, so six links from end to
//! end. In a wide tree, all agents are the frontend's own children, and bulk data uses a separate narrow tree.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use gantry_frontend::{App, AppHandle, Config, Event, Frontend, LaunchRequest, OutputTo, measure};
use gantry_tests::{binaries, eventually, proc, require, tool, within};
use nix::sys::signal::Signal;

const SECONDS: Duration = Duration::from_secs(20);
const NODES: usize = 64;

/// An app with one rank on each node, and all its processes.
struct Nodes {
    app: App,
    /// By node number.
    agents: Vec<i32>,
    ranks: Vec<i32>,
    guard: i32,
    _stage: tempfile::TempDir,
}

impl Nodes {
    async fn launch() -> Self {
        Self::launch_with(NODES, 2, 2).await
    }

    async fn launch_with(nodes: usize, radix: u32, bulk_radix: u32) -> Self {
        let (stage, config) = configure(radix, bulk_radix);
        let count = nodes.to_string();
        let request =
            LaunchRequest::new(["-N", &count, "-n", &count, "/bin/sleep", "1000"]).output(OutputTo::Null);
        let app = Frontend::new(config).launch(request, 3 * SECONDS).await.expect("an app");
        let ranks: Vec<i32> = app.info().ranks.iter().map(|rank| rank.pid.expect("a pid").get()).collect();
        let parent = |pid: &i32| proc::stat(*pid).expect("a process").parent;
        let agents: Vec<i32> = ranks.iter().map(parent).collect();
        let guard = parent(&agents[0]);
        assert_eq!(agents.iter().collect::<BTreeSet<_>>().len(), nodes);
        Self { app, agents, ranks, guard, _stage: stage }
    }

    fn everybody(&self) -> Vec<i32> {
        self.agents.iter().chain(&self.ranks).copied().chain([self.guard]).collect()
    }

    /// The bytes of bulk data that each node has received and sent on.
    async fn counts(&self) -> Vec<(u64, u64)> {
        measure::bulk_counts(&self.app, SECONDS).await.expect("counts")
    }

    /// The bytes that each node has received, without the nodes that are lost.
    async fn counts_of_rest(&self) -> Vec<u64> {
        loop {
            // A node may be lost during the query.
            if let Ok(counts) = measure::bulk_counts(&self.app, SECONDS).await {
                return counts.into_iter().map(|(received, _)| received).collect();
            }
        }
    }

    /// The number of open descriptors of each agent.
    fn descriptors(&self) -> Vec<usize> {
        let count = |pid: &i32| fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
        self.agents.iter().map(count).collect()
    }

    async fn close(self) {
        let everybody = self.everybody();
        self.app.close(3 * SECONDS).await.expect("an end");
        eventually(SECONDS, "the end of all agents, ranks and the guard", || {
            everybody.iter().all(|pid| !proc::is_alive(*pid))
        });
    }
}

fn configure(radix: u32, bulk_radix: u32) -> (tempfile::TempDir, Config) {
    let _built = binaries();
    let stage = tempfile::tempdir().expect("a folder");
    let config = Config {
        wlm: Some("localhost".to_owned()),
        radix,
        bulk_radix,
        stage_base: Some(stage.path().to_path_buf()),
        control: false,
        ..Config::default()
    };
    (stage, config)
}

/// This node and the nodes below it, in a tree of radix 2.
fn subtree(node: usize) -> BTreeSet<usize> {
    let mut nodes = BTreeSet::from([node]);
    let mut level = vec![node];
    while !level.is_empty() {
        level =
            level.iter().flat_map(|node| [2 * node + 2, 2 * node + 3]).filter(|node| *node < NODES).collect();
        nodes.extend(&level);
    }
    nodes
}

fn run(body: impl Future<Output = ()> + Send + 'static) {
    within(6 * SECONDS, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(body);
    });
}

#[test]
fn every_node_of_a_deep_tree_answers_and_receives_bulk_data_and_nothing_is_left() {
    // Bulk data uses its own links (radix 2), or the control links (radix 0).
    for bulk_radix in [2, 0] {
        run(async move {
            const BYTES: u64 = 3_000_001;
            let tree = Nodes::launch_with(NODES, 2, bulk_radix).await;
            for _ in 0..10 {
                assert_eq!(measure::ping(&tree.app, SECONDS).await.unwrap(), NODES);
            }
            measure::broadcast(&tree.app, 0, SECONDS).await.unwrap();
            measure::broadcast(&tree.app, BYTES, 2 * SECONDS).await.unwrap();
            assert_eq!(tree.app.node_count() as usize, NODES);
            for (node, (received, sent)) in tree.counts().await.into_iter().enumerate() {
                let below = [2 * node + 2, 2 * node + 3].iter().filter(|node| **node < NODES).count() as u64;
                assert_eq!((received, sent), (BYTES, below * BYTES), "node {node}");
            }
            tree.close().await;
        });
    }
}

#[test]
fn bulk_data_takes_a_narrow_tree_of_its_own_and_goes_to_no_others() {
    run(async {
        const BYTES: u64 = 5_000_000;
        let wide = Nodes::launch_with(NODES, 64, 2).await;
        let before = wide.descriptors();
        measure::broadcast(&wide.app, BYTES, 2 * SECONDS).await.unwrap();
        let first = wide.counts().await;
        assert!(first.iter().all(|(received, sent)| *received == BYTES && *sent <= 2 * BYTES));
        let sent: u64 = first.iter().map(|(_, sent)| sent).sum();
        assert_eq!(sent, (NODES as u64 - 2) * BYTES, "the frontend has sent it to two nodes");
        let some = BTreeSet::from_iter([3].into_iter().chain(20..31));
        measure::broadcast_some(&wide.app, some.iter().copied(), BYTES, 2 * SECONDS).await.unwrap();
        for (node, ((received, sent), (earlier, sent_earlier))) in
            (0..).zip(wide.counts().await.into_iter().zip(first))
        {
            assert_eq!(received - earlier, if some.contains(&node) { BYTES } else { 0 }, "node {node}");
            assert!(sent - sent_earlier <= if some.contains(&node) { 2 * BYTES } else { 0 }, "node {node}");
        }
        // Links that were opened for a stream are closed with it. A node that was still busy with its start had more
        // before than after.
        let is_closed = || wide.descriptors().iter().zip(&before).all(|(now, before)| now <= before);
        let closed = proc::becomes_true(SECONDS, is_closed);
        assert!(closed, "links of streams are open: {:?}, {before:?} before", wide.descriptors());
        wide.close().await;
    });
}

#[test]
fn a_node_that_is_killed_in_the_middle_of_a_stream_costs_that_stream_only() {
    run(async {
        let wide = Nodes::launch_with(14, 64, 2).await;
        let handle = AppHandle::clone(&wide.app);
        let endless =
            tokio::spawn(async move { measure::broadcast(&handle, u64::MAX / 2, 6 * SECONDS).await });
        // Control messages pass while the stream flows.
        while wide.counts().await[0].1 == 0 {}
        // The killed node feeds two nodes, which feed four.
        proc::send(wide.agents[0], Signal::SIGKILL);
        let mut flowing = wide.counts_of_rest().await;
        for _ in 0..3 {
            let later = loop {
                let now = wide.counts_of_rest().await;
                if now[0] > flowing[0] {
                    break now;
                }
            };
            flowing = later;
        }
        assert!(!endless.is_finished(), "the other half still receives");
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
        // The pending stream has ended everywhere, and the next one succeeds.
        measure::broadcast(&wide.app, 3_000_000, 2 * SECONDS).await.unwrap();
        wide.close().await;
    });
}

#[test]
fn an_agent_needs_little_memory_however_much_passes_through_it() {
    run(async {
        const BYTES: u64 = 200_000_000;
        let chain = Nodes::launch_with(2, 64, 1).await;
        measure::broadcast(&chain.app, BYTES, 5 * SECONDS).await.unwrap();
        assert_eq!(chain.counts().await, [(BYTES, BYTES), (BYTES, 0)]);
        for pid in &chain.agents {
            let peak_kib = proc::peak_memory_kib(*pid);
            assert!((1..32 * 1024).contains(&peak_kib), "{peak_kib} KiB");
        }
        chain.close().await;
    });
}

#[test]
fn a_killed_agent_takes_its_subtree_along_and_no_other_agent() {
    run(async {
        let tree = Nodes::launch().await;
        let mut events = tree.app.events();
        let behind = subtree(4);
        assert_eq!(behind, BTreeSet::from([4, 10, 11, 22, 23, 24, 25, 46, 47, 48, 49, 50, 51, 52, 53]));
        proc::send(tree.agents[4], Signal::SIGKILL);
        let mut lost = BTreeSet::new();
        while lost.len() < behind.len() {
            if let Some(Event::NodesLost { hosts, reason, .. }) = events.next().await {
                assert_eq!(reason, "its link was cut");
                lost.extend(
                    hosts.iter().map(|host| host.rsplit('.').next().unwrap().parse::<usize>().unwrap()),
                );
            }
        }
        assert_eq!(lost, behind);
        assert_eq!(measure::ping(&tree.app, SECONDS).await.unwrap(), NODES - behind.len());
        measure::broadcast(&tree.app, 300_000, SECONDS).await.unwrap();
        // Agents that lost the frontend clean up without an order.
        eventually(SECONDS, "the end of what was lost", || {
            behind
                .iter()
                .all(|node| !proc::is_alive(tree.agents[*node]) && !proc::is_alive(tree.ranks[*node]))
        });
        let alive = |node: &usize| proc::is_alive(tree.agents[*node]) && proc::is_alive(tree.ranks[*node]);
        assert!((0..NODES).filter(|node| !behind.contains(node)).all(|node| alive(&node)));
        tree.close().await;
    });
}

#[test]
fn a_dropped_frontend_leaves_no_agent() {
    run(async {
        let tree = Nodes::launch().await;
        let everybody = tree.everybody();
        drop(tree.app);
        eventually(SECONDS, "the end of all agents, ranks and the guard", || {
            everybody.iter().all(|pid| !proc::is_alive(*pid))
        });
    });
}

/// Ranks of an MPI world that are scripts. Their nodes put little, much, or nothing into a fence: agents merge what is
/// small, and the rest goes up as an item.
#[test]
fn ranks_on_all_nodes_of_a_deep_tree_get_what_each_has_put_into_a_fence() {
    require!(tool("bash"));
    // Rank 1 puts 80 KiB, rank 0 nothing. A rank that misses something fails.
    let script = "ask() { echo \"$1\" >&10; read -r answer <&10; }; \
        ask 'cmd=init pmi_version=1 pmi_subversion=1'; \
        value=$(head -c 1000 /dev/zero | tr '\\0' v); \
        for round in 1 2; do \
          case $PMI_RANK in 0) last=0 ;; 1) last=80 ;; *) last=1 ;; esac; \
          for ((n = 1; n <= last; n++)); do ask \"cmd=put kvsname=x key=$round-$PMI_RANK-$n value=$value\"; done; \
          ask cmd=barrier_in; \
          for key in {1..63}-1 1-80; do \
            ask \"cmd=get kvsname=x key=$round-$key\"; \
            [ \"$answer\" = \"cmd=get_result rc=0 value=$value\" ] || exit 7; \
          done; \
        done; \
        ask cmd=finalize";
    run(async move {
        let (_stage, config) = configure(2, 2);
        let count = NODES.to_string();
        let request = LaunchRequest::new(["-N", &count, "-n", &count, "bash", "-c", script]);
        let frontend = Frontend::new(config);
        let app = frontend.launch(request.output(OutputTo::Null), 3 * SECONDS).await.expect("an app");
        let exit = tokio::time::timeout(3 * SECONDS, app.wait()).await.expect("in time").expect("an end");
        assert_eq!(exit.code, 0, "{exit:?}");
        app.close(SECONDS).await.expect("closed");
    });
}
