//! A real process is read, and continues unchanged.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::symbols::{Symbols, identify_file};
use gantry_stackd::reader::Reader;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[expect(clippy::disallowed_methods, reason = "a test needs a process of its own")]
fn sleeper() -> (Child, i32) {
    let child = Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().expect("sleep");
    let pid = i32::try_from(child.id()).expect("a pid");
    (child, pid)
}

#[test]
fn a_sleeping_process_is_read_again_and_again_and_sleeps_on() {
    let (mut child, pid) = sleeper();
    let mut reader = Reader::new().expect("a reader");
    let mut names = Vec::new();
    for _ in 0..1000 {
        let stacks = reader.read(&[pid, i32::MAX - 1], true);
        // A process that does not exist is reported as ended.
        assert_eq!(stacks[1], [vec![Frame::Mark(Mark::Ended)]]);
        names.clear();
        for frame in stacks[0].iter().flatten() {
            let Frame::Code { module, address } = frame else { continue };
            let file = reader.modules().find(|it| it.id == *module).expect("its file");
            // The kernel's code is in no file.
            let Some(path) = Reader::file_of(pid, file) else { continue };
            if names.len() < 20 {
                names.push((path, *address));
            }
        }
        // The process may not have reached the function yet.
        if names.len() > 2 {
            break;
        }
    }
    assert!(names.len() > 2, "{names:?}");
    for _ in 0..200 {
        reader.read(&[pid], false);
    }
    let functions = names.iter().filter_map(|(path, address)| {
        let symbols = Symbols::open(path, &identify_file(path).ok()?).ok()?;
        symbols.find(*address).pop()?.call.function
    });
    assert!(functions.count() > 0, "no function has a name");
    assert!(matches!(state(pid), Some('S' | 'R')), "{:?}", state(pid));
    assert!(reader.longest_stop() < Duration::from_secs(1), "{:?}", reader.longest_stop());
    eprintln!("longest stop: {:?}", reader.longest_stop());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Traces a process for a while, as another reader of stacks or a debugger does.
fn traces(pid: i32, how_long: Duration) {
    let pid = Pid::from_raw(pid);
    let until = Instant::now() + Duration::from_secs(10);
    while ptrace::seize(pid, ptrace::Options::empty()).is_err() {
        assert!(Instant::now() < until, "not traced in time");
    }
    #[expect(clippy::disallowed_methods, reason = "the time is the case")]
    thread::sleep(how_long);
    ptrace::interrupt(pid).expect("it is traced");
    waitpid(pid, Some(WaitPidFlag::__WALL)).expect("it stops");
    ptrace::detach(pid, None).expect("it is stopped");
}

fn is_traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.contains("TracerPid:\t0\n")
}

fn wait_until_traced(pid: i32) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_traced(pid) {
        assert!(Instant::now() < until, "nobody traces it");
        thread::yield_now();
    }
}

#[test]
fn readers_that_take_turns_are_waited_for_and_a_tracer_that_stays_is_named() {
    let (mut child, pid) = sleeper();
    // No turn lasts long, but all together do. Each one begins while the reader waits.
    let turns: Vec<_> =
        (0..4).map(|_| thread::spawn(move || traces(pid, Duration::from_millis(150)))).collect();
    wait_until_traced(pid);
    let mut reader = Reader::new().expect("a reader");
    let stacks = reader.read(&[pid], false);
    assert!(!matches!(stacks[0][0][..], [Frame::Mark(_)]), "{stacks:?}");
    turns.into_iter().for_each(|turn| turn.join().expect("a turn"));

    let stays = thread::spawn(move || traces(pid, Duration::from_secs(1)));
    wait_until_traced(pid);
    let stacks = reader.read(&[pid], false);
    let [Frame::Mark(Mark::Unreadable(why))] = &stacks[0][0][..] else { panic!("{stacks:?}") };
    assert!(why.contains("traces it already"), "{why}");
    stays.join().expect("a tracer");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
