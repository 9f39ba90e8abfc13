//! Batch jobs that the command line submits to a real PBS: attached to when their ranks run, cancelled when nobody waits any more.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gantry_tests::pbs::{STARTS, jobs, on_pbs, said_by};
use gantry_tests::slurm::{Cluster, error_of};
use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::pbs::installation;
use gantry_tests::testbed::program;
use gantry_tests::{Run, SOON, eventually, proc};
use nix::sys::signal::Signal;

/// A batch script in the user's home, which every host sees.
fn script(cluster: &Cluster, name: &str, lines: &str) -> String {
    let path = cluster.bed.login().path(Path::new(HOME).join(name)).expect("the login node");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    Path::new(HOME).join(name).display().to_string()
}

#[track_caller]
fn submit(cluster: &Cluster, args: &[&str]) -> Run {
    cluster.gantry([&["--json", "submit", "--wlm", "pbs"], args].concat())
}

/// Keeps a job's output off every host.
const QUIET: [&str; 4] = ["-j", "oe", "-o", "/dev/null"];

#[test]
fn a_job_is_attached_to_when_its_ranks_run_and_is_its_own_from_then_on() {
    on_pbs(|cluster| {
        let pbsdsh = installation().expect("PBS").join("bin/pbsdsh");
        let script = script(cluster, "runs.sh", &format!("{} -- /bin/sleep 1100", pbsdsh.display()));
        let places = ["-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter"];
        let options = ["--daemon", "/bin/sleep 2000", "--"];
        let mut run = submit(cluster, &[&options[..], &QUIET, &places, &[&script]].concat());
        let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
        let attached = run.next_event("attached", STARTS);
        let ranks = attached["ranks"].as_array().expect("ranks");
        let hosts: Vec<_> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
        assert_eq!(hosts, ["n001", "n001", "n002", "n002"], "{attached}");
        run.next_event("daemon_started", SOON);
        run.next_event("daemon_started", SOON);
        // From here on the job is its own: who lets go leaves it alone.
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(SOON);
        assert!(jobs(&cluster.bed).contains(job.split('.').next().expect("a number")));
        assert_eq!(
            cluster.find("/bin/sleep 1100").iter().filter(|it| it.1.line.starts_with("/bin")).count(),
            4
        );
        assert_eq!(said_by(&cluster.bed, &["qdel", &job]), "");
    });
}

/// A job that is held, when the tool has said so.
#[track_caller]
fn waiting(cluster: &Cluster, options: &[&str], script: &str) -> Run {
    let mut run = submit(cluster, &[options, &["--", "-h"], &QUIET, &[script]].concat());
    let news = run.next_event("waiting", SOON);
    assert!(news["message"].as_str().is_some_and(|it| it.contains("is held by a user")), "{news}");
    assert!(!jobs(&cluster.bed).is_empty());
    run
}

#[test]
fn a_job_that_is_interrupted_killed_or_late_before_it_runs_is_cancelled() {
    on_pbs(|cluster| {
        let script = script(cluster, "never.sh", "/bin/sleep 1101");
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let mut run = waiting(cluster, &[], &script);
            proc::send(program(run.pid()).expect("the tool"), signal);
            run.exited(SOON);
            eventually(SOON, "the job is cancelled", || jobs(&cluster.bed).is_empty());
        }
        let mut run = waiting(cluster, &["--timeout", "4"], &script);
        let done = run.wait(SOON);
        assert!(error_of(&done).to_string().contains("is held by a user"), "{done:?}");
        eventually(SOON, "the job is cancelled", || jobs(&cluster.bed).is_empty());
    });
}

#[test]
fn a_job_that_is_refused_or_runs_nothing_says_so() {
    on_pbs(|cluster| {
        let script = script(cluster, "nothing.sh", ":");
        let check = |args: &[&str], kind: &str, words: &str| {
            let error = error_of(&submit(cluster, &[&["--"], &QUIET[..], args].concat()).wait(STARTS));
            assert!(error["kind"] == kind && error.to_string().contains(words), "{error}");
        };
        check(&["-q", "nowhere", &script], "not-found", "qsub: Unknown queue");
        check(&["no-such-script"], "launcher-failed", "qsub: script file");
        check(&[&script], "gone", "ended with 0");
    });
}
