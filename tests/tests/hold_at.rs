//! Holding the right program if the launcher starts it through other programs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use gantry_tests::{Run, World, proc, require, tool, within};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(90);

/// A script that executes and starts other programs before and after the program to hold.
fn script(world: &World, text: &str) -> PathBuf {
    let path = world.work_dir().join("script");
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).expect("a script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("its permissions");
    path
}

fn launch(world: &World, launcher: &str, options: &[&str], ranks: &str, program: &[&str]) -> Run {
    let fixed = ["--json", "launch", "--launcher", launcher];
    let args = [&fixed[..], options, &["--", "-n", ranks], program].concat();
    world.gantry(args)
}

fn pids_of(event: &serde_json::Value) -> Vec<i32> {
    let ranks = event["ranks"].as_array().expect("ranks");
    ranks.iter().map(|rank| i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid")).collect()
}

#[test]
fn the_program_behind_a_script_is_held_and_the_script_waits() {
    let launcher = require!(tool("mpiexec.hydra")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let script = script(&world, "env true\nsleep 0.1\necho $? after\nexit 4\n");
        let program = script.display().to_string();
        let mut run = launch(&world, &launcher, &["--hold-at", "*/sleep"], "3", &[&program]);
        let held = run.next_event("held", SOON);
        for pid in pids_of(&held) {
            assert_eq!(proc::why_not_held(pid), None, "process {pid}");
            assert_eq!(
                proc::exe(pid).and_then(|path| Some(path.file_name()?.to_owned())),
                Some("sleep".into())
            );
            let parent = proc::stat(pid).expect("a process").parent;
            assert_eq!((proc::is_alive(parent), proc::tracer(parent)), (true, None), "the script is let go");
        }
        let app = held["app"].as_str().expect("an id").to_owned();
        assert_eq!(world.gantry(["release", &app]).wait(SOON).code(), 0);
        assert_eq!(run.wait(SOON).code(), 4);
        world.finish();
    });
}

/// The installed programs that set something up and then execute another program. A container's starter does no more
/// than `unshare`.
fn starters() -> Vec<&'static str> {
    let all = [
        &["nice"][..],
        &["numactl", "--localalloc"],
        &["taskset", "1"],
        &["unshare", "--map-root-user", "--mount"],
    ];
    all.into_iter().filter(|words| tool(words[0]).is_ok()).flatten().copied().collect()
}

#[test]
fn a_rank_that_becomes_its_program_by_exec_keeps_its_pid_and_is_held_there() {
    let launcher = require!(tool("mpiexec.hydra")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let options = ["--hold-at", "slee?"];
        let mut run = launch(
            &world,
            &launcher,
            &options,
            "2",
            &[&["env", "A=1"][..], &starters(), &["sleep", "0.1"]].concat(),
        );
        for pid in pids_of(&run.next_event("held", SOON)) {
            assert_eq!(proc::why_not_held(pid), None, "process {pid}");
            assert_eq!(proc::variable(pid, "A").as_deref(), Some("1"));
        }
        run.signal(Signal::SIGINT);
        run.stderr_line("Ctrl-C once more", SOON);
        run.signal(Signal::SIGINT);
        run.wait(SOON);
        world.finish();
    });
}

#[test]
fn a_program_in_a_container_with_pids_of_its_own_is_held_there() {
    let launcher = require!(tool("mpiexec.hydra")).display().to_string();
    require!(tool("bwrap"));
    within(LIMIT, move || {
        let world = World::new();
        let container = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent"];
        let program = [&container[..], &["sleep", "0.1"]].concat();
        let mut run = launch(&world, &launcher, &["--hold-at", "*/sleep"], "2", &program);
        let held = run.next_event("held", SOON);
        for pid in pids_of(&held) {
            assert_eq!(proc::why_not_held(pid), None, "process {pid}");
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
            let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:")).expect("its pids");
            assert_eq!(inside.split_whitespace().count(), 2, "a pid here and one in there: {inside}");
        }
        let app = held["app"].as_str().expect("an id").to_owned();
        assert_eq!(world.gantry(["release", &app]).wait(SOON).code(), 0);
        assert_eq!(run.wait(SOON).code(), 0);
        world.finish();
    });
}

#[test]
fn a_pattern_without_a_match_is_reported_with_the_programs_seen() {
    let launcher = require!(tool("mpiexec.hydra")).display().to_string();
    within(LIMIT, move || {
        let world = World::new();
        let script = script(&world, "env true\n");
        let program = script.display().to_string();
        let mut run = launch(&world, &launcher, &["--hold-at", "*/nothing"], "2", &[&program]);
        let error = run.next_event("error", SOON);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("*/nothing") && message.contains("/true"), "{message}");
        assert_eq!(run.wait(SOON).code(), 64);
        world.finish();
    });
}

#[test]
fn without_a_launcher_there_is_nothing_behind_the_program() {
    within(LIMIT, || {
        let world = World::new();
        let mut run = world.gantry(["--json", "launch", "--hold-at", "sleep", "--", "-n", "1", "true"]);
        let error = run.next_event("error", SOON);
        assert_eq!(error["kind"], "invalid", "{error}");
        run.wait(SOON);
        world.finish();
    });
}
