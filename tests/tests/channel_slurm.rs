//! The channel on nodes of a real cluster: on other hosts, over another network, with agents that were started with
//! the ranks.
//!
//! `GANTRY_CHANNEL_NODES` sets the number of nodes. The default is 4; use 64 by hand.
#![expect(clippy::disallowed_methods, reason = "a test reads its own environment")]

use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, binaries};
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

const LARGE_BYTES: u64 = 100_000_000;
/// With this radix, most nodes have other nodes below them.
const RADIX: u32 = 2;

fn nodes() -> u16 {
    std::env::var("GANTRY_CHANNEL_NODES").map_or(4, |nodes| nodes.parse().expect("a number of nodes"))
}

/// The expected result of every filter for `channel_daemon` on this many nodes.
fn expected(nodes: u32) -> Value {
    let set = |of: &dyn Fn(&u32) -> bool| {
        (0..nodes).filter(of).map(gantry_types::id::Rank).collect::<RankSet>().to_string()
    };
    let text = |node: u32| "x".repeat(node as usize);
    json!({
        "concatenate": [nodes, (0..nodes).map(|node| json!([node, text(node)])).collect::<Vec<_>>()],
        "sum": [nodes, [nodes * (nodes - 1) / 2, nodes]],
        "min": [nodes, [0, 1]],
        "max": [nodes, [nodes - 1, 1]],
        "ranks": [nodes, set(&|_| true)],
        "keys": [nodes, {"even": set(&|node| node % 2 == 0), "odd": set(&|node| node % 2 == 1)}],
        "tree": [nodes, [["main", set(&|_| true), [["compute", set(&|node| *node > 0), []], ["write", "0", []]]]]],
        "own": [nodes, text(nodes - 1)],
        "left": RADIX,
    })
}

#[test]
fn a_tool_on_the_login_node_speaks_with_daemons_on_four_nodes() {
    let nodes = nodes();
    on_cluster(Config::with_nodes(nodes), move |cluster| {
        let words = [LARGE_BYTES, u64::from(RADIX)].map(|number| number.to_string());
        let launch = [format!("-N{nodes}"), format!("-n{}", 2 * nodes)];
        let rest = ["--ntasks-per-node=2", "sleep", "1"].map(str::to_owned);
        let args = words.into_iter().chain(launch).chain(rest);
        let mut run = cluster.run(binaries().dir.join("channel_tool"), args, &[]);
        let done = run.wait(3 * SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let said: Value = done.events().pop().expect("what it says");
        println!("{said}");
        for what in ["members", "gathered", "right"] {
            assert_eq!(said[what], json!(nodes), "{what}: {said}");
        }
        let (reduced, expected) = (said["reduced"].as_object().expect("results"), expected(u32::from(nodes)));
        assert_eq!(reduced.len(), expected.as_object().expect("results").len(), "{reduced:?}");
        for (filter, result) in reduced {
            assert_eq!(*result, expected[filter], "{filter}");
        }
        check_policies(&said["policies"], u64::from(nodes));
    });
}

/// The daemon on node 2 was killed while all daemons waited for it.
fn check_policies(policies: &Value, nodes: u64) {
    let missing = json!([[2, "n003", "Gone"]]);
    let well = json!([true, nodes - 1, missing]);
    let failed = json!([false, null, missing]);
    let expected = [
        ("All".to_owned(), &failed),
        (format!("Quorum({nodes})"), &failed),
        (format!("Quorum({})", nodes - 1), &well),
        ("BestEffort".to_owned(), &well),
    ];
    let all =
        expected.map(|(policy, outcome)| json!({"policy": policy, "gather": outcome, "reduce": outcome}));
    assert_eq!(*policies, json!(all));
}
