//! Launches under a real Flux: the queue, who ends a job, names, and MPI.

use std::time::{Duration, Instant};

use gantry_tests::flux::{app_of, jobs, last_job, on_flux, set_queue, states};
use gantry_tests::slurm::{cause_of, error_of, lines_of};
use gantry_tests::testbed::program;
use gantry_tests::{Finished, Run, SOON, becomes_true, proc, programs, require};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The timeout of launches that wait longer than that.
const TIMEOUT: Duration = Duration::from_secs(4);

/// How long Flux may take to notice that a broker is gone.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_held_job_has_the_programs_name_and_its_ranks_are_where_flux_says() {
    on_flux(2, |cluster| {
        let (mut run, app) =
            cluster.held(&["--", "submit", "-N2", "-n4", "-o", "cpu-affinity=off", "/bin/echo", "here"]);
        cluster.assert_held("/bin/echo here", 4);
        assert_eq!(states(cluster), "echo RUN\n");
        let job = last_job(cluster);
        let said = cluster.said("flux", ["job", "hostpids", &job]);
        let (named, places) = app_of(cluster);
        assert_eq!(said.trim(), places.join(","));
        assert_eq!(named, job.replace('ƒ', "f"));
        cluster.ask(&["release", &app]);
        let done = run.wait(SOON);
        assert_eq!(
            (done.code(), lines_of(&done).iter().filter(|line| *line == "here").count()),
            (0, 4),
            "{done:?}"
        );
    });
}

/// What gantry answers to the question which workload manager is used.
#[track_caller]
fn choice(done: &Finished) -> Value {
    assert_eq!(done.code(), 0, "{done:?}");
    serde_json::from_str(&done.stdout.concat()).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[test]
fn the_systems_instance_and_one_that_a_variable_names_are_found() {
    on_flux(1, |cluster| {
        let on_login = choice(&cluster.gantry(["wlm", "--json"]).wait(SOON));
        assert_eq!(on_login["wlm"], "flux");
        assert!(
            on_login["why"].as_str().is_some_and(|why| why.contains("/run/flux/local is there")),
            "{on_login}"
        );
        let gantry = gantry_tests::binaries().gantry.display().to_string();
        let inside = choice(&cluster.run("flux", ["start", &gantry, "wlm", "--json"], &[]).wait(SOON));
        assert_eq!(inside["wlm"], "flux");
        assert!(inside["why"].as_str().is_some_and(|why| why.contains("FLUX_URI is 'local://")), "{inside}");
    });
}

#[test]
fn ranks_get_the_environment_that_the_user_chooses_and_nothing_of_ours() {
    on_flux(1, |cluster| {
        let done = cluster.launch(&["--", "-n1", "--env=-*", "--env=MINE=x", "/usr/bin/env"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let lines = lines_of(&done);
        assert!(lines.iter().any(|line| line == "MINE=x"), "{lines:?}");
        assert!(
            !lines.iter().any(|line| line.starts_with("HOME=") || line.starts_with("GANTRY_TICKET")),
            "{lines:?}"
        );
        assert!(!lines.iter().any(|line| line.starts_with("GANTRY_FLUX_")), "{lines:?}");
    });
}

#[test]
fn a_launch_in_the_queue_waits_longer_than_its_timeout_and_says_so() {
    on_flux(1, |cluster| {
        set_queue(cluster, "stop");
        let begun = Instant::now();
        let mut run = cluster.launch(&["--timeout", "4", "--", "-n1", "/bin/echo", "here"]);
        let submitted = run.next_event("submitted", SOON);
        let waiting = run.next_event("waiting", SOON);
        assert_eq!(waiting["job"], submitted["job"]);
        assert!(
            waiting["message"].to_string().contains("is in state SCHED (waiting for resources)"),
            "{waiting}"
        );
        assert!(becomes_true(2 * SOON, || begun.elapsed() > TIMEOUT + Duration::from_secs(1)));
        set_queue(cluster, "start");
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_job_in_the_queue_is_cancelled_when_it_is_late_or_its_tool_is_killed() {
    on_flux(1, |cluster| {
        set_queue(cluster, "stop");
        let begin = |options: &[&str]| cluster.launch(&[options, &["--", "-n1", "/bin/echo"]].concat());
        let late = begin(&["--queue-timeout", "1"]).wait(SOON);
        assert_eq!(error_of(&late)["kind"], "timed-out", "{late:?}");
        assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        for signal in [Signal::SIGKILL, Signal::SIGINT] {
            let mut run = begin(&[]);
            run.next_event("waiting", SOON);
            proc::send(program(run.pid()).expect("the tool"), signal);
            run.exited(SOON);
            assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{signal}: {}", jobs(cluster));
        }
        set_queue(cluster, "start");
    });
}

#[track_caller]
fn check_end(run: Run, cause: &str, words: &str) {
    let mut run = run;
    let done = run.wait(LONG);
    let told = cause_of(&done);
    assert_eq!(told["cause"], cause, "{told}");
    assert!(told["message"].to_string().contains(words), "{told}");
    assert_ne!(done.code(), 0, "{done:?}");
}

#[test]
fn a_time_limit_and_a_cancelled_job_say_so() {
    on_flux(2, |cluster| {
        let limited = cluster.launch(&["--", "-N2", "-n2", "-t", "2s", "/bin/sleep", "1000"]);
        check_end(limited, "time_limit", "resource allocation expired");
        let mut cancelled = cluster.launch(&["--", "-N2", "-n2", "/bin/sleep", "1000"]);
        cancelled.next_event("started", SOON);
        cluster.said("flux", ["cancel", &last_job(cluster)]);
        check_end(cancelled, "cancelled", "type=cancel");
    });
}

#[test]
fn what_flux_refuses_is_told_in_its_words() {
    on_flux(1, |cluster| {
        let check = |args: &[&str], kind: &str, words: &str| {
            let done = cluster.launch(&[&["--"], args].concat()).wait(SOON);
            let error = error_of(&done);
            assert_eq!(error["kind"], kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        check(&["-n100000", "true"], "invalid", "unsatisfiable request");
        check(&["-q", "nowhere", "true"], "invalid", "is not a valid queue");
        check(&["-n1", "/no/such/program"], "not-found", "/no/such/program");
        check(&["alloc", "-n1", "true"], "invalid", "not by 'flux alloc'");
        check(&["-o", "stop-tasks-in-exec", "-n1", "true"], "invalid", "would stop gantry's agents");
    });
}

#[test]
fn mpich_is_one_world_by_fluxs_own_pmi() {
    let program = require!(programs::get_mpi("mpi_hello", "mpicc.mpich"));
    on_flux(2, move |cluster| {
        let program = program.display().to_string();
        let (mut run, app) = cluster.held(&["--", "-N2", "-n4", &program]);
        cluster.assert_held(&program, 4);
        assert_eq!(states(cluster), "mpi_hello RUN\n");
        cluster.ask(&["release", &app]);
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let lines = lines_of(&done);
        assert_eq!(lines.iter().filter(|line| line.contains("of 4")).count(), 4, "{lines:?}");
    });
}
