//! The programs under test must behave as their headers say, so that suites can rely on them.
#![expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gantry_tests::programs::{self, Link};
use gantry_tests::{Finished, Run, World, proc, require};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);

fn start(world: &World, name: &str, args: &[&str], rank: Option<u32>) -> Run {
    let mut command = world.command(programs::get(name));
    command.args(args);
    if let Some(rank) = rank {
        command.env("GANTRY_RANK", rank.to_string());
    }
    world.spawn(command)
}

fn finish(name: &str, args: &[&str], rank: Option<u32>) -> Finished {
    let world = World::new();
    let mut run = start(&world, name, args, rank);
    run.close_stdin();
    run.wait(SOON)
}

#[test]
fn say_prints_its_place_and_its_arguments() {
    let world = World::new();
    let mut run = start(&world, "say", &["a b"], Some(3));
    let said = run.wait(SOON).stdout;
    let folder = world.work_dir().canonicalize().expect("the folder");
    for line in [format!("cwd={}", folder.display()), format!("pid={}", run.pid())] {
        assert!(said.contains(&line), "{line} in {said:?}");
    }
    for line in ["argc=2", "arg1=a b", "GANTRY_RANK=3"] {
        assert!(said.iter().any(|had| had == line), "{line} in {said:?}");
    }
}

#[test]
fn touch_and_wait_makes_a_file_for_its_rank_and_waits() {
    let world = World::new();
    let mut run = start(&world, "touch_and_wait", &["here.%"], Some(5));
    proc::wait_file(&world.work_dir().join("here.5"), SOON);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(SOON).status.signal(), Some(15));
    assert_eq!(finish("touch_and_wait", &["nowhere/file"], None).code(), 3);
}

#[test]
fn report_signal_names_the_signal_and_ends_with_its_number() {
    for (signal, name) in
        [(Signal::SIGTERM, "got SIGTERM"), (Signal::SIGUSR2, "got SIGUSR2"), (Signal::SIGINT, "got SIGINT")]
    {
        let world = World::new();
        let mut run = start(&world, "report_signal", &[], None);
        assert_eq!(run.next_line(SOON), "ready");
        run.signal(Signal::SIGCONT);
        assert_eq!(run.next_line(SOON), "got SIGCONT");
        run.signal(signal);
        assert_eq!(run.next_line(SOON), name);
        assert_eq!(run.wait(SOON).code(), 40 + signal as i32);
    }
}

#[test]
fn exit_with_ends_with_the_code_of_its_rank() {
    for (rank, code) in [(None, 3), (Some(0), 3), (Some(1), 4), (Some(9), 4)] {
        assert_eq!(finish("exit_with", &["3", "4"], rank).code(), code, "rank {rank:?}");
    }
}

#[test]
fn crash_dies_by_the_signal_that_was_asked_for() {
    for (how, signal) in [("abort", 6), ("segv", 11), ("trap", 5), ("kill", 9)] {
        assert_eq!(finish("crash", &[how], None).status.signal(), Some(signal), "{how}");
    }
    assert_eq!(finish("crash", &["abort", "2"], Some(1)).code(), 0);
    assert_eq!(finish("crash", &["abort", "2"], Some(2)).status.signal(), Some(6));
}

#[test]
fn flood_writes_every_byte_once() {
    for (args, to_stderr) in [(vec!["100001"], false), (vec!["100001", "stderr"], true)] {
        let finished = finish("flood", &args, None);
        let lines = if to_stderr { finished.stderr } else { finished.stdout };
        // The last line is cut, so there is one line end fewer than lines.
        assert_eq!(lines.iter().map(String::len).sum::<usize>() + lines.len() - 1, 100_001);
        assert!(
            lines.iter().enumerate().all(|(number, line)| line.starts_with(&format!("{:016x}", number * 64)))
        );
    }
}

#[test]
fn ignore_term_stays_until_it_is_killed() {
    let world = World::new();
    let mut run = start(&world, "ignore_term", &[], None);
    assert_eq!(run.next_line(SOON), "ready");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        run.signal(signal);
    }
    run.kill();
    assert_eq!(run.wait(SOON).status.signal(), Some(9));
}

#[test]
fn two_paths_ends_by_itself() {
    for rank in [0, 1] {
        let finished = finish("two_paths", &["1"], Some(rank));
        assert_eq!((finished.code(), finished.stdout), (0, vec!["waiting".to_owned()]));
    }
}

#[test]
fn a_debugger_sees_two_paths_apart() {
    let gdb = require!(gantry_tests::tool("gdb"));
    for (rank, here, not_here) in [(0, "even_path", "odd_path"), (1, "odd_path", "even_path")] {
        let world = World::new();
        let mut run = start(&world, "two_paths", &[], Some(rank));
        run.next_line(SOON);
        let pid = run.pid().to_string();
        let mut stack = world.start(&gdb, ["-nx", "-batch", "-p", &pid, "-ex", "backtrace"]);
        stack.close_stdin();
        let frames = stack.wait(Duration::from_secs(60)).stdout.join("\n");
        assert!(frames.contains(here) && !frames.contains(not_here), "{frames}");
        assert!(frames.contains("wait_here"), "{frames}");
    }
}

#[test]
fn every_way_of_linking_runs() {
    for link in Link::ALL {
        let program = require!(programs::get_as("exit_with", link));
        let status = Command::new(program).arg("9").status().expect("it starts");
        assert_eq!(status.code(), Some(9), "{link:?}");
    }
}

#[test]
fn the_wrong_architecture_does_not_start() {
    let refused = Command::new(programs::wrong_architecture()).spawn().expect_err("no start");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOEXEC));
}

#[test]
fn a_program_that_is_not_there_is_an_error_with_its_path() {
    let reason = programs::get_as("no_such_program", Link::Pie).expect_err("no source");
    assert!(reason.contains("no_such_program.c"), "{reason}");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").is_dir());
}
