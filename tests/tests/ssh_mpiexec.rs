//! MPI launchers that reach their hosts by ssh themselves, and bring our agents with the ranks: real MPICH and Open MPI on hosts without a workload manager.

use gantry_tests::slurm::{Cluster, lines_of, on_cluster};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{SOON, proc, programs, require, tool};
use nix::sys::signal::Signal;

/// Two ranks on each of two nodes.
const HYDRA: [&str; 9] =
    ["--wlm", "ssh", "--launcher", "mpiexec.hydra", "--", "-hosts", "n001,n002", "-ppn", "2"];

/// The same; the nodes have one processor each as far as it can see.
const OPEN_MPI: [&str; 7] = ["--wlm", "ssh", "--launcher", "mpirun.openmpi", "--", "-host", "n001:2,n002:2"];

/// Launches held, judges four ranks on two nodes, starts a daemon beside them, lets them go; the code must be that, if one is given.
fn check(cluster: &Cluster, by: &[&str], program: &str, code: Option<i32>) -> Vec<String> {
    let (mut run, app) = cluster.held(&[by, &["-n", "4", program]].concat());
    cluster.assert_held(program, 4);
    let mut nodes: Vec<String> = cluster.find(program).into_iter().map(|(node, _)| node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n001", "n001", "n002", "n002"]);
    let daemon = cluster.make_daemon();
    cluster.ask(&["daemon", &app, "--", &daemon]);
    cluster.ask(&["release", &app]);
    let done = run.wait(2 * SOON);
    assert!(code.is_none_or(|code| done.code() == code), "{done:?}");
    lines_of(&done)
}

#[test]
fn mpich_holds_on_hosts_that_it_reaches_by_ssh() {
    require!(tool("mpiexec.hydra"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.mpich")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        let said = check(cluster, &HYDRA, &hello, Some(0));
        assert_eq!(said.iter().filter(|line| line.contains("of 4")).count(), 4, "{said:?}");
        check(cluster, &HYDRA, "/bin/hostname", Some(0));
    });
}

#[test]
fn open_mpi_holds_on_hosts_that_it_reaches_by_ssh() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        // The program leaves without a last word to the others, which Open MPI does not like.
        let said = check(cluster, &OPEN_MPI, &hello, None);
        assert_eq!(said.iter().filter(|line| line.contains("of 4")).count(), 4, "{said:?}");
        check(cluster, &OPEN_MPI, "/bin/hostname", Some(0));
    });
}

#[test]
fn a_killed_tool_leaves_nothing_of_a_launcher_on_any_host() {
    require!(tool("mpiexec.hydra"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let (mut run, _) = cluster.held(&[&HYDRA[..], &["-n", "4", "/bin/sleep", "1000"]].concat());
        cluster.assert_held("/bin/sleep 1000", 4);
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        drop(run);
        cluster.ask(&["ps", "--json"]);
        cluster.bed.assert_nothing_left(2 * SOON);
    });
}
