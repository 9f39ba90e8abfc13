//! `gantry stack` and `gantry why` on a step of a real Slurm, from the login node, by job, with no debugger on the
//! nodes.

use std::time::{Duration, Instant};

use gantry_tests::hung::{assert_result, lost_message, lost_message_says};
use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{becomes_true, proc, require, tool};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_step_that_hangs_shows_the_odd_ranks_and_their_nodes_and_has_its_result_once_it_is_freed() {
    let program = require!(lost_message("mpicc.mpich"));
    require!(tool("srun"));
    on_cluster(Config::with_nodes(3), move |cluster| {
        let mut srun =
            cluster.run("srun", ["--mpi=pmi2", "-N3", "-n6", "--ntasks-per-node=2", &program], &[]);
        let all_hang = becomes_true(LONG, || {
            srun.stdout().iter().map(|line| line.matches("there").count()).sum::<usize>() == 6
        });
        assert!(all_hang, "{:?} {:?}", srun.stdout().to_vec(), srun.stderr().to_vec());
        let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]).trim().to_owned();
        let nodes: Vec<String> = cluster.bed.nodes().iter().map(|node| node.name().to_owned()).collect();
        let says = lost_message_says(&nodes[0], &nodes[1], 4);
        let until = Instant::now() + LONG;
        let tree = loop {
            let tree = cluster.gantry(["stack", &job]).wait(LONG);
            let why = cluster.gantry(["why", &job]).wait(LONG);
            assert_eq!((tree.code(), why.code()), (0, 0), "{tree:?} {why:?}");
            let is_seen =
                |parts: &[&str]| tree.stdout.iter().any(|line| parts.iter().all(|part| line.contains(part)));
            if why.stdout == says
                && is_seen(&["usleep", &format!("[3] on {}", nodes[1])])
                && is_seen(&["gather (lost_message.c:", "MPI_Recv", &format!("[0] on {}", nodes[0])])
                && is_seen(&["MPI_Barrier", "[1-2,4-5]"])
            {
                break tree.stdout;
            }
            assert!(Instant::now() < until, "{}\n{why:?}", tree.stdout.join("\n"));
        };
        assert_eq!(tree[0], "6 ranks in 3 classes");
        let ranks = cluster.find(&program);
        assert!(ranks.iter().all(|(_, rank)| proc::tracer(rank.pid).is_none()), "{ranks:?}");
        // The job's number stands for its newest step.
        assert_eq!(cluster.gantry(["why", &format!("{job}.0")]).wait(LONG).stdout, says);
        cluster.said("scancel", ["--signal=USR1", job.as_str()]);
        assert_result(&srun.wait(LONG), 6);
    });
}
