//! A deep tree of real agents on one machine: 64 nodes, no more than two children each, so six links from end to end.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_frontend::{App, Config, Event, Frontend, LaunchRequest, OutputTo, measure};
use gantry_tests::{binaries, eventually, proc, within};
use nix::sys::signal::Signal;

const SECONDS: Duration = Duration::from_secs(20);
const NODES: usize = 64;

/// An app of one rank on each of 64 nodes, and every process that belongs to it.
struct DeepTree {
    app: App,
    /// By node number.
    agents: Vec<i32>,
    ranks: Vec<i32>,
    guard: i32,
    _stage: tempfile::TempDir,
}

impl DeepTree {
    async fn launch() -> Self {
        let _built = binaries();
        let stage = tempfile::tempdir().expect("a folder");
        let config = Config {
            wlm: Some("localhost".to_owned()),
            radix: 2,
            stage_base: Some(stage.path().to_path_buf()),
            control: false,
            ..Config::default()
        };
        let request =
            LaunchRequest::new(["-N", "64", "-n", "64", "/bin/sleep", "1000"]).output(OutputTo::Null);
        let app = Frontend::new(config).launch(request, 3 * SECONDS).await.expect("an app");
        let ranks: Vec<i32> = app.info().ranks.iter().map(|rank| rank.pid.expect("a pid").get()).collect();
        let parent = |pid: &i32| proc::stat(*pid).expect("a process").parent;
        let agents: Vec<i32> = ranks.iter().map(parent).collect();
        let guard = parent(&agents[0]);
        assert_eq!(agents.iter().collect::<BTreeSet<_>>().len(), NODES);
        Self { app, agents, ranks, guard, _stage: stage }
    }

    fn everybody(&self) -> Vec<i32> {
        self.agents.iter().chain(&self.ranks).copied().chain([self.guard]).collect()
    }

    async fn close(self) {
        let everybody = self.everybody();
        self.app.close(3 * SECONDS).await.expect("an end");
        eventually(SECONDS, "the end of all agents, ranks and the guard", || {
            everybody.iter().all(|pid| !proc::is_alive(*pid))
        });
    }
}

/// Nodes below this one, and itself, in a tree of radix 2.
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
    run(async {
        let tree = DeepTree::launch().await;
        for _ in 0..10 {
            assert_eq!(measure::ping(&tree.app, SECONDS).await.unwrap(), NODES);
        }
        measure::broadcast(&tree.app, 0, SECONDS).await.unwrap();
        measure::broadcast(&tree.app, 3_000_001, 2 * SECONDS).await.unwrap();
        assert_eq!(tree.app.node_count() as usize, NODES);
        tree.close().await;
    });
}

#[test]
fn a_killed_agent_takes_its_subtree_along_and_nobody_else() {
    run(async {
        let tree = DeepTree::launch().await;
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
        // Who lost the way to the frontend clears up without being told.
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
        let tree = DeepTree::launch().await;
        let everybody = tree.everybody();
        drop(tree.app);
        eventually(SECONDS, "the end of all agents, ranks and the guard", || {
            everybody.iter().all(|pid| !proc::is_alive(*pid))
        });
    });
}
