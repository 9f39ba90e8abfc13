//! Batch jobs that the command line submits to a real Slurm: attached to when their srun has started, cancelled when nobody waits any more.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use gantry_tests::slurm::{Cluster, error_of, on_cluster};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, becomes_true, eventually, proc};
use nix::sys::signal::Signal;

/// A batch script where every host sees it.
fn script(name: &str, lines: &str) -> String {
    let folder =
        gantry_tests::target_dir().join("test-programs").join(format!("submit-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    path.display().to_string()
}

#[track_caller]
fn submit(cluster: &Cluster, args: &[&str]) -> Run {
    cluster.gantry(["--json", "submit"].iter().chain(args))
}

/// States of the user's jobs, as Slurm has them.
fn jobs(cluster: &Cluster) -> String {
    cluster.said("squeue", ["--me", "--noheader", "--format=%A %T"])
}

#[test]
fn a_job_is_attached_to_when_its_srun_has_started() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let script = script("runs", "srun sleep 700; sleep 701");
        let daemon = ["--daemon", "/bin/sleep 2000", "--", "--output=/dev/null"];
        let job = ["-N2", "-n4", "--ntasks-per-node=2", &script];
        let mut run = submit(cluster, &[&daemon[..], &job].concat());
        let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
        let attached = run.next_event("attached", SOON);
        let ranks = attached["ranks"].as_array().expect("ranks");
        let hosts: Vec<_> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
        assert_eq!(hosts, ["n001", "n001", "n002", "n002"], "{attached}");
        run.next_event("daemon_started", SOON);
        run.next_event("daemon_started", SOON);
        // From here on the job is its own: who lets go leaves it alone.
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(SOON);
        assert_eq!(jobs(cluster).trim(), format!("{job} RUNNING"));
        let all = cluster.find("sleep 700");
        assert_eq!(all.iter().filter(|(_, process)| !process.line.starts_with("srun")).count(), 4, "{all:?}");
        cluster.said("scancel", ["--me"]);
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

/// A job that waits for an hour, when the tool has said so.
#[track_caller]
fn waiting(cluster: &Cluster, options: &[&str]) -> Run {
    let args = [options, &["--", "--begin=now+1hour", "--output=/dev/null", "--wrap=srun true"]].concat();
    let mut run = submit(cluster, &args);
    let news = run.next_event("waiting", SOON);
    assert!(news["message"].as_str().is_some_and(|it| it.contains("PENDING (BeginTime)")), "{news}");
    assert!(jobs(cluster).contains("PENDING"));
    run
}

#[track_caller]
fn assert_cancelled(cluster: &Cluster) {
    eventually(SOON, "the job is cancelled", || jobs(cluster).is_empty());
}

#[test]
fn a_job_that_is_interrupted_killed_or_late_before_it_runs_is_cancelled() {
    on_cluster(Config::with_nodes(2), |cluster| {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
            let mut run = waiting(cluster, &[]);
            proc::send(program(run.pid()).expect("the tool"), signal);
            run.exited(SOON);
            assert_cancelled(cluster);
        }
        let mut run = waiting(cluster, &["--timeout", "4"]);
        let done = run.wait(SOON);
        assert!(error_of(&done).to_string().contains("PENDING (BeginTime)"), "{done:?}");
        assert_cancelled(cluster);
    });
}

#[test]
fn a_job_that_is_refused_or_launches_nothing_says_so() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let done = submit(cluster, &["--", "--partition=none", "--wrap=true"]).wait(SOON);
        let error = error_of(&done).to_string();
        assert!(error.contains("sbatch: error:") && error.contains("nvalid partition"), "{error}");
        let done = submit(cluster, &["--", "no-such-script"]).wait(SOON);
        assert!(error_of(&done).to_string().contains("no-such-script"), "{done:?}");
        let done = submit(cluster, &["--", "--output=/dev/null", "--wrap=true"]).wait(SOON);
        let error = error_of(&done);
        assert_eq!(error["kind"], "gone", "{error}");
        assert!(error.to_string().contains("COMPLETED"), "{error}");
        let done = submit(cluster, &["--wlm", "localhost", "--", "x"]).wait(SOON);
        assert!(error_of(&done).to_string().contains("runs no batch jobs"), "{done:?}");
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn a_job_in_the_background_is_known_when_it_is_attached_to() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let script = script("stays", "srun -n1 sleep 702");
        let args = ["submit", "--background", "--", "--output=/dev/null", &script];
        let app = cluster.ask(&args).stdout.concat();
        let listed = cluster.ask(&["ps", "--json"]).stdout.concat();
        assert!(listed.contains(app.trim()) && listed.contains("\"job\":"), "{listed}");
        cluster.said("scancel", ["--me"]);
        assert!(becomes_true(2 * SOON, || cluster.ask(&["ps", "--json"]).stdout.concat() == "[]"));
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}
