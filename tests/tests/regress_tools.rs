//! Tools with unusual use of signals, children, descriptors and runtimes.
//!
//! What broke:
//! - A guard inherited the ignored SIGCHLD of its tool, and never left.
//! - A guard did not notice the end of a tool that had forked.
//! - A tool without standard input, output or error got its guard's socket in their place.
//! - A runtime that ended before its apps left threads and waiting callers behind.
//! - gantry handled a SIGHUP that `nohup` had let it ignore, and ended its ranks.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_frontend::{LaunchRequest, OutputTo};
use gantry_tests::{
    ClosedStdio, Run, SOON, World, binaries, eventually, on_processes, on_this_machine, pids, proc, within,
};
use gantry_types::error::Kind;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};

const LIMIT: Duration = Duration::from_secs(90);

/// A tool that a shell starts after it has run `first`.
fn tool(world: &World, first: &str) -> Run {
    let mut command = world.command("/bin/sh");
    let tool = binaries().dir.join("fault_tool");
    command.args(["-c", &format!("{first}; exec {}", tool.display())]);
    world.spawn(command)
}

fn say(tool: &mut Run, line: &str) -> serde_json::Value {
    tool.write(format!("{line}\n").as_bytes());
    loop {
        let said: serde_json::Value = serde_json::from_str(&tool.next_line(SOON)).expect("a line of JSON");
        assert!(said["failed"].is_null(), "{line}: {said}");
        if said["done"].is_string() {
            return said;
        }
    }
}

#[test]
fn a_tool_may_ignore_all_signals() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = tool(&world, "trap '' TERM HUP INT PIPE");
        say(&mut tool, "ignore");
        say(&mut tool, "hold -n 2 /bin/true");
        say(&mut tool, "close");
        say(&mut tool, "hold -n 2 /bin/true");
        say(&mut tool, "session");
        drop(tool);
        world.finish();
    });
}

#[test]
fn a_command_goes_on_ignoring_what_it_was_started_to_ignore() {
    within(LIMIT, || {
        let world = World::new();
        for program in ["gantry launch", "gantry-mpir", "nohup gantry launch"] {
            let mut command = world.command("/bin/sh");
            let script = format!("PATH=$1:$PATH; trap '' HUP INT; exec {program} -n 1 cat");
            command.args(["-c", &script, "sh"]).arg(&binaries().dir);
            let mut run = world.spawn(command);
            run.write(b"before\n");
            assert_eq!(run.next_line(SOON), "before");
            for signal in [Signal::SIGHUP, Signal::SIGINT] {
                assert!(proc::ignores(run.pid(), signal), "{program} {signal}");
                run.signal(signal);
            }
            run.write(b"after\n");
            assert_eq!(run.next_line(SOON), "after", "{program}");
            run.close_stdin();
            assert_eq!(run.wait(SOON).code(), 0, "{program}");
        }
        world.finish();
    });
}

/// The guard starts all agents of this machine. It once could start only as many as its limit of open files allowed.
#[test]
fn a_soft_limit_of_open_files_does_not_bound_the_number_of_agents_and_stays_what_ranks_have() {
    within(LIMIT, || {
        let world = World::new();
        let limited = format!("#!/bin/sh\nulimit -Sn 40\nexec {} \"$@\"\n", binaries().guard.display());
        let guard = world.executable("gantry-guard", limited.as_bytes());
        std::os::unix::fs::symlink(&binaries().agent, guard.with_file_name("gantry-agent")).expect("a link");
        let args = ["launch", "--", "-N", "60", "-n", "60", "/bin/sh", "-c", "ulimit -Sn"];
        let mut command = world.gantry_command(args);
        command.env("GANTRY_INSTALL_DIR", world.work_dir());
        let done = world.spawn(command).wait(SOON);
        assert_eq!((done.code(), done.stdout), (0, vec!["40".to_owned(); 60]), "{:?}", done.stderr);
        world.finish();
    });
}

#[test]
fn a_killed_tool_that_has_forked_is_cleaned_up_after() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = tool(&world, "true");
        let app = say(&mut tool, "hold -n 2 /bin/true");
        say(&mut tool, "session");
        let child =
            say(&mut tool, "fork")["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
        drop(tool);
        for pid in app["pids"].as_array().expect("pids") {
            let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
            proc::wait_gone(pid, SOON);
        }
        assert!(proc::is_alive(child), "it has all of the tool's descriptors still");
        proc::send(child, Signal::SIGKILL);
        world.finish();
    });
}

#[test]
fn a_tool_may_wait_for_any_child() {
    on_this_machine(LIMIT, async |site| {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let waiter = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                waitpid(None, Some(WaitPidFlag::WNOHANG)).ok();
            }
        });
        for _ in 0..5 {
            let app = site.held(["-n", "2", "/bin/true"]).await;
            app.release(SOON).await.expect("release");
            assert_eq!(app.wait().await.expect("the end").code, 0);
            app.close(SOON).await.expect("close");
        }
        over.store(true, Ordering::Relaxed);
        waiter.join().expect("the waiter");
    });
}

#[test]
fn a_tool_may_have_no_standard_descriptors() {
    on_this_machine(LIMIT, async |site| {
        let closed = ClosedStdio::new();
        let launched =
            site.frontend().launch(LaunchRequest::new(["-n", "2", "/bin/true"]).hold(true), SOON).await;
        let sockets = (0..3).filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok());
        let sockets: Vec<_> =
            sockets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect();
        let ended = match launched {
            Ok(app) => app.close(SOON).await,
            Err(error) => Err(error),
        };
        drop(closed);
        ended.expect("launched and closed");
        assert!(sockets.len() <= 2, "the guard's socket is elsewhere: {sockets:?}");
    });
}

/// The number of threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    tasks
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .count()
}

#[test]
fn a_runtime_may_end_before_its_apps() {
    on_this_machine(LIMIT, async |site| {
        let frontend = site.frontend();
        let null = || OwnedFd::from(fs::File::options().write(true).open("/dev/null").expect("a file"));
        let output = OutputTo::Fds { stdout: null(), stderr: null() };
        let request = LaunchRequest::new(["/bin/sleep", "1000"]).output(output);
        let launched = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(frontend.launch(request, SOON)).expect("an app")
        });
        let app = launched.join().expect("a thread");
        let error =
            tokio::time::timeout(SOON, app.wait()).await.expect("in time").expect_err("the listener is gone");
        assert_eq!(error.kind(), Kind::Gone);
        eventually(SOON, "the end of the thread that writes", || threads("gantry-output") == 0);
        proc::wait_gone(pids(&app)[0], SOON);
        drop(app);
    });
}

#[test]
fn two_hundred_launches_leave_nothing_in_the_tool() {
    on_processes(2 * LIMIT, async |site| {
        let count = |folder: &str| fs::read_dir(folder).expect("a folder").count();
        let mut before = (0, 0);
        for round in 0..200 {
            let app = site.held(["/bin/true"]).await;
            if round % 50 == 1 {
                drop(app.session(SOON).await.expect("a session"));
            }
            app.release(SOON).await.expect("release");
            app.wait().await.expect("the end");
            app.close(SOON).await.expect("close");
            if round == 10 {
                before = (count("/proc/self/fd"), count("/proc/self/task"));
            }
        }
        let zombies = proc::children(std::process::id().cast_signed());
        assert_eq!(zombies, [0; 0], "no child is left");
        eventually(SOON, "no more descriptors than before", || count("/proc/self/fd") <= before.0);
        // Idle threads of the runtime come and go.
        eventually(SOON, "no more threads than before", || count("/proc/self/task") <= before.1 + 2);
    });
}
