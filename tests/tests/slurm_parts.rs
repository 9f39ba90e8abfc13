//! Apps of several parts on a real Slurm: heterogeneous jobs and array tasks. Every rank's process must have that
//! rank in its own environment.

use std::collections::BTreeMap;

use gantry_tests::slurm::{Cluster, error_of, on_cluster};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, becomes_true, proc};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The event must list these ranks on these nodes. Each rank must be the process that has this number from Slurm.
#[track_caller]
fn assert_ranks(cluster: &Cluster, event: &Value, nodes: &[&str]) {
    let mut processes = BTreeMap::new();
    for node in cluster.bed.nodes() {
        let name = node.name().to_owned();
        processes.extend(node.user_processes().into_iter().map(|it| ((name.clone(), it.number), it.pid)));
    }
    let ranks = event["ranks"].as_array().expect("ranks");
    let found: Vec<&str> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
    assert_eq!(found, nodes, "{event}");
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(rank["rank"], number, "{event}");
        let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
        let host = rank["host"].as_str().expect("a host").to_owned();
        let outside = processes[&(host, pid)];
        assert_eq!(proc::variable(outside, "SLURM_PROCID"), Some(number.to_string()), "{rank}");
    }
}

/// The number of ranks with this command line. An srun of a batch job has the same end, and does not count.
fn ranks(cluster: &Cluster, line: &str) -> usize {
    cluster.find(line).iter().filter(|(_, process)| !process.line.starts_with("srun")).count()
}

/// Starts a program on the login node and waits until this many processes with this command line run on the nodes.
#[track_caller]
fn start(cluster: &Cluster, program: &str, args: &[&str], (line, count): (&str, usize)) -> Run {
    let mut run = cluster.run(program, args, &[]);
    let there = becomes_true(SOON, || ranks(cluster, line) == count);
    assert!(there, "{:?}: {:?}\n{}", run.stderr(), cluster.find(line), cluster.bed.last_log_lines());
    run
}

/// Attaches with a daemon on each node, checks the ranks, and detaches.
#[track_caller]
fn attach(cluster: &Cluster, target: &str, nodes: &[&str]) {
    let daemon = "/bin/sleep 2000";
    let mut tool = cluster.gantry(["--json", "attach", target, "--daemon", daemon]);
    let event = tool.next_event("attached", SOON);
    assert_ranks(cluster, &event, nodes);
    let hosts: std::collections::BTreeSet<&str> = nodes.iter().copied().collect();
    for _ in &hosts {
        tool.next_event("daemon_started", SOON);
    }
    proc::send(program(tool.pid()).expect("the tool"), Signal::SIGINT);
    tool.exited(SOON);
    assert!(cluster.find("sleep 2000").is_empty());
}

#[track_caller]
fn cancel(cluster: &Cluster, mut run: Run) {
    cluster.said("scancel", ["--me"]);
    run.exited(SOON);
    cluster.bed.wait_idle(2 * SOON).expect("idle");
}

#[test]
fn all_components_of_a_heterogeneous_step_are_attached_to_with_global_ranks() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let args = ["-n1", "sleep", "900", ":", "-N2", "-n3", "--ntasks-per-node=2", "sleep", "900"];
        let run = start(cluster, "srun", &args, ("sleep 900", 4));
        let jobs = cluster.said("squeue", ["--me", "--noheader", "--format=%i %A"]);
        let leader = jobs.split('+').next().expect("a job").to_owned();
        // The target is always the whole step, whichever of its parts is named.
        for target in [format!("{leader}.0"), format!("{leader}+1.0"), leader.clone()] {
            attach(cluster, &target, &["n001", "n002", "n002", "n003"]);
        }
        cancel(cluster, run);
    });
}

#[test]
fn a_component_with_an_srun_of_its_own_is_attached_to_alone() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let script = "srun --het-group=1 -n3 sleep 901 & srun --het-group=0 -n1 sleep 902 & wait";
        let args = ["-n1", ":", "-N2", "-n3", "bash", "-c", script];
        let run = start(cluster, "salloc", &args, ("sleep 901", 3));
        assert!(becomes_true(SOON, || ranks(cluster, "sleep 902") == 1));
        let jobs = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]);
        let leader = jobs.split('+').next().expect("a job").to_owned();
        attach(cluster, &format!("{leader}+1"), &["n002", "n002", "n003"]);
        attach(cluster, &format!("{leader}+0"), &["n001"]);
        cancel(cluster, run);
    });
}

#[test]
fn tasks_of_an_array_are_attached_to_by_name_and_told_apart() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let wrap = "--wrap=srun -N2 -n2 sleep 90$SLURM_ARRAY_TASK_ID";
        let args = ["--parsable", "--output=/dev/null", "--array=3,5", "-N2", "-n2", wrap];
        let mut run = start(cluster, "sbatch", &args, ("sleep 903", 2));
        run.exited(SOON);
        assert!(becomes_true(SOON, || ranks(cluster, "sleep 905") == 2));
        let array = run.stdout().concat().trim().to_owned();
        attach(cluster, &format!("{array}_3.0"), &["n001", "n002"]);
        attach(cluster, &format!("{array}_5"), &["n001", "n002"]);
        let refused = cluster.gantry(["--json", "attach", &array]).wait(SOON);
        let error = error_of(&refused).to_string();
        assert!(error.contains(&format!("{array}_3, {array}_5")), "{error}");
        cluster.said("scancel", ["--me"]);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// Two programs in one srun.
const PARTS: [&str; 9] = ["--", "-n1", "/bin/sleep", "910", ":", "-N2", "-n3", "/bin/sleep", "910"];

#[test]
fn parts_of_a_launch_have_the_ranks_that_srun_gives_them() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let mut run = cluster.gantry(["launch", "--json", "--cwd", "/", "--hold"].iter().chain(&PARTS));
        let event = run.next_event("held", SOON);
        assert_ranks(cluster, &event, &["n001", "n002", "n002", "n003"]);
        cluster.assert_held("sleep 910", 4);
        cluster.ask(&["kill", event["app"].as_str().expect("an id")]);
        run.exited(SOON);
    });
}

#[test]
fn srun_holds_the_ranks_of_parts_itself_and_none_of_its_threads_lets_them_go() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let by_srun = ["launch", "--json", "--cwd", "/", "--hold", "--hold-method=mpir"];
        let mut run = cluster.gantry(by_srun.iter().chain(&PARTS));
        let event = run.next_event("held", SOON);
        assert_ranks(cluster, &event, &["n001", "n002", "n002", "n003"]);
        cluster.assert_held("sleep 910", 4);
        cluster.ask(&["kill", event["app"].as_str().expect("an id")]);
        run.exited(SOON);
        let ends = ["--", "-n1", "/bin/sh", "-c", "exit 3", ":", "-n2", "/bin/sh", "-c", "exit 5"];
        let mut run = cluster.gantry(by_srun.iter().chain(&ends));
        let app = run.next_event("held", SOON)["app"].as_str().expect("an id").to_owned();
        cluster.assert_held("exit 5", 2);
        cluster.ask(&["release", &app]);
        assert_eq!(run.wait(SOON).code(), 5);
    });
}

#[test]
fn srun_does_not_stand_still_with_parts_that_threads_of_it_start() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let args = ["launch", "--json", "--hold", "--hold-method=mpir-stop"];
        let done = cluster.gantry(args.iter().chain(&PARTS)).wait(SOON);
        let error = error_of(&done);
        assert_eq!(error["kind"], "invalid", "{error}");
        assert!(error.to_string().contains("it starts each part in a thread of its own"), "{error}");
    });
}
