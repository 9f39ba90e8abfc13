//! Launchers that report where their ranks are and do not stop them. The ranks wait for their launcher. gantry stops
//! the ranks there, so it need not stop the launcher.

use std::time::Duration;

use gantry_tests::{Run, SOON, World, proc, programs, require, tool, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

/// Tests may be run as root, and with more ranks than processors.
const OPTIONS: [&str; 4] = ["--allow-run-as-root", "--oversubscribe", "-n", "3"];

/// Launches three ranks of an MPI program by an unmodified launcher.
#[track_caller]
fn start(world: &World, options: &[&str], launcher: &str, program: &str) -> Run {
    let launch = [&["launch", "--json", "--launcher", launcher][..], options, &["--"], &OPTIONS, &[program]];
    world.gantry(launch.concat())
}

/// The ranks' pids. All must be stopped and untraced.
#[track_caller]
fn stopped(held: &Value) -> Vec<i32> {
    let ranks = held["ranks"].as_array().expect("ranks");
    let pids: Vec<i32> = ranks.iter().filter_map(|rank| i32::try_from(rank["pid"].as_i64()?).ok()).collect();
    assert_eq!(pids.len(), 3, "{held}");
    for pid in &pids {
        assert_eq!((proc::state(*pid), proc::tracer(*pid)), (Some('T'), None), "{held}");
    }
    pids
}

/// The parent of a rank. On this machine it is the launcher.
#[track_caller]
fn launcher_of(rank: i32) -> i32 {
    proc::stat(rank).expect("a rank").parent
}

/// Holds the ranks and checks that they are stopped and their launcher is not. Then releases them and checks that
/// they find each other.
#[track_caller]
fn check(options: &[&str], launcher: &str, program: &str) {
    let world = World::new();
    let mut run = start(&world, &[&["--hold"][..], options].concat(), launcher, program);
    let held = run.next_event("held", 2 * SOON);
    let ranks = stopped(&held);
    let launcher = launcher_of(ranks[0]);
    gantry_tests::eventually(SOON, "the launcher continues untraced", || {
        proc::tracer(launcher).is_none() && !matches!(proc::state(launcher), Some('T' | 't'))
    });
    stopped(&held);
    assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
    let done = run.wait(2 * SOON);
    let text: String = done.events().iter().filter_map(|event| event["text"].as_str()).collect();
    for rank in 0..3 {
        assert!(text.contains(&format!("rank {rank} of 3 on ")), "{text}");
    }
    world.finish();
}

#[test]
fn ranks_that_wait_for_their_launcher_are_stopped_and_it_goes_on() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    within(LIMIT, move || check(&["--hold-method=mpir"], "mpirun.openmpi", &hello));
}

#[test]
fn an_unknown_launcher_is_followed_to_its_breakpoint() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let path = world.executable("site-run", b"#!/bin/sh\nexec mpirun.openmpi \"$@\"\n");
        check(&[], path.to_str().expect("a path"), &hello);
        world.finish();
    });
}

#[test]
fn ranks_that_are_not_to_be_held_run_on_with_their_launcher() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let mut run = start(&world, &["--hold-method=mpir"], "mpirun.openmpi", &hello);
        run.next_event("started", 2 * SOON);
        let done = run.wait(2 * SOON);
        let text: String = done.events().iter().filter_map(|event| event["text"].as_str()).collect();
        assert!(text.contains("rank 2 of 3 on "), "{text}");
        world.finish();
    });
}

#[test]
fn a_launcher_that_is_to_stand_still_does_so_until_its_ranks_are_let_go_or_have_ended() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    within(LIMIT, move || {
        for end in ["release", "kill"] {
            let world = World::new();
            let mut run = start(&world, &["--hold", "--hold-method=mpir-stop"], "mpirun.openmpi", &hello);
            let held = run.next_event("held", 2 * SOON);
            let launcher = launcher_of(stopped(&held)[0]);
            assert_eq!(proc::state(launcher), Some('t'));
            assert!(proc::tracer(launcher).is_some());
            assert_eq!(world.gantry([end, held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
            let text: String =
                run.wait(2 * SOON).events().iter().filter_map(|event| event["text"].as_str()).collect();
            assert_eq!(text.contains("rank 2 of 3 on "), end == "release", "{text}");
            world.finish();
        }
    });
}

#[test]
fn a_tool_killed_while_ranks_are_stopped_leaves_nothing() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.openmpi")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let mut run = start(&world, &["--hold", "--hold-method=mpir"], "mpirun.openmpi", &hang);
        stopped(&run.next_event("held", 2 * SOON));
        proc::send(run.pid(), Signal::SIGKILL);
        run.exited(SOON);
        world.assert_nothing_left();
        world.finish();
    });
}
