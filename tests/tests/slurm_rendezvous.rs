//! Ranks of a real srun exchange data on four nodes, with handles from the agent that holds them.

use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{SOON, binaries};

const EIGHT: [&str; 4] = ["--", "-N4", "-n8", "--ntasks-per-node=2"];

#[test]
fn ranks_of_four_nodes_exchange_data_and_a_death_breaks_it() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let probe = binaries().dir.join("rendezvous_probe").display().to_string();
        for words in [&["all"][..], &["late"], &["items"], &["named", "5"], &["dies", "6"]] {
            let args: Vec<&str> =
                EIGHT.iter().copied().chain([probe.as_str()]).chain(words.iter().copied()).collect();
            let done = cluster.launch(&args).wait(2 * SOON);
            assert_eq!(done.code(), 0, "{words:?}: {done:?}");
        }
    });
}

#[test]
fn held_ranks_find_it_when_they_are_let_go() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let agent = binaries().agent.display().to_string();
        let text = format!(
            "printf $SLURM_PROCID | {agent} rendezvous put && test \"$({agent} rendezvous get)\" = '8 1 01 11 21 31 41 51 61 7'"
        );
        let args: Vec<&str> = EIGHT.iter().copied().chain(["/bin/sh", "-c", &text]).collect();
        let (mut run, app) = cluster.held(&args);
        cluster.ask(&["release", &app]);
        let done = run.wait(2 * SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}
