//! `gantry why` and `gantry stack` on hung MPI programs on hosts over ssh, by the launcher's host and pid. Then the
//! programs are freed and must print their result.

use std::time::{Duration, Instant};

use gantry_tests::hung::{assert_result, lost_message, lost_message_says};
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, becomes_true, proc, require, tool};
use nix::sys::signal::Signal;

const LONG: Duration = Duration::from_secs(60);

/// Starts a program on the first node without gantry. Returns the run and the pid there.
fn start_there(cluster: &Cluster, program: &[&str]) -> (Run, String) {
    let mut command = cluster.bed.node(1).command("sh").expect("a node");
    command.args(["-c", "echo $$; exec \"$@\"", "sh"]).args(program);
    command.envs(cluster.world.variables()).env_remove("TMPDIR");
    let mut run = cluster.world.spawn(command);
    let pid = run.next_line(SOON);
    (run, pid)
}

/// `gantry stack` and `gantry why` must report which ranks are where, and leave the program unchanged.
#[track_caller]
fn check(cluster: &Cluster, launcher: &[&str], program: &str) {
    let (mut run, pid) = start_there(cluster, &[launcher, &["-n", "4", program]].concat());
    let all_hang = becomes_true(LONG, || {
        run.stdout().iter().map(|line| line.matches("there").count()).sum::<usize>() == 4
    });
    assert!(all_hang, "{:?} {:?}", run.stdout().to_vec(), run.stderr().to_vec());
    let target = format!("ssh:n001:{pid}");
    let says = lost_message_says("n001", "n002", 2);
    let until = Instant::now() + LONG;
    let tree = loop {
        let tree = cluster.gantry(["stack", &target]).wait(LONG);
        let why = cluster.gantry(["why", &target]).wait(LONG);
        assert_eq!((tree.code(), why.code()), (0, 0), "{tree:?} {why:?}");
        if tree.stdout[0] == "4 ranks in 3 classes" && why.stdout == says {
            break tree.stdout;
        }
        assert!(Instant::now() < until, "{tree:?} {why:?}");
    };
    let has = |parts: &[&str]| tree.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["main (lost_message.c:", "MPI_Barrier", "[1-2]"]), "{tree:?}");
    assert!(has(&["gather (lost_message.c:", "MPI_Recv", "[0] on n001"]), "{tree:?}");
    assert!(has(&["usleep", "[3] on n002"]), "{tree:?}");
    let ranks: Vec<i32> = cluster
        .find(program)
        .into_iter()
        .map(|(_, it)| it)
        .filter(|it| it.line == program)
        .map(|it| it.pid)
        .collect();
    assert_eq!(ranks.len(), 4);
    assert!(ranks.iter().all(|pid| proc::tracer(*pid).is_none()));
    proc::send_those_left(ranks, Signal::SIGUSR1);
    assert_result(&run.wait(LONG), 4);
}

#[test]
fn a_program_of_mpich_that_hangs_is_looked_at_by_its_launcher_on_a_host() {
    require!(tool("mpiexec.hydra"));
    let hang = require!(lost_message("mpicc.mpich"));
    on_cluster(Config::with_nodes(2), move |cluster| {
        check(cluster, &["mpiexec.hydra", "-hosts", "n001,n002", "-ppn", "2"], &hang);
    });
}

#[test]
fn a_program_of_open_mpi_that_hangs_is_looked_at_by_its_launcher_on_a_host() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(lost_message("mpicc.openmpi"));
    on_cluster(Config::with_nodes(2), move |cluster| {
        check(cluster, &["mpirun.openmpi", "-host", "n001:2,n002:2"], &hang);
    });
}
