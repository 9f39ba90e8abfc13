//! Properties of every node that tools in C rely on: equal paths, kills that include all children, stops before the
//! next message. Tested on Slurm nodes with each process tracking method, on hosts over ssh, and here.

use gantry_tests::capi::{prefix, program};
use gantry_tests::slurm::on_cluster;
use gantry_tests::ssh::on_hosts;
use gantry_tests::testbed::Config;
use gantry_tests::testbed::config::Proctrack;
use gantry_tests::{SOON, World, within};

/// Runs a test of the suite `everywhere.c` on this many Slurm nodes. It must leave nothing on any node.
fn run_by_slurm(test: &'static str, nodes: u16, proctrack: Proctrack) {
    on_cluster(Config { proctrack, ..Config::with_nodes(nodes) }, move |cluster| {
        let (count, on) = (nodes.to_string(), format!("-N{nodes}"));
        check(cluster, test, &[&count, &on, "--ntasks-per-node=2"], "slurm");
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

fn run_by_ssh(test: &'static str, nodes: u16) {
    on_hosts(Config::with_nodes(nodes), move |cluster| {
        let (count, hosts) = (nodes.to_string(), format!("n[001-{nodes:03}]:2"));
        check(cluster, test, &[&count, "--hosts", &hosts], "ssh");
    });
}

#[track_caller]
fn check(cluster: &gantry_tests::slurm::Cluster, test: &str, args: &[&str], wlm: &str) {
    let install = prefix().to_str().expect("a path");
    let words = [&[test], args].concat();
    let variables = [("CTI_INSTALL_DIR", install), ("CTI_WLM_IMPL", wlm)];
    let done = cluster.run(program("everywhere", "fe", &[]), words, &variables).wait(3 * SOON);
    assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
    assert!(done.stdout.iter().any(|line| *line == format!("ok {test}")), "{done:?}");
}

#[test]
fn directories_of_a_session_are_where_the_tool_says_on_every_node_of_slurm() {
    run_by_slurm("paths", 4, Proctrack::LinuxProc);
}

#[test]
fn directories_of_a_session_are_where_the_tool_says_on_every_node_where_nothing_outlives_a_step() {
    run_by_slurm("paths", 2, Proctrack::Cgroup);
}

#[test]
fn directories_of_a_session_are_where_the_tool_says_on_every_host_over_ssh() {
    run_by_ssh("paths", 4);
}

#[test]
fn a_killed_app_takes_along_its_ranks_children_under_slurm() {
    run_by_slurm("children", 2, Proctrack::LinuxProc);
}

#[test]
fn a_killed_app_takes_along_its_ranks_children_where_nothing_outlives_a_step() {
    run_by_slurm("children", 2, Proctrack::Cgroup);
}

#[test]
fn a_killed_app_takes_along_its_ranks_children_over_ssh() {
    run_by_ssh("children", 2);
}

#[test]
fn a_preloaded_library_is_in_every_rank_under_slurm() {
    run_by_slurm("preload", 2, Proctrack::LinuxProc);
}

#[test]
fn a_preloaded_library_is_in_every_rank_over_ssh() {
    run_by_ssh("preload", 2);
}

#[test]
fn a_stop_comes_before_the_signal_that_is_sent_next_under_slurm() {
    run_by_slurm("stops", 2, Proctrack::LinuxProc);
}

#[test]
fn a_stop_comes_before_the_signal_that_is_sent_next_over_ssh() {
    run_by_ssh("stops", 2);
}

#[test]
fn on_one_machine_it_is_the_same() {
    within(4 * SOON, || {
        for test in ["paths", "children", "preload", "stops"] {
            let world = World::new();
            let mut command = world.command(program("everywhere", "fe", &[]));
            command.args([test, "1", "-n", "2"]).env("CTI_INSTALL_DIR", prefix());
            let mut run = world.spawn(command);
            run.close_stdin();
            let done = run.wait(2 * SOON);
            assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
            world.finish();
        }
    });
}
