//! Several of our processes are killed at once by real SIGKILLs. Ranks and daemons have started other processes that
//! are hard to find. Nothing may be left.

use std::time::Duration;

use gantry_tests::fault::{Tool, agents, guards, is_keeper};
use gantry_tests::proc::Pidfd;
use gantry_tests::{SOON, World, eventually, proc, programs, within};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);

/// An app on two nodes with a daemon. Each rank and daemon has started five children.
fn running(world: &World) -> Tool {
    let mut tool = Tool::start(world);
    let program = programs::get("strays").display().to_string();
    tool.ask(&format!("launch -N 2 -n 4 {program}"));
    tool.ask("session");
    tool.ask(&format!("daemon {program}"));
    // Daemons run a copy of the program.
    let runs = |pid: &i32| proc::command_line(*pid).ends_with("strays");
    let strays = || world.processes().iter().filter(|pid| runs(pid)).count();
    eventually(SOON, "all have started others", || strays() == 6 * 6);
    tool
}

/// Kills the processes with no other work between the signals.
fn kill_all(pids: impl IntoIterator<Item = i32>) {
    let held: Vec<Pidfd> = pids.into_iter().map(|pid| Pidfd::open(pid).expect("a process")).collect();
    for process in held {
        // An error means that the process ended with an earlier one.
        drop(process.signal(Signal::SIGKILL));
    }
}

#[test]
fn guard_and_agents_killed_at_once_leave_nothing_while_the_tool_lives() {
    within(LIMIT, || {
        let world = World::new();
        let tool = running(&world);
        let victims = [guards(&world), agents(&world)].concat();
        assert_eq!(victims.len(), 3, "{victims:?}");
        kill_all(victims);
        let alone = || world.processes().into_iter().all(|pid| pid == tool.run.pid());
        eventually(SOON, "the tool is alone", alone);
        // The next command removes the agents' storage.
        assert!(world.gantry(["ps", "--json"]).wait(SOON).status.success());
        tool.assert_alone(&world);
    });
}

#[test]
fn tool_guard_and_agents_killed_at_once_leave_no_process() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = running(&world);
        kill_all([vec![tool.run.pid()], guards(&world), agents(&world)].concat());
        tool.run.exited(SOON);
        eventually(SOON, "no process is left", || world.processes().is_empty());
        assert!(world.gantry(["ps", "--json"]).wait(SOON).status.success());
        world.finish();
    });
}

#[test]
fn remains_after_all_of_gantry_was_killed_end_with_the_next_command() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = running(&world);
        let keepers = world.processes().into_iter().filter(|pid| is_keeper(*pid)).collect();
        kill_all([keepers, vec![tool.run.pid()], guards(&world), agents(&world)].concat());
        tool.run.exited(SOON);
        assert!(world.gantry(["ps", "--json"]).wait(SOON).status.success());
        world.finish();
    });
}

#[test]
fn keepers_that_are_killed_alone_change_nothing() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = running(&world);
        let keepers: Vec<i32> = world.processes().into_iter().filter(|pid| is_keeper(*pid)).collect();
        assert!(!keepers.is_empty());
        let before = world.processes().len();
        kill_all(keepers.iter().copied());
        eventually(SOON, "the keepers are gone", || keepers.iter().all(|pid| proc::stat(*pid).is_none()));
        assert_eq!(world.processes().len(), before - keepers.len(), "all others go on");
        tool.ask("session");
        tool.ask("close");
        tool.assert_alone(&world);
    });
}

#[test]
fn a_guard_that_is_killed_alone_takes_nothing_with_it_that_its_agents_end_in_order() {
    within(LIMIT, || {
        let world = World::new();
        let tool = running(&world);
        kill_all(guards(&world));
        tool.assert_alone(&world);
    });
}
