//! MPI launchers that reach their hosts by ssh themselves: real MPICH and Open MPI on hosts without a workload
//! manager. They start our agents with the ranks. Or they already run on another host, and gantry attaches to them
//! from here.

use gantry_tests::slurm::{Cluster, error_of, lines_of, on_cluster};
use gantry_tests::ssh::home_file;
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, proc, programs, require, tool};
use nix::sys::signal::Signal;

/// Two ranks on each of two nodes.
const HYDRA: [&str; 9] =
    ["--wlm", "ssh", "--launcher", "mpiexec.hydra", "--", "-hosts", "n001,n002", "-ppn", "2"];

/// The same for Open MPI, which sees only one processor on each node.
const OPEN_MPI: [&str; 7] = ["--wlm", "ssh", "--launcher", "mpirun.openmpi", "--", "-host", "n001:2,n002:2"];

/// Launches held, checks four ranks on two nodes, starts a daemon beside them and releases them. If `code` is given,
/// the exit code must be that.
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
        // The program exits without MPI_Finalize. Open MPI treats that as a failure.
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

/// Starts a program on the first node without gantry. Returns the run and the pid there.
fn start_there(cluster: &Cluster, program: &[&str]) -> (Run, String) {
    let mut command = cluster.bed.node(1).command("sh").expect("a node");
    command.args(["-c", "echo $$; exec \"$@\"", "sh"]).args(program);
    command.envs(cluster.world.variables()).env_remove("TMPDIR");
    let mut run = cluster.world.spawn(command);
    let pid = run.next_line(SOON);
    (run, pid)
}

#[test]
fn a_launcher_that_runs_on_a_host_is_attached_to_from_here() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.openmpi")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        let line = ["mpirun.openmpi", "-host", "n001:2,n002:2", "-n", "4", &hang];
        let (mut launcher, pid) = start_there(cluster, &line);
        (0..4).for_each(|_| assert_eq!(launcher.next_line(2 * SOON), "hanging"));
        let daemon = cluster.make_daemon();
        for target in [format!("ssh:n001:{pid}"), format!("ssh:tester@n001:{pid}")] {
            let mut run = cluster.gantry(["attach", "--json", "--daemon", &daemon, &target]);
            let attached = run.next_event("attached", SOON);
            let ranks = attached["ranks"].as_array().expect("ranks");
            let hosts: Vec<&str> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
            assert_eq!(hosts, ["n001", "n001", "n002", "n002"], "{attached}");
            assert!(ranks.iter().all(|rank| rank["exe"] == hang.as_str()), "{attached}");
            // A daemon's output takes another path than its end, and is dropped after the detach. So wait for it.
            (0..2).for_each(|_| drop(run.next_event("output", SOON)));
            proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
            let done = run.wait(SOON);
            assert_eq!(lines_of(&done), ["answer 42"; 2], "{done:?}");
            // The ranks are left as they were found.
            assert_eq!(cluster.find(&hang).iter().filter(|(_, it)| it.line == hang).count(), 4);
        }
        // Launch options that say how hosts are reached apply here too. Others are refused.
        let attach = |target: &str, more: &[&str]| {
            let args = ["attach", "-v", "--json", target, "--"].into_iter().chain(more.iter().copied());
            cluster.gantry(args)
        };
        let target = format!("ssh:n001:{pid}");
        let error = error_of(&attach(&target, &["--login", "nobody"]).wait(SOON)).to_string();
        assert!(error.contains("nobody@n001: Permission denied"), "{error}");
        let error = error_of(&attach(&target, &["--hosts", "n001"]).wait(SOON)).to_string();
        assert!(error.contains("'--hosts' does not say how hosts are reached"), "{error}");
        let mut run = attach(&target, &["--window", "1", "--login=tester", "--transport", "ssh"]);
        run.next_event("attached", SOON);
        (0..2).for_each(|_| drop(run.stderr_line("has its link over ssh", SOON)));
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(SOON);
        let mut run = {
            let _config = home_file(cluster, ".ssh/config", "Host n002\n Port 23\n");
            let target = format!("ssh:n001:{pid}");
            let mut run = cluster.gantry(["attach", "--json", "--hosts-policy", "quorum=1", &target]);
            let attached = run.next_event("attached", SOON).to_string();
            assert_eq!(attached.matches(r#""state":"running""#).count(), 2, "{attached}");
            assert_eq!(attached.matches(r#""state":"lost""#).count(), 2, "{attached}");
            let told = run.next_event("hosts_left_out", SOON);
            assert!(told.to_string().contains("n002 port 23: Connection refused"), "{told}");
            run
        };
        proc::send(program(launcher.pid()).expect("the launcher"), Signal::SIGTERM);
        run.exited(2 * SOON);
        launcher.exited(2 * SOON);
    });
}

#[test]
fn an_invalid_target_on_a_host_is_named() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let check = |target: &str, more: &[&str], parts: &[&str]| {
            let args = ["attach", "--json", target].into_iter().chain(more.iter().copied());
            let done = cluster.gantry(args).wait(SOON);
            assert_ne!(done.code(), 0, "{done:?}");
            let error = error_of(&done).to_string();
            for part in parts {
                assert!(error.contains(part), "{target}: no '{part}' in {error}");
            }
        };
        check("ssh:n999:1", &[], &["n999: ", "Could not resolve hostname n999"]);
        check("ssh:n001:4194304", &[], &["n001: there is no process 4194304 on n001"]);
        check("n001:1", &["--wlm", "ssh"], &["n001: process 1 belongs to another user"]);
        check("ssh:n001", &[], &["'n001' names no launcher", "ssh:HOST:PID"]);
        let (mut shell, pid) = start_there(cluster, &["cat"]);
        check(&format!("ssh:n001:{pid}"), &[], &["n001: find the ranks of process", "no MPIR symbols in"]);
        let without_ranks = programs::get("mpir_launcher").display().to_string();
        let (mut launcher, pid) = start_there(cluster, &[&without_ranks, "wait"]);
        assert_eq!(launcher.next_line(SOON), "debugged 0");
        let empty = "n001: the launcher's table of ranks is empty";
        check(&format!("ssh:n001:{pid}"), &[], &[empty, "--wait"]);
        check(&format!("ssh:n001:{pid}"), &["--wait", "--timeout", "2"], &[empty]);
        for run in [&mut shell, &mut launcher] {
            run.close_stdin();
            run.exited(SOON);
        }
    });
}
