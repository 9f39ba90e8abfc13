//! `gantry stack` on a step of a real Slurm, from the login node: by job, and with nothing of a debugger on the nodes.

use std::time::{Duration, Instant};

use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{becomes_true, programs, require, tool};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_step_that_hangs_in_a_skipped_collective_shows_the_odd_rank_and_its_node() {
    let program = require!(programs::get_mpi("mpi_hang", "mpicc.mpich"));
    require!(tool("srun"));
    on_cluster(Config::with_nodes(3), move |cluster| {
        let program = program.to_str().expect("a path").to_owned();
        let mut srun = cluster.run("srun", ["--mpi=pmi2", "-N3", "-n6", &program], &[]);
        let all_hang = becomes_true(LONG, || {
            srun.stdout().iter().map(|line| line.matches("hanging").count()).sum::<usize>() == 6
        });
        assert!(all_hang, "{:?} {:?}", srun.stdout().to_vec(), srun.stderr().to_vec());
        let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]).trim().to_owned();
        let until = Instant::now() + LONG;
        let tree = loop {
            let done = cluster.gantry(["stack", &job]).wait(LONG);
            assert_eq!(done.code(), 0, "{done:?}");
            let is_seen =
                |parts: &[&str]| done.stdout.iter().any(|line| parts.iter().all(|part| line.contains(part)));
            if is_seen(&["turn_for_ever (mpi_hang.c:", "[5] on n"])
                && is_seen(&["wait_for_nobody (mpi_hang.c:", "MPI_Recv", "[0] on n"])
                && is_seen(&["meet_the_others (mpi_hang.c:", "MPI_Barrier", "[1-4]"])
            {
                break done.stdout;
            }
            assert!(Instant::now() < until, "{}", done.stdout.join("\n"));
        };
        assert_eq!(tree[0], "6 ranks in 3 classes");
        cluster.said("scancel", [job.as_str()]);
        srun.exited(LONG);
    });
}
