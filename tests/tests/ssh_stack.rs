//! `gantry why` and `gantry stack` on MPI programs that hang on hosts which are reached by ssh: by the launcher's host and process id.

use std::time::{Duration, Instant};

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, becomes_true, proc, programs, require, tool};
use nix::sys::signal::Signal;

const LONG: Duration = Duration::from_secs(60);

/// Starts a program on the first node, by no means of ours. Gives its pid there, too.
fn start_there(cluster: &Cluster, program: &[&str]) -> (Run, String) {
    let mut command = cluster.bed.node(1).command("sh").expect("a node");
    command.args(["-c", "echo $$; exec \"$@\"", "sh"]).args(program);
    command.envs(cluster.world.variables()).env_remove("TMPDIR");
    let mut run = cluster.world.spawn(command);
    let pid = run.next_line(SOON);
    (run, pid)
}

/// Whether `gantry stack` and `gantry why` say which ranks are where.
#[track_caller]
fn check(cluster: &Cluster, launcher: &[&str], program: &str) {
    let (mut run, pid) = start_there(cluster, &[launcher, &["-n", "4", program]].concat());
    let all_hang = becomes_true(LONG, || {
        run.stdout().iter().map(|line| line.matches("hanging").count()).sum::<usize>() == 4
    });
    assert!(all_hang, "{:?} {:?}", run.stdout().to_vec(), run.stderr().to_vec());
    let target = format!("ssh:n001:{pid}");
    let until = Instant::now() + LONG;
    let (tree, why) = loop {
        let tree = cluster.gantry(["stack", &target]).wait(LONG);
        let why = cluster.gantry(["why", &target]).wait(LONG);
        assert_eq!((tree.code(), why.code()), (0, 0), "{tree:?} {why:?}");
        let first = why.stdout.first().map(String::as_str).unwrap_or_default();
        if tree.stdout[0] == "4 ranks in 3 classes"
            && first.starts_with("rank 0 on n001 waits in MPI_Recv called at mpi_hang.c:")
        {
            break (tree.stdout, why.stdout);
        }
        assert!(Instant::now() < until, "{tree:?} {why:?}");
    };
    let has = |lines: &[String], parts: &[&str]| {
        lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(has(&tree, &["meet_the_others (mpi_hang.c:", "MPI_Barrier", "[1-2]"]), "{tree:?}");
    assert!(has(&tree, &["turn_for_ever (mpi_hang.c:", "[3] on n002"]), "{tree:?}");
    assert!(why[0].contains(" while 2 others wait in MPI_Barrier called at mpi_hang.c:"), "{why:?}");
    assert!(has(&why, &["rank 3 on n002 "]), "{why:?}");
    proc::send(gantry_tests::testbed::program(run.pid()).expect("the launcher"), Signal::SIGINT);
    run.exited(LONG);
}

#[test]
fn a_program_of_mpich_that_hangs_is_looked_at_by_its_launcher_on_a_host() {
    require!(tool("mpiexec.hydra"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.mpich")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        check(cluster, &["mpiexec.hydra", "-hosts", "n001,n002", "-ppn", "2"], &hang);
    });
}

#[test]
fn a_program_of_open_mpi_that_hangs_is_looked_at_by_its_launcher_on_a_host() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.openmpi")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        check(cluster, &["mpirun.openmpi", "-host", "n001:2,n002:2"], &hang);
    });
}
