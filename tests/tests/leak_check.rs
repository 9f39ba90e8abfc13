//! All other suites depend on the leak check. It must detect and name each kind of leak, and otherwise be silent.

use std::fs;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gantry_tests::{World, proc, programs, within};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);
const NO_ARGS: [&str; 0] = [];

/// A world with a short grace period, for deliberate leaks.
fn impatient() -> World {
    let mut world = World::new();
    world.set_grace(Duration::from_millis(100));
    world
}

/// Ends the world and returns the message of its failure.
fn failure_of(world: World) -> String {
    let outcome = catch_unwind(AssertUnwindSafe(|| world.finish()));
    *outcome.expect_err("the leak check must fail").downcast::<String>().expect("a message")
}

#[test]
fn an_empty_world_and_one_whose_program_ended_leave_nothing() {
    World::new().finish();
    let world = World::new();
    let mut run = world.start(&programs::get("exit_with"), ["7"]);
    assert_eq!(run.wait(SOON).code(), 7);
    world.finish();
}

#[test]
fn a_process_that_outlives_its_parent_is_named_and_killed() {
    for how in ["", "session"] {
        let world = impatient();
        let mut run = world.start(&programs::get("fork_child"), [how]);
        let line = run.next_line(SOON);
        let child: i32 =
            line.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("the child's pid");
        assert!(run.exited(SOON).success());
        let message = failure_of(world);
        let expected = format!("process {child} (state S");
        assert!(message.contains(&expected) && message.contains("fork_child"), "{message}");
        proc::wait_gone(child, SOON);
    }
}

#[test]
fn a_stopped_process_is_named_with_its_state() {
    let world = impatient();
    let mut run = world.start(&programs::get("loop_forever"), NO_ARGS);
    run.next_line(SOON);
    run.signal(Signal::SIGSTOP);
    proc::eventually(SOON, "it is stopped", || proc::state(run.pid()) == Some('T'));
    let message = failure_of(world);
    assert!(message.contains(&format!("process {} (state T", run.pid())), "{message}");
}

#[test]
fn a_process_without_the_tag_is_seen_when_it_is_tracked() {
    let world = impatient();
    let mut command = world.command(programs::get("loop_forever"));
    command.env_remove("GANTRY_TEST_TAG");
    let run = world.spawn(command);
    assert!(world.leaks().is_empty());
    world.track(run.pid());
    assert!(failure_of(world).contains("loop_forever"));
    proc::wait_gone(run.pid(), SOON);
}

#[test]
fn a_process_that_ends_within_the_grace_time_is_no_leak() {
    let world = World::new();
    let file = world.work_dir().join("here");
    let run = world.start(&programs::get("touch_and_wait"), [file.as_os_str(), "1".as_ref()]);
    proc::wait_file(&file, SOON);
    world.assert_nothing_left();
    drop(run);
}

#[test]
fn files_left_in_stage_runtime_and_tmp_are_named() {
    let world = impatient();
    fs::create_dir(world.runtime_dir().join("gantry")).expect("a folder");
    let ended = world.runtime_dir().join("ended");
    fs::create_dir(&ended).expect("a folder");
    // The end of an app is kept for a while. Half of a record is a leak.
    fs::write(ended.join("3kx9w0fz.json"), r#"{"exit":{"app":"3kx9w0fz","ranks":[],"code":7}}"#)
        .expect("a record");
    world.assert_nothing_left();
    fs::write(ended.join("3kx9w0fz.1.new"), "{").expect("half of a record");
    fs::create_dir(world.stage_dir().join("gantry-1-abc")).expect("a folder");
    fs::write(world.path().join("tmp/forgotten"), "").expect("a file");
    let _socket = UnixListener::bind(world.runtime_dir().join("gantry/dead.sock")).expect("a socket");
    let message = failure_of(world);
    for name in ["stage/gantry-1-abc", "tmp/forgotten", "runtime/gantry/dead.sock", "ended/3kx9w0fz.1.new"] {
        assert!(message.contains(name), "{name} in {message}");
    }
}

#[test]
fn a_tcp_socket_of_a_left_process_is_in_the_report() {
    let world = impatient();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let mut command = world.command(programs::get("loop_forever"));
    command.stdin(std::os::fd::OwnedFd::from(listener));
    let mut child = command.spawn().expect("a child");
    proc::eventually(SOON, "it is seen", || world.processes().contains(&child.id().cast_signed()));
    let message = failure_of(world);
    assert!(message.contains(&format!("0100007F:{port:04X}")), "{message}");
    child.wait().expect("the killed child");
}

#[test]
fn a_failed_test_shows_its_own_message_and_kills_its_processes() {
    let mut pid = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = impatient();
        let run = world.start(&programs::get("ignore_term"), NO_ARGS);
        pid = run.pid();
        // For an instant after its start, a process has no environment that identifies it.
        gantry_tests::eventually(SOON, "it is seen", || world.processes().contains(&pid));
        std::mem::forget(run);
        panic!("the test's own words");
    }));
    assert_eq!(*outcome.expect_err("a panic").downcast::<&str>().expect("a message"), "the test's own words");
    proc::wait_gone(pid, SOON);
}

#[test]
fn a_dropped_world_checks_too() {
    let outcome = catch_unwind(|| {
        let world = impatient();
        fs::write(world.stage_dir().join("forgotten"), "").expect("a file");
    });
    assert!(
        outcome.expect_err("a failure").downcast::<String>().expect("a message").contains("stage/forgotten")
    );
}

#[tokio::test]
async fn a_world_ends_while_the_runtime_goes_on() {
    let world = World::new();
    let file = world.stage_dir().join("cleaned-by-a-task");
    fs::write(&file, "").expect("a file");
    let cleaner = tokio::spawn(async move { fs::remove_file(file) });
    world.finish_async().await;
    cleaner.await.expect("the task").expect("removed");
}

#[test]
fn a_run_returns_lines_and_events_and_forwards_input() {
    within(Duration::from_secs(30), || {
        let world = World::new();
        let mut run = world.start(&programs::get("cat"), NO_ARGS);
        run.write(b"noise\n{\"event\":\"held\",\"n\":1}\n{\"event\":\"released\"}\nlast");
        assert_eq!(run.next_event("released", SOON)["event"], "released");
        run.close_stdin();
        assert_eq!(run.next_line(SOON), "last");
        let finished = run.wait(SOON);
        assert_eq!((finished.code(), finished.events().len(), finished.stdout.len()), (0, 2, 4));
        assert_eq!(run.events()[0]["n"], 1);
        world.finish();
    });
}

#[test]
fn a_missing_event_fails_with_everything_that_was_heard() {
    let world = World::new();
    let script = world.executable("script", b"#!/bin/sh\necho '{\"event\":\"other\"}'; echo why >&2\n");
    let mut run = world.start(&script, NO_ARGS);
    run.stderr_line("why", SOON);
    let outcome = catch_unwind(AssertUnwindSafe(|| run.next_event("held", SOON)));
    let message = *outcome.expect_err("a failure").downcast::<String>().expect("a message");
    for part in [
        "no event \"held\" on stdout, which has ended",
        "stdout: {\"event\":\"other\"}",
        "stderr: why",
        "script",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn output_held_open_by_another_process_is_distinguished_from_a_program_that_does_not_end() {
    let world = impatient();
    let mut run = world.start(&programs::get("fork_child"), NO_ARGS);
    run.exited(SOON);
    let outcome = catch_unwind(AssertUnwindSafe(|| run.wait(Duration::from_millis(100))));
    let message = *outcome.expect_err("a failure").downcast::<String>().expect("a message");
    assert!(message.contains("its output is held open"), "{message}");
    assert!(failure_of(world).contains("fork_child"));
}
