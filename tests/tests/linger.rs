//! Sessions and daemons that outlive the ranks, on this machine.

use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{DaemonRequest, LaunchRequest};
use gantry_tests::{SOON, World, on_this_machine, proc, require, tool, within};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Runs longer than the time that a daemon has after its app's end.
const LATE: &str = "/bin/sh -c 'sleep 4; echo late'";

/// The output of a daemon whose app ended at once, with code 7.
#[track_caller]
fn last_words(options: &[&str], launcher: &[&str]) -> String {
    let world = World::new();
    let app = ["-n", "2", "/bin/sh", "-c", "exit 7"];
    let args = [&["--json", "launch", "--daemon", LATE][..], options, &["--"], launcher, &app].concat();
    let done = world.gantry(args).wait(2 * SOON);
    assert_eq!(done.code(), 7, "{done:?}");
    let text = done.events().iter().filter_map(|event| event["text"].as_str()).collect();
    world.finish();
    text
}

#[test]
fn daemons_outlive_the_ranks_where_that_is_asked_for() {
    within(LIMIT, || {
        assert_eq!(last_words(&["--linger"], &[]), "late\n");
        assert_eq!(last_words(&[], &[]), "");
    });
}

#[test]
fn daemons_outlive_a_launcher_and_its_ranks_too() {
    let _hydra = require!(tool("mpiexec.hydra"));
    within(LIMIT, || assert_eq!(last_words(&["--linger", "--launcher", "mpiexec.hydra"], &[]), "late\n"));
}

#[test]
fn lingering_daemons_end_with_their_tool() {
    within(LIMIT, || {
        let world = World::new();
        let daemon = ["--json", "launch", "--linger", "--daemon", "/bin/sleep 1000", "--", "/bin/true"];
        let mut run = world.gantry(daemon);
        let pid = run.next_event("daemon_started", SOON)["pid"].as_i64().expect("a pid");
        run.next_event("rank_exited", SOON);
        let pid = i32::try_from(pid).expect("a pid");
        assert!(proc::is_alive(pid));
        run.signal(Signal::SIGKILL);
        run.exited(SOON);
        world.assert_nothing_left();
        world.finish();
    });
}

#[test]
fn an_app_that_has_ended_takes_new_daemons_until_its_owner_closes_it() {
    on_this_machine(LIMIT, async |site| {
        let app = site.launch(LaunchRequest::new(["-N", "2", "-n", "4", "/bin/true"]).linger(true)).await;
        assert_eq!(app.wait().await.expect("an end").code, 0);
        assert_eq!(app.state(), AppState::Ended);
        let session = app.session(SOON).await.expect("a session of an app that has ended");
        let daemon = session.manifest().exec_daemon(DaemonRequest::new("/bin/sleep").args(["1000"]), SOON);
        let daemon = daemon.await.expect("a daemon");
        let pids: Vec<i32> = daemon.processes().iter().map(|(_, pid)| pid.get()).collect();
        assert_eq!(pids.len(), 2);
        assert!(pids.iter().all(|pid| proc::is_alive(*pid)));
        app.close(SOON).await.expect("closed");
        assert!(!pids.iter().any(|pid| proc::is_alive(*pid)));
        assert!(session.manifest().exec_daemon(DaemonRequest::new("/bin/true"), SOON).await.is_err());
    });
}
