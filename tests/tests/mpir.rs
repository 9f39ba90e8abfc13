//! Runs launchers to their breakpoint and reads their tables. Covers a fake launcher in every shape of the real ones,
//! and the installed real launchers.
#![expect(
    clippy::disallowed_methods,
    reason = "a test that runs itself again tells itself so in the environment"
)]

use std::ffi::OsString;
use std::io::{Read, pipe};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::driven::{Driven, How, LEAVE, STAY};
use gantry_tests::programs::{self, Link};
use gantry_tests::{World, proc, require, tool};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use gantry_wlm::host::Machine;
use gantry_wlm::mpir::{
    AtBreakpoint, Breakpoints, Driver, Event, LauncherCommand, MpirError, Order, Table, read_running,
};

const SOON: Duration = Duration::from_secs(20);
const CHANGE_CODE: How = How { breakpoints: Breakpoints::ChangeCode, ..LEAVE };

/// The fake launcher's command line.
fn launcher(words: &[&str]) -> Vec<OsString> {
    with(programs::get("mpir_launcher"), words)
}

fn with(program: PathBuf, words: &[&str]) -> Vec<OsString> {
    [program.into_os_string()].into_iter().chain(words.iter().map(OsString::from)).collect()
}

#[track_caller]
fn check_table(table: &Table, ranks: u32, hosts: u32) {
    assert_eq!((table.placement.rank_count(), table.placement.node_count()), (ranks, hosts));
    for (place, pid) in table.placement.iter().zip(1001..) {
        let expected = (&*format!("n{}", place.rank.0 % hosts), Pid::new(pid), "./app");
        assert_eq!((place.host, place.pid, place.exe), expected);
    }
    assert_eq!((table.job.as_deref(), table.step.as_deref()), (Some("77"), Some("3")));
}

/// Holds the launcher, releases it at once and runs it to its end. The output must be `lines`.
#[track_caller]
fn check_whole(argv: &[OsString], how: How, lines: &[&str]) {
    let world = World::new();
    let mut run = Driven::start(&world, argv, how);
    check_table(&run.held(), 4, 2);
    assert_eq!(run.ended(), ExitStatus::Code(0));
    assert_eq!(run.rest(), lines, "{argv:?}");
}

const WHOLE: [&str; 2] = ["ranks=4/2", "call"];
/// The breakpoint's body has not run.
const WHOLE_SAYS: [&str; 2] = ["debugged 1", "called"];

#[test]
fn every_way_of_linking_has_a_table() {
    for link in Link::ALL {
        for how in [LEAVE, CHANGE_CODE] {
            let program = require!(programs::get_as("mpir_launcher", link));
            check_whole(&with(program, &WHOLE), how, &WHOLE_SAYS);
        }
    }
}

#[test]
fn a_stripped_launcher_has_its_symbols_for_the_loader() {
    let flags = ["-rdynamic", "-s"];
    let program = require!(programs::get_with("mpir_launcher", "mpir_launcher", &flags));
    check_whole(&with(program, &WHOLE), LEAVE, &WHOLE_SAYS);
}

#[test]
fn symbols_in_a_library_are_found_when_it_is_loaded() {
    for how in [LEAVE, CHANGE_CODE] {
        let program = require!(launcher_with_library());
        check_whole(&with(program, &WHOLE), how, &WHOLE_SAYS);
    }
}

/// The fake launcher, stripped, with its symbols in a library.
fn launcher_with_library() -> Result<PathBuf, String> {
    let library = programs::get_with("mpir_symbols", "libmpir_symbols.so", &["-shared", "-fPIC"])?;
    let folder = library.parent().expect("a folder").display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let flags = [
        "-DSYMBOLS_ELSEWHERE",
        "-fPIE",
        "-pie",
        "-s",
        &rpath,
        "-Wl,--no-as-needed",
        &library.display().to_string(),
    ]
    .map(str::to_owned);
    programs::get_with("mpir_launcher", "mpir_launcher", &flags)
}

#[test]
fn launchers_of_32_bits_are_read_as_such() {
    let flags = ["-m32", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    let narrow = require!(programs::get_with("mpir_narrow", "mpir_narrow", &flags));
    let wide = require!(programs::get_with("mpir_narrow", "mpir_wide", &flags[1..]));
    for (program, how) in [(&narrow, LEAVE), (&narrow, CHANGE_CODE), (&wide, LEAVE)] {
        let world = World::new();
        let mut run = Driven::start(&world, &[program], how);
        let placement = run.held().placement;
        let ranks: Vec<_> = placement.iter().map(|it| (it.host, it.pid, it.exe)).collect();
        assert_eq!(ranks, [("n0", Pid::new(1001), "./app"), ("n1", Pid::new(1002), "./app")]);
        assert_eq!(run.ended(), ExitStatus::Code(3), "{program:?}");
    }
}

#[test]
fn scripts_and_wrappers_are_followed_to_the_launcher() {
    let program = programs::get("mpir_launcher").display().to_string();
    let world = World::new();
    let inner = format!("#!/bin/sh\nset -- $(echo ranks=4/2 call)\nexec env A=b {program} \"$@\"\n");
    let inner = world.executable("inner", inner.as_bytes()).display().to_string();
    let outer = world.executable("outer", format!("#!/usr/bin/env sh\nexec {inner}\n").as_bytes());
    check_whole(&with(outer, &[]), LEAVE, &WHOLE_SAYS);
    check_whole(&with("/usr/bin/env".into(), &[&program, WHOLE[0], WHOLE[1]]), CHANGE_CODE, &WHOLE_SAYS);
    // The launcher executes another launcher before it reaches its breakpoint.
    let words = ["exec", &program, WHOLE[0], WHOLE[1]];
    check_whole(&launcher(&words), LEAVE, &["debugged 1", "debugged 1", "called"]);
}

#[test]
fn children_before_the_breakpoint_do_not_run_into_it() {
    for how in [LEAVE, CHANGE_CODE] {
        let argv = launcher(&["fork", "vfork", "fork", WHOLE[0], WHOLE[1]]);
        let says = ["debugged 1", "body", "child 0", "child 0", "body", "child 0", "called"];
        check_whole(&argv, how, &says);
    }
}

#[test]
fn other_threads_run_on_while_the_first_stands() {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&["threads=20", WHOLE[0], WHOLE[1]]), STAY);
    check_table(&run.held(), 4, 2);
    assert_eq!(proc::state(run.pid), Some('t'));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", run.pid)).expect("its threads");
    let others = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
    let others: Vec<i32> = others.filter(|task| *task != run.pid).collect();
    assert_eq!(others.len(), 20);
    for task in others {
        assert_eq!(proc::tracer(task), None, "thread {task}");
    }
    run.driver.order(Order::Release);
    assert_eq!(run.ended(), ExitStatus::Code(0));
    assert_eq!(run.rest(), ["debugged 1", "body", "called"]);
}

/// For a launcher whose threads may all reach the breakpoint.
const ALL_THREADS: How = How { at_breakpoint: AtBreakpoint::AsItHoldsInAllThreads, ..LEAVE };

#[test]
fn untraced_threads_pass_the_breakpoint_and_its_body_does_not_run() {
    for words in [&["ranks=4/2", "calls=3"][..], &WHOLE, &["fork", "ranks=4/2", "calls=1", "calls=2"]] {
        let world = World::new();
        let program = programs::get_with("mpir_launcher", "mpir_launcher", &["-DSTOPS_RANKS"]);
        let mut run = Driven::start(&world, &with(require!(program), words), ALL_THREADS);
        check_table(&run.held(), 4, 2);
        assert!(!run.stands);
        assert_eq!(run.ended(), ExitStatus::Code(0));
        let said = run.rest();
        assert!(said.contains(&"called".to_owned()) && !said.contains(&"body".to_owned()), "{said:?}");
    }
}

#[test]
fn a_part_that_is_late_is_waited_for() {
    let world = World::new();
    let program = programs::get_with("mpir_launcher", "mpir_launcher", &["-DSTOPS_RANKS"]);
    let words = ["ranks=4/2", "unfilled", "calls=1", "ranks=4/2", "calls=1"];
    let mut run = Driven::start(&world, &with(require!(program), &words), ALL_THREADS);
    check_table(&run.held(), 4, 2);
    assert_eq!(run.ended(), ExitStatus::Code(0));
    assert_eq!(run.rest(), ["debugged 1", "called", "called"]);
}

#[test]
fn a_launcher_that_does_not_stop_its_ranks_stands_whatever_threads_it_has() {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&WHOLE), ALL_THREADS);
    check_table(&run.held(), 4, 2);
    assert!(run.stands);
    run.driver.order(Order::Release);
    assert_eq!(run.ended(), ExitStatus::Code(0));
    assert_eq!(run.rest(), ["debugged 1", "body", "called"]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_launcher_whose_breakpoint_cannot_be_left_stands_there() {
    let program =
        require!(programs::get_with("mpir_launcher", "mpir_launcher", &["-DADRIFT", "-DSTOPS_RANKS"]));
    for at_breakpoint in [AtBreakpoint::LeaveAtOnce, AtBreakpoint::AsItHolds] {
        let world = World::new();
        let words = with(program.clone(), &["ranks=4/2", "adrift"]);
        let mut run = Driven::start(&world, &words, How { at_breakpoint, ..LEAVE });
        check_table(&run.held(), 4, 2);
        assert!(run.stands);
        assert_eq!(proc::state(run.pid), Some('t'));
        run.driver.order(Order::Release);
        assert_eq!(run.ended(), ExitStatus::Code(0));
        assert_eq!(run.rest(), ["debugged 1", "back"]);
    }
}

#[test]
fn a_launcher_that_stays_goes_on_by_order_only() {
    for breakpoints in [Breakpoints::Detect, Breakpoints::ChangeCode] {
        let world = World::new();
        let mut run =
            Driven::start(&world, &launcher(&["handle", WHOLE[0], WHOLE[1]]), How { breakpoints, ..STAY });
        assert_eq!(run.line(), "debugged 1");
        check_table(&run.held(), 4, 2);
        // A signal stays pending until the release.
        run.driver.order(Order::Signal(Signal::new(libc::SIGUSR1).unwrap()));
        proc::eventually(SOON, "a pending signal", || pending(run.pid));
        assert_eq!(proc::state(run.pid), Some('t'));
        run.driver.order(Order::Release);
        assert_eq!(run.ended(), ExitStatus::Code(0));
        assert_eq!(run.rest(), ["got 10", "body", "called"]);
    }
}

fn pending(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("ShdPnd:") && !line.ends_with("0000000000000000"))
}

#[test]
fn a_launcher_that_was_left_is_nobodys_tracee_and_can_be_ended() {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&[WHOLE[0], WHOLE[1], "wait"]), LEAVE);
    check_table(&run.held(), 4, 2);
    assert_eq!([run.line(), run.line()], WHOLE_SAYS);
    assert_eq!(proc::tracer(run.pid), None);
    assert_eq!(proc::stat(run.pid).map(|stat| stat.group), Some(run.pid));
    // A release has no effect in this state.
    run.driver.order(Order::Release);
    run.driver.order(Order::Signal(Signal::TERM));
    assert_eq!(run.ended(), ExitStatus::Signal(Signal::TERM));
}

#[test]
fn a_driver_that_is_dropped_takes_its_launcher_along() {
    for how in [STAY, LEAVE] {
        let world = World::new();
        let mut run = Driven::start(&world, &launcher(&[WHOLE[0], WHOLE[1], "pause"]), how);
        run.held();
        world.track(run.pid);
        drop(run.driver);
    }
}

/// The next test runs this test in another process, which it kills. In an ordinary run it does nothing.
#[test]
fn a_driver_whose_process_is_killed() {
    let Some(how) = std::env::var_os("GANTRY_TEST_INNER") else { return };
    let world = World::new();
    let (how, lines) = if how == "stay" { (STAY, 1) } else { (LEAVE, 2) };
    let mut run = Driven::start(&world, &launcher(&[WHOLE[0], WHOLE[1], "pause"]), how);
    run.held();
    // Read all its output. Otherwise a later write would fail without a reader.
    assert_eq!((0..lines).map(|_| run.line()).collect::<Vec<_>>(), WHOLE_SAYS[..lines]);
    println!("\nheld {}", run.pid);
    run.ended();
}

#[test]
fn a_launcher_dies_with_the_process_of_its_driver() {
    for how in ["stay", "leave"] {
        let world = World::new();
        let mut inner = world.command(std::env::current_exe().expect("this program"));
        inner
            .args(["--exact", "--nocapture", "a_driver_whose_process_is_killed"])
            .env("GANTRY_TEST_INNER", how);
        inner.env("TMPDIR", world.work_dir());
        let mut inner = world.spawn(inner);
        let launcher = std::iter::repeat_with(|| inner.next_line(SOON))
            .find_map(|line| line.strip_prefix("held ").map(|pid| pid.parse().expect("a pid")));
        let launcher = launcher.expect("a launcher");
        assert!(proc::is_alive(launcher));
        world.track(launcher);
        inner.kill();
        inner.wait(SOON);
        proc::wait_gone(launcher, SOON);
    }
}

#[test]
fn signals_are_passed_on_on_the_way() {
    let world = World::new();
    let mut run =
        Driven::start(&world, &launcher(&["handle", "say=ready", "wait", WHOLE[0], WHOLE[1]]), LEAVE);
    assert_eq!([run.line(), run.line()], ["debugged 1", "ready"]);
    run.driver.order(Order::Signal(Signal::new(libc::SIGUSR1).unwrap()));
    assert_eq!(run.line(), "got 10");
    // SIGSTOP stops the launcher until SIGCONT.
    run.driver.order(Order::Signal(Signal::STOP));
    proc::eventually(SOON, "a stop", || matches!(proc::state(run.pid), Some('T' | 't')));
    drop(run.stdin.take());
    run.driver.order(Order::Signal(Signal::CONT));
    check_table(&run.held(), 4, 2);
    assert_eq!(run.ended(), ExitStatus::Code(0));
}

#[test]
fn a_foreign_trap_is_not_taken_for_the_breakpoint() {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&["say=ready", "wait"]), LEAVE);
    assert_eq!([run.line(), run.line()], ["debugged 1", "ready"]);
    run.driver.order(Order::Signal(Signal::new(libc::SIGTRAP).unwrap()));
    let (error, status) = run.failed();
    assert_eq!(status, ExitStatus::Signal(Signal::new(libc::SIGTRAP).unwrap()));
    assert!(matches!(error, MpirError::Ended { .. }), "{error:?}");
}

#[test]
fn calls_of_the_breakpoint_that_say_something_else_are_passed_by() {
    for how in [LEAVE, CHANGE_CODE] {
        let argv = launcher(&["ranks=2", "state=0", "call", "state=7", "call", WHOLE[0], WHOLE[1]]);
        check_whole(&argv, how, &["debugged 1", "body", "called", "body", "called", "called"]);
    }
}

#[track_caller]
fn check_failure(words: &[&str], kind: Kind, text: &str, ended: ExitStatus) {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(words), LEAVE);
    let (error, status) = run.failed();
    assert_eq!(status, ended, "{words:?}");
    let failure = Failure::from(&error);
    assert_eq!(failure.kind(), kind, "{words:?}");
    assert!(failure.message().ends_with(text), "{words:?}: {}", failure.message());
    // The launcher's output was still passed on.
    let mut stderr = String::new();
    run.stderr.read_to_string(&mut stderr).expect("its standard error");
    assert_eq!(stderr.contains("no such node"), words.contains(&"complain=no such node"));
}

#[test]
fn a_launcher_that_fails_is_quoted() {
    let killed = ExitStatus::Signal(Signal::KILL);
    let text = "the launcher ended before they were started, exit code 3; its last output: no such node";
    check_failure(&["complain=no such node", "exit=3"], Kind::LauncherFailed, text, ExitStatus::Code(3));
    let text = "the launcher ended before they were started, exit code 0";
    check_failure(&["ranks=3"], Kind::LauncherFailed, text, ExitStatus::Code(0));
    let text = "the launcher gave up: node n3 is down; its last output: no such node";
    check_failure(&["complain=no such node", "abort=node n3 is down"], Kind::LauncherFailed, text, killed);
    let text = "the launcher's table of ranks is empty";
    check_failure(&["state=1", "call"], Kind::LauncherFailed, text, killed);
    let text = "ranks 0 and 1 are both process 1001 on n0 in the launcher's table";
    check_failure(&["ranks=3", "twin", "call"], Kind::LauncherFailed, text, killed);
    let text = "the launcher's table has -5 ranks, which cannot be";
    check_failure(&["ranks=3", "size=-5", "call"], Kind::LauncherFailed, text, killed);
    let text = "rank 2 has no host name yet in the launcher's table";
    check_failure(&["ranks=3", "unfilled", "call"], Kind::LauncherFailed, text, killed);
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&["ranks=3", "size=10000000", "call"]), LEAVE);
    assert_eq!(run.failed().1, killed);
}

#[test]
fn a_deadline_and_an_order_end_a_launcher_that_does_not_come_to_its_breakpoint() {
    let world = World::new();
    let how = How { deadline: Duration::from_millis(300), ..LEAVE };
    let mut run = Driven::start(&world, &launcher(&["complain=no such node", "wait"]), how);
    let (error, status) = run.failed();
    assert!(matches!(&error, MpirError::TimedOut { words, .. } if words == "no such node"), "{error:?}");
    assert_eq!(status, ExitStatus::Signal(Signal::KILL));
    for order in [Order::Kill, Order::KillGroup] {
        let mut run = Driven::start(&world, &launcher(&["wait"]), LEAVE);
        run.driver.order(order);
        let (error, status) = run.failed();
        assert!(matches!(error, MpirError::GivenUp { .. }), "{error:?}");
        assert_eq!(status, ExitStatus::Signal(Signal::KILL));
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let world = World::new();
    let (stdin, _) = pipe().expect("a pipe");
    let (_, stdout) = pipe().expect("a pipe");
    let (_, stderr) = pipe().expect("a pipe");
    let mut driver = Driver::start(LauncherCommand {
        argv: vec!["no-such-launcher".into()],
        env: world.variables(),
        cwd: world.work_dir(),
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: stderr.into(),
        at_breakpoint: AtBreakpoint::Stay,
        breakpoints: Breakpoints::Detect,
        deadline: SOON,
    })
    .expect("threads");
    let Some(Event::Failed(error)) = driver.next_event(SOON) else { panic!("it started") };
    let text = "start the launcher no-such-launcher: No such file or directory (os error 2)";
    assert_eq!((error.kind(), Failure::from(&error).message()), (Kind::NotFound, text));
    assert!(driver.next_event(SOON).is_none());
}

#[test]
fn events_make_the_driver_readable() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&[WHOLE[0], WHOLE[1], "wait"]), LEAVE);
    let readable = |driver: &Driver, patience: u16| {
        let mut fds = [PollFd::new(driver.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(patience)).expect("poll") > 0
    };
    assert!(readable(&run.driver, 20_000));
    assert!(matches!(run.driver.take_event(), Some(Event::Held { .. })));
    assert!(!readable(&run.driver, 0) && run.driver.take_event().is_none());
    drop(run.stdin.take());
    assert!(readable(&run.driver, 20_000));
    assert!(matches!(run.driver.take_event(), Some(Event::Ended(ExitStatus::Code(0)))));
}

#[test]
fn a_program_without_symbols_is_ended_before_it_starts_anything() {
    let world = World::new();
    // `timeout` forks its program. It is neither a launcher nor a script.
    let timeout = require!(tool("timeout"));
    let mark = world.work_dir().join("mark");
    let mut run = Driven::start(&world, &with(timeout, &["60", "touch", &mark.display().to_string()]), LEAVE);
    let (error, status) = run.failed();
    let MpirError::NoSymbols { inspected, .. } = &error else { panic!("{error:?}") };
    assert!(inspected[0].ends_with("timeout") && inspected.len() > 1, "{inspected:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--hold-method exec")));
    assert_eq!(status, ExitStatus::Signal(Signal::KILL));
    assert!(!mark.exists());
}

#[test]
fn a_script_without_a_launcher_names_the_programs_seen() {
    let world = World::new();
    let mut run = Driven::start(&world, &["sh", "-c", "true & wait; echo done"], LEAVE);
    let (error, status) = run.failed();
    let MpirError::Ended { inspected, .. } = &error else { panic!("{error:?}") };
    assert!(!inspected.is_empty() && error.hint().is_some(), "{error:?}");
    assert_eq!((status, run.rest()), (ExitStatus::Code(0), vec!["done".to_owned()]));
}

#[test]
fn a_running_launcher_tells_its_table_and_goes_on() {
    for program in [Ok(programs::get("mpir_launcher")), launcher_with_library()] {
        let world = World::new();
        let program = require!(program);
        let mut run = world.start(&program, ["ranks=5/5", "say=ready", "wait"]);
        assert_eq!([run.next_line(SOON), run.next_line(SOON)], ["debugged 0", "ready"]);
        let table = read_running(Pid::new(run.pid()).unwrap(), &Machine).expect("a table");
        check_table(&table, 5, 5);
        assert!(!table.stops_before_main);
        run.close_stdin();
        assert_eq!(run.wait(SOON).code(), 0);
    }
}

#[track_caller]
fn check_running(program: &Path, words: &[&str], kind: Kind, text: &str) {
    let world = World::new();
    let mut run = world.start(program, words);
    run.next_line(SOON);
    let pid = Pid::new(run.pid()).expect("a pid");
    let error = read_running(pid, &Machine).expect_err("no table");
    let failure = Failure::from(&error);
    assert_eq!(failure.kind(), kind, "{failure}");
    assert!(failure.message().contains(text), "{failure}");
    run.close_stdin();
    run.wait(SOON);
}

#[test]
fn a_running_process_without_a_table_says_so() {
    let program = programs::get("mpir_launcher");
    check_running(&program, &["wait"], Kind::LauncherFailed, "the launcher's table of ranks is empty");
    let shell = Path::new("/bin/sh");
    check_running(shell, &["-c", "echo; read x"], Kind::Unsupported, "no MPIR symbols in /usr/bin/");
    let missing = read_running(Pid::new(i32::MAX).unwrap(), &Machine).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
}

#[test]
fn a_hundred_thousand_ranks_are_read() {
    let world = World::new();
    let mut run = Driven::start(&world, &launcher(&["ranks=100000/1000", "call"]), LEAVE);
    check_table(&run.held(), 100_000, 1000);
    assert_eq!(run.ended(), ExitStatus::Code(0));
}

/// Runs an installed launcher with arguments that start no ranks. It ends before its breakpoint. Checks whether its
/// symbols were found.
#[track_caller]
fn check_installed(program: PathBuf, words: &[&str], has_symbols: bool) {
    let world = World::new();
    let mut run = Driven::start(&world, &with(program, words), LEAVE);
    let (error, _) = run.failed();
    match (&error, has_symbols) {
        (MpirError::Ended { inspected, .. }, true) => assert!(inspected.is_empty(), "{error:?}"),
        (MpirError::Ended { inspected, .. } | MpirError::NoSymbols { inspected, .. }, false) => {
            assert!(!inspected.is_empty(), "{error:?}");
        }
        _ => panic!("{error:?}"),
    }
}

#[test]
fn symbols_of_slurms_launchers_are_found() {
    check_installed(require!(tool("srun")), &["--version"], true);
    check_installed(require!(tool("sattach")), &["--version"], true);
}

#[test]
fn symbols_of_open_mpi_are_found_in_its_library() {
    check_installed(require!(tool("mpirun.openmpi")), &["--version"], true);
}

#[test]
fn a_launcher_of_mpich_without_symbols_starts_no_ranks() {
    let world = World::new();
    let mark = world.work_dir().join("mark");
    let program = require!(tool("mpiexec.hydra"));
    check_installed(program, &["-n", "2", "touch", &mark.display().to_string()], false);
    assert!(!mark.exists());
}
