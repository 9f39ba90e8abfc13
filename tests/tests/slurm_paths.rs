//! Sessions must have one path on every node, because daemons get it as an argument.

use gantry_tests::SOON;
use gantry_tests::proc::eventually;
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;

#[test]
fn a_daemon_finds_a_file_at_the_path_that_the_tool_was_told_on_every_node() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let file = cluster.world.work_dir().join("settings");
        std::fs::write(&file, "a = b").expect("a file");
        let mut tool = cluster.tool(&[]);
        tool.ask("hold -N4 -n4 /bin/sleep 1000");
        let first = tool.check_session_path(&file, 4);
        let second = tool.check_session_path(&file, 4);
        assert_eq!(first.parent(), second.parent(), "one directory for the app");
        tool.ask("destroy");
        tool.ask("destroy");
        assert_eq!(files(cluster), 0, "the last session takes the app's directory along");
        // After the last session, the same path is used again.
        assert_eq!(tool.check_session_path(&file, 4).parent(), first.parent());
        tool.ask("close");
    });
}

#[test]
fn a_node_where_the_path_cannot_be_made_is_named() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let stage = "/dev/shm/stage";
        // In a directory that the leak check searches, on three of the four nodes only.
        for node in [1, 2, 4] {
            let mut make = cluster.bed.node(node).root_command("sh").expect("a node");
            make.args(["-c", &format!("mkdir {stage} && chmod 1777 {stage}")]);
            assert!(make.status().expect("sh").success());
        }
        let mut tool = cluster.tool(&[("FAULT_TOOL_STAGE", stage)]);
        tool.ask("hold -N4 -n4 /bin/sleep 1000");
        let refused = tool.refused("session");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains("n003"), "{refused}");
        assert!(
            message.contains(&format!("use {stage} (the directory asked for) for storage: missing")),
            "{refused}"
        );
        assert!(refused["hint"].as_str().is_some_and(|hint| hint.contains("on every node")), "{refused}");
        eventually(SOON, "what other nodes have made is removed", || files(cluster) == 0);
        tool.ask("close");
        for node in [1, 2, 4] {
            let mut remove = cluster.bed.node(node).root_command("rmdir").expect("a node");
            assert!(remove.arg(stage).status().expect("rmdir").success(), "it is empty");
        }
    });
}

/// The number of the user's files on all nodes.
fn files(cluster: &Cluster) -> usize {
    cluster.bed.nodes().iter().map(|node| node.user_files().len()).sum()
}
