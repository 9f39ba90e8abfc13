//! The channel on nodes of a real cluster: other hosts, another network, agents that came with the ranks.

use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, binaries};
use serde_json::Value;

#[test]
fn a_tool_on_the_login_node_speaks_with_daemons_on_four_nodes() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let args = ["20000000", "-N4", "-n8", "--ntasks-per-node=2", "sleep", "1"];
        let mut run = cluster.run(binaries().dir.join("channel_tool"), args, &[]);
        let done = run.wait(2 * SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let said: Value = done.events().pop().expect("what it says");
        assert_eq!((&said["members"], &said["right"]), (&4.into(), &4.into()), "{said}");
        assert_eq!(said["sum"], serde_json::json!([6, 4]), "{said}");
        println!("{said}");
    });
}
