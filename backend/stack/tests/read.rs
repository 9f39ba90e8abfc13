//! A real process is read, and continues unchanged.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::symbols::{Symbols, identify_file};
use gantry_stackd::reader::Reader;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

const SOON: Duration = Duration::from_secs(60);

/// One reader at a time: the tests look at its thread.
static READER: Mutex<()> = Mutex::new(());

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
    let _alone = READER.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Traces a process until `may_go`, as another reader of stacks or a debugger does.
fn traces_until(pid: i32, may_go: impl FnMut() -> bool) {
    let pid = Pid::from_raw(pid);
    comes_true("traced", || ptrace::seize(pid, ptrace::Options::empty()).is_ok());
    comes_true("let go", may_go);
    ptrace::interrupt(pid).expect("it is traced");
    waitpid(pid, Some(WaitPidFlag::__WALL)).expect("it stops");
    ptrace::detach(pid, None).expect("it is stopped");
}

fn comes_true(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "not {what} in time");
        thread::yield_now();
    }
}

fn is_traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.contains("TracerPid:\t0\n")
}

/// Whether a reader's thread for tracing is in poll, by which it waits for tracers: 7 is poll, 271 ppoll. Source:
/// proc_pid_syscall(5).
fn reader_polls() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).any(|thread| {
        let read = |file| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        let call = read("syscall");
        read("comm") == "tracer\n" && (call.starts_with("7 ") || call.starts_with("271 "))
    })
}

#[test]
fn a_tracer_that_lets_go_is_waited_for_and_one_that_stays_is_named() {
    let _alone = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut child, pid) = sleeper();
    let mut reader = Reader::new().expect("a reader");
    comes_true("read after a turn", || {
        let turn = thread::spawn(move || traces_until(pid, reader_polls));
        comes_true("traced", || is_traced(pid));
        let stacks = reader.read(&[pid], false);
        // On a busy machine the reader may have left before the tracer saw it wait.
        while !turn.is_finished() {
            reader.read(&[pid], false);
        }
        turn.join().expect("a turn");
        !matches!(stacks[0][0][..], [Frame::Mark(_)])
    });

    let has_read = Arc::new(AtomicBool::new(false));
    let may_go = Arc::clone(&has_read);
    let stays = thread::spawn(move || traces_until(pid, || may_go.load(Ordering::Relaxed)));
    comes_true("traced", || is_traced(pid));
    let stacks = reader.read(&[pid], false);
    has_read.store(true, Ordering::Relaxed);
    let [Frame::Mark(Mark::Unreadable(why))] = &stacks[0][0][..] else { panic!("{stacks:?}") };
    assert!(why.contains("traces it already"), "{why}");
    stays.join().expect("a tracer");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
