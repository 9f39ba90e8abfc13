//! Batch jobs of the command line, with any workload manager: what happens to the job when the command stops waiting
//! for it.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::executable::write_executable;
use crate::slurm::{Cluster, error_of};
use crate::testbed::program;
use crate::{Run, SOON, becomes_true, eventually, proc};

/// Makes a batch script that may be executed.
///
/// # Panics
/// When it cannot be written.
#[track_caller]
pub fn write_script(path: &Path, lines: &str) {
    write_executable(path, format!("#!/bin/sh\n{lines}\n"));
}

/// Begins a submission through the workload manager of that name.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn submit(cluster: &Cluster, wlm: &str, args: &[&str]) -> Run {
    cluster.gantry([&["--json", "submit", "--wlm", wlm], args].concat())
}

/// Waits until the tool has attached to a job with two ranks on each of two nodes, with a daemon on each. Then makes
/// the tool detach. Returns the job.
///
/// # Panics
/// When an expected event does not come.
#[track_caller]
pub fn attached_and_left(mut run: Run, starts: Duration) -> String {
    let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
    let attached = run.next_event("attached", starts);
    let ranks = attached["ranks"].as_array().expect("ranks");
    let hosts: Vec<_> = ranks.iter().filter_map(|rank| rank["host"].as_str()).collect();
    assert_eq!(hosts, ["n001", "n001", "n002", "n002"], "{attached}");
    run.next_event("daemon_started", SOON);
    run.next_event("daemon_started", SOON);
    // From here on the job is independent: detaching leaves it alone.
    proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
    run.exited(SOON);
    job
}

/// Checks that a waiting job is cancelled when its tool is interrupted, gets SIGTERM, is killed, or reaches its
/// timeout. `begin` submits a job with these options, `queued` lists the current jobs, and the message about the reason
/// of the wait contains `words`.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn check_cancelled(begin: impl Fn(&[&str]) -> Run, queued: impl Fn() -> String, words: &str) {
    let waiting = |options: &[&str]| {
        let mut run = begin(options);
        let news = run.next_event("waiting", SOON);
        assert!(news["message"].as_str().is_some_and(|it| it.contains(words)), "{news}");
        assert!(!queued().is_empty());
        run
    };
    let cancelled = || eventually(SOON, "the job is cancelled", || queued().is_empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut run = waiting(&[]);
        proc::send(program(run.pid()).expect("the tool"), signal);
        run.exited(SOON);
        cancelled();
    }
    let done = waiting(&["--queue-timeout", "4"]).wait(SOON);
    let error = error_of(&done);
    assert_eq!(error["kind"], "timed-out", "{error}");
    assert!(error.to_string().contains(words), "{error}");
    cancelled();
}

/// Checks that waiting in the queue may take longer than `--timeout`. `begin` submits a job, and `let_go` lets the
/// job of that name start. Returns the job, after detaching from it.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn check_waits(begin: impl Fn(&[&str]) -> Run, let_go: impl Fn(&str), starts: Duration) -> String {
    let timeout = Duration::from_secs(8);
    let mut run = begin(&["--timeout", "8"]);
    let job = run.next_event("submitted", SOON)["job"].as_str().expect("a job").to_owned();
    run.next_event("waiting", SOON);
    let ended = becomes_true(timeout + Duration::from_secs(1), || program(run.pid()).is_none());
    assert!(!ended, "{:?}", run.wait(SOON));
    let_go(&job);
    run.next_event("attached", starts);
    proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
    run.exited(SOON);
    job
}
