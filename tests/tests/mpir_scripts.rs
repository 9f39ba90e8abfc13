//! Scripts that start a launcher as a child, driven to its breakpoint, and the launcher's stand-in in batch scripts.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::time::Duration;

use gantry_tests::driven::{Driven, How, LEAVE, STAY};
use gantry_tests::{SOON, World, binaries, proc, programs, require, tool};
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use gantry_wlm::mpir::{Breakpoints, MpirError, Order};

const CHANGE_CODE: How = How { breakpoints: Breakpoints::ChangeCode, ..LEAVE };

/// A script with these lines, in which LAUNCHER is the fake launcher.
fn script(world: &World, shell: &str, lines: &str) -> Vec<OsString> {
    let program = programs::get("mpir_launcher").display().to_string();
    let text = format!("#!{shell}\n{}", lines.replace("LAUNCHER", &program));
    let script = world.executable("script", text.as_bytes()).into_os_string();
    [script, "ranks=4/2".into(), "call".into()].into()
}

#[test]
fn the_first_child_of_a_script_that_starts_ranks_is_held_and_the_script_goes_on() {
    let lines = "one=$(LAUNCHER say=version | tail -n 1); echo $one; (true | env true)\n\
        timeout 60 LAUNCHER \"$@\" | cat; echo between; LAUNCHER \"$@\"; exit 5\n";
    let says = ["version", "debugged 1", "called", "between", "debugged 0", "body", "called"];
    for how in [LEAVE, CHANGE_CODE] {
        let world = World::new();
        let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), how);
        assert_eq!(run.held().placement.rank_count(), 4);
        assert_eq!(run.ended(), ExitStatus::Code(5));
        assert_eq!(run.rest(), says);
    }
}

/// They ran to their end, so nothing must say that they were not started.
#[test]
fn ranks_of_a_child_without_symbols_are_said_not_to_have_been_held() {
    let world = World::new();
    let mut run = Driven::start(&world, &script(&world, "/bin/sh", "/bin/echo rank; exit 5\n"), LEAVE);
    let (error, status) = run.failed();
    assert_eq!((status, run.rest()), (ExitStatus::Code(5), vec!["rank".to_owned()]));
    let said = error.to_string();
    assert!(said.contains("its child may have started ranks that were not held"), "{said}");
    assert!(!said.contains("before they were started"), "{said}");
    assert!(
        error.hint().is_some_and(|hint| hint.contains("write 'exec' before it in the script")),
        "{error}"
    );
}

#[test]
fn a_python_script_may_start_the_launcher() {
    let python = require!(tool("python3")).display().to_string();
    let lines = "import subprocess, sys\nsys.exit(subprocess.call(['LAUNCHER'] + sys.argv[1:]) + 5)\n";
    let world = World::new();
    let mut run = Driven::start(&world, &script(&world, &python, lines), LEAVE);
    assert_eq!(run.held().placement.rank_count(), 4);
    assert_eq!(run.ended(), ExitStatus::Code(5));
    assert_eq!(run.rest(), ["debugged 1", "called"]);
}

#[test]
fn a_launcher_below_a_script_stays_and_gets_the_signals() {
    let world = World::new();
    let lines = "LAUNCHER handle say=ready wait \"$@\"; echo $?\n";
    let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), STAY);
    assert_eq!([run.line(), run.line()], ["debugged 1", "ready"]);
    run.driver.order(Order::Signal(Signal::new(libc::SIGUSR1).unwrap()));
    assert_eq!(run.line(), "got 10");
    drop(run.stdin.take());
    assert_eq!(run.held().placement.rank_count(), 4);
    assert!(run.stands);
    run.driver.order(Order::Release);
    assert_eq!(run.ended(), ExitStatus::Code(0));
    assert_eq!(run.rest(), ["body", "called", "0"]);
}

#[test]
fn a_script_goes_on_and_gets_the_signals_after_its_standing_launcher_is_killed() {
    let lines = "trap 'echo a signal' USR1; LAUNCHER \"$@\"; echo $?\n\
        until read line; do [ -n \"$line\" ] || sleep 0.01; done; exit 5\n";
    for is_released_at_once in [false, true] {
        let world = World::new();
        let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), STAY);
        run.held();
        assert_eq!(run.line(), "debugged 1");
        let [launcher] = proc::children(run.pid)[..] else { panic!("more than the launcher") };
        proc::send(launcher, nix::sys::signal::Signal::SIGKILL);
        if is_released_at_once {
            run.driver.order(Order::Release);
        }
        assert_eq!(run.line(), "137");
        run.driver.order(Order::Release);
        run.driver.order(Order::Signal(Signal::new(libc::SIGUSR1).unwrap()));
        assert_eq!(run.line(), "a signal");
        run.stdin.take().expect("its input").write_all(b"go\n").expect("a reader");
        assert_eq!(run.ended(), ExitStatus::Code(5));
    }
}

/// A process that is killed while it becomes a program is in a stop from which it cannot continue. On most machines some
/// of these kills meet that stop, but none has to: a unit test of `wlm/src/mpir/launcher.rs` kills in it for certain.
#[test]
fn launchers_that_a_script_kills_as_they_start_do_not_end_the_launch() {
    let lines = "for turns in $(seq 150); do LAUNCHER say=x > /dev/null & n=0\n\
        while [ $n -lt $((turns * 60)) ]; do n=$((n + 1)); done; kill -9 $!; wait $!; done 2> /dev/null\n\
        LAUNCHER \"$@\"; exit 5\n";
    for how in [LEAVE, CHANGE_CODE] {
        let world = World::new();
        let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), how);
        assert_eq!(run.held().placement.rank_count(), 4);
        assert_eq!(run.ended(), ExitStatus::Code(5));
    }
}

#[test]
fn nothing_of_a_script_is_traced_once_the_ranks_of_its_launcher_are_held() {
    let world = World::new();
    let lines = "sleep 1000 & echo $!; LAUNCHER \"$@\" wait; kill $!\n";
    let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), LEAVE);
    let background = run.line().parse().expect("a pid");
    run.held();
    for pid in [run.pid, background] {
        proc::eventually(SOON, "it is not traced", || proc::tracer(pid).is_none());
        // Let go, it runs for a moment.
        proc::eventually(SOON, "it waits", || proc::state(pid) == Some('S'));
    }
    drop(run.stdin.take());
    assert_eq!(run.ended(), ExitStatus::Code(0));
}

#[test]
fn what_a_script_has_started_ends_with_a_launch_that_failed() {
    let world = World::new();
    let how = How { deadline: Duration::from_millis(500), ..LEAVE };
    for lines in ["sleep 1000; true\n", "LAUNCHER wait; true\n"] {
        let mut run = Driven::start(&world, &script(&world, "/bin/sh", lines), how);
        let (error, status) = run.failed();
        assert!(matches!(error, MpirError::TimedOut { .. }), "{error:?}");
        assert_eq!(status, ExitStatus::Signal(Signal::KILL));
        // The end of the output is the end of its last writer.
        run.rest();
    }
    let mut run = Driven::start(&world, &script(&world, "/bin/sh", "LAUNCHER \"$@\"; true\n"), STAY);
    run.held();
    drop(run.driver);
    let mut said = String::new();
    run.stdout.read_to_string(&mut said).expect("its output");
    assert_eq!(said, "debugged 1\n");
}

/// srun starts each part in a thread of its own, and would release ranks that the script believes to be held.
#[test]
fn the_parts_of_a_launch_in_a_held_batch_script_run_untraced_and_it_says_so() {
    let world = World::new();
    let (ours, theirs) = (world.work_dir().join("ours"), world.work_dir().join("theirs"));
    for folder in [&ours, &theirs] {
        std::fs::create_dir(folder).expect("a folder");
    }
    std::os::unix::fs::symlink(&binaries().guard, ours.join("srun")).expect("a link");
    let text = b"#!/bin/sh\necho $PATH $*\ngrep TracerPid /proc/$$/status\nexit 3\n";
    std::fs::rename(world.executable("srun", text), theirs.join("srun")).expect("a rename");
    let mut command = world.command(ours.join("srun"));
    command.env("PATH", format!("{}:{}:/usr/bin:/bin", ours.display(), theirs.display()));
    command.args(["sleep", "1", ":", "sleep", "1"]);
    let done = world.spawn(command).wait(SOON);
    assert_eq!(done.code(), 3, "{done:?}");
    let path = format!("{}:/usr/bin:/bin", theirs.display());
    assert_eq!(done.stdout, [format!("{path} sleep 1 : sleep 1"), "TracerPid:\t0".to_owned()]);
    assert_eq!(done.stderr, ["gantry: the parts of 'srun ... : ...' are not held"]);
    world.finish();
}
