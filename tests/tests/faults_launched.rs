//! Which processes end together in launched apps: real SIGKILLs to tool, guard, agent, daemon and rank in each state.
//!
//! Every test ends with the leak check. No process, socket or file may be left, unless the test says which ones
//! continue.

use std::path::Path;
use std::time::Duration;

use gantry_tests::fault::{Tool, agents, guards, numbers, running};
use gantry_tests::proc::keep_from_ending;
use gantry_tests::{SOON, World, eventually, proc, programs, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

/// The state of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Running,
    SessionOpen,
    DaemonRunning,
}

/// An app of four ranks in this state, with all pids.
struct Scene {
    // Fields are dropped in this order: the tool is killed before the world looks for leaks.
    tool: Tool,
    ranks: Vec<i32>,
    daemons: Vec<i32>,
    root: Option<String>,
    world: World,
}

impl Scene {
    fn new(state: State) -> Self {
        Self::with(state, "-n 4")
    }

    fn with(state: State, options: &str) -> Self {
        let world = World::new();
        let mut tool = Tool::start(&world);
        let program = programs::get("touch_and_wait").display().to_string();
        let launched =
            tool.ask(&format!("hold {options} {program} {}", world.work_dir().join("ran.%").display()));
        let ranks = numbers(&launched["pids"]);
        let mut scene = Self { tool, ranks, daemons: Vec::new(), root: None, world };
        if state == State::Running {
            scene.tool.ask("release");
            proc::wait_file(&scene.world.work_dir().join("ran.3"), SOON);
        }
        if matches!(state, State::SessionOpen | State::DaemonRunning) {
            scene.root = scene.tool.ask("session")["root"].as_str().map(str::to_owned);
        }
        if state == State::DaemonRunning {
            let daemon = programs::get("fork_child").display().to_string();
            scene.daemons = numbers(&scene.tool.ask(&format!("daemon {daemon} stay"))["pids"]);
        }
        scene
    }

    fn guard(&self) -> i32 {
        one(&guards(&self.world))
    }

    fn agent(&self) -> i32 {
        one(&agents(&self.world))
    }

    fn kill_tool(&mut self) {
        self.tool.run.kill();
        self.tool.run.exited(SOON);
    }

    /// Whether any rank has run its first instruction.
    fn ran(&self) -> bool {
        (0..self.ranks.len()).any(|rank| self.world.work_dir().join(format!("ran.{rank}")).exists())
    }
}

/// The owner of the app's control socket is dead. The next command removes the socket.
fn sweep_sockets(world: &World) {
    assert!(world.gantry(["ps", "--json"]).wait(SOON).status.success());
}

fn one(pids: &[i32]) -> i32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

fn kill(pid: i32) {
    proc::send(pid, Signal::SIGKILL);
}

fn kill_if_there(pid: i32) {
    if let Ok(process) = proc::Pidfd::open(pid) {
        // An error means that the process has already ended.
        drop(process.signal(Signal::SIGKILL));
    }
}

/// Runs the same check in each of these states.
fn in_each(states: &'static [State], check: fn(Scene, State)) {
    within(LIMIT, move || states.iter().for_each(|state| check(Scene::new(*state), *state)));
}

fn tool_killed(mut scene: Scene, state: State) {
    scene.kill_tool();
    scene.world.assert_nothing_left();
    assert_eq!(scene.ran(), state == State::Running, "a held rank ran when its tool was killed");
}

#[test]
fn tool_killed_while_app_is_held_leaves_no_process() {
    in_each(&[State::Held], tool_killed);
}

#[test]
fn tool_killed_while_app_runs_leaves_no_process() {
    in_each(&[State::Running], tool_killed);
}

#[test]
fn tool_killed_while_a_session_is_open_leaves_no_file() {
    in_each(&[State::SessionOpen], tool_killed);
}

#[test]
fn tool_killed_while_a_daemon_runs_leaves_no_process() {
    in_each(&[State::DaemonRunning], tool_killed);
}

#[test]
fn tool_that_returns_without_a_word_leaves_no_process() {
    in_each(&[State::Held, State::DaemonRunning], |mut scene, _| {
        scene.tool.run.close_stdin();
        assert_eq!(scene.tool.run.wait(SOON).code(), 0);
        scene.world.assert_nothing_left();
        assert!(!scene.ran());
    });
}

/// Starts a launch of many ranks and acts as soon as `ready` is true.
fn while_starting(what: &str, ready: fn(&World) -> bool, act: fn(&World, &mut Tool)) {
    let program = programs::get("touch_and_wait").display().to_string();
    for round in 0..5 {
        let world = World::new();
        let mut tool = Tool::start(&world);
        tool.tell(&format!("hold -N 2 -n 300 {program} {}", world.work_dir().join("ran").display()));
        // Polls without a pause, because the state does not last.
        let seen = std::iter::repeat_with(|| ready(&world)).take(100_000).any(|ready| ready);
        assert!(seen, "{what} was never seen in round {round}");
        act(&world, &mut tool);
        drop(tool);
        world.assert_nothing_left();
        assert!(!world.work_dir().join("ran").exists(), "a rank ran");
    }
}

fn kill_tool(_: &World, tool: &mut Tool) {
    tool.run.kill();
    tool.run.exited(SOON);
}

fn has_ranks(world: &World) -> bool {
    world.processes().iter().any(|pid| proc::variable(*pid, "GANTRY_RANK").is_some())
}

#[test]
fn tool_killed_while_its_guard_starts_leaves_no_process() {
    within(LIMIT, || while_starting("the guard", |world| !guards(world).is_empty(), kill_tool));
}

#[test]
fn tool_killed_while_its_agents_start_leaves_no_process() {
    within(LIMIT, || while_starting("an agent", |world| !agents(world).is_empty(), kill_tool));
}

#[test]
fn tool_killed_while_ranks_start_leaves_no_process() {
    within(LIMIT, || while_starting("a rank", has_ranks, kill_tool));
}

#[test]
fn guard_killed_while_app_is_starting_fails_the_launch_and_leaves_no_process() {
    within(LIMIT, || {
        while_starting(
            "an agent",
            |world| !agents(world).is_empty(),
            |world, tool| {
                guards(world).into_iter().for_each(kill_if_there);
                // Either the launch fails, or it had succeeded before the guard's end was noticed. In the second case
                // the app ends.
                let answer = tool.answer();
                if answer["done"].is_string() {
                    tool.event("exited");
                }
                tool.assert_alone(world);
            },
        );
    });
}

#[test]
fn agent_killed_while_app_is_starting_fails_the_launch_and_leaves_no_process() {
    within(LIMIT, || {
        while_starting("a rank", has_ranks, |world, tool| {
            // There are two agents. The second may end with the first.
            agents(world).into_iter().for_each(kill_if_there);
            let answer = tool.answer();
            if answer["done"].is_string() {
                tool.event("exited");
            } else {
                assert_eq!(answer["kind"], "lost", "{answer}");
            }
            tool.assert_alone(world);
        });
    });
}

fn guard_killed(mut scene: Scene, state: State) {
    kill(scene.guard());
    let error = scene.tool.event("error");
    assert_eq!(
        (&error["kind"], &error["message"]),
        (&"lost".into(), &"lost the guard: it ended unasked".into())
    );
    let exited = scene.tool.event("exited");
    assert_eq!(exited["code"], 137, "{exited}");
    scene.tool.assert_alone(&scene.world);
    assert_eq!(scene.ran(), state == State::Running);
    // The tool still works.
    scene.tool.ask("launch -n 2 /bin/true");
    scene.tool.event("exited");
}

#[test]
fn guard_killed_while_app_is_held_ends_the_app_unrun() {
    in_each(&[State::Held], guard_killed);
}

#[test]
fn guard_killed_while_app_runs_ends_the_app() {
    in_each(&[State::Running], guard_killed);
}

#[test]
fn guard_killed_while_a_session_is_open_removes_it() {
    in_each(&[State::SessionOpen], guard_killed);
}

#[test]
fn guard_killed_while_a_daemon_runs_ends_the_daemon() {
    in_each(&[State::DaemonRunning], guard_killed);
}

fn agent_killed(mut scene: Scene, state: State) {
    kill(scene.agent());
    let lost = scene.tool.event("nodes_lost");
    assert_eq!(lost["hosts"].as_array().map(Vec::len), Some(1), "{lost}");
    if state == State::DaemonRunning {
        assert_eq!(scene.tool.event("daemon_exited")["host"], lost["hosts"][0]);
    }
    let exited = scene.tool.event("exited");
    // The ranks' exit status is unknown, which counts as a failure.
    assert_ne!(exited["code"], 0, "{exited}");
    scene.tool.assert_alone(&scene.world);
    assert_eq!(scene.ran(), state == State::Running);
    assert_eq!(scene.tool.refused("release")["kind"], "gone");
    scene.tool.ask("close");
    scene.tool.ask("launch -n 2 /bin/true");
    scene.tool.event("exited");
}

#[test]
fn agent_killed_while_app_is_held_ends_the_app_unrun() {
    in_each(&[State::Held], agent_killed);
}

#[test]
fn agent_killed_while_app_runs_ends_the_app() {
    in_each(&[State::Running], agent_killed);
}

#[test]
fn agent_killed_while_a_session_is_open_removes_it() {
    in_each(&[State::SessionOpen], agent_killed);
}

#[test]
fn agent_killed_while_a_daemon_runs_ends_the_daemon() {
    in_each(&[State::DaemonRunning], agent_killed);
}

#[test]
fn agent_that_is_asked_to_go_ends_the_app_and_cleans_up() {
    in_each(&[State::Held, State::DaemonRunning], |mut scene, _| {
        proc::send(scene.agent(), Signal::SIGTERM);
        let exited = scene.tool.event("exited");
        assert_eq!(exited["code"], 137, "{exited}");
        scene.tool.assert_alone(&scene.world);
        assert!(!scene.ran());
    });
}

#[test]
fn processes_that_cannot_be_killed_delay_the_end_of_their_app_shortly() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        let script = b"#!/bin/sh\nexec > /dev/null 2>&1\nsleep 1000 &\nsleep 1000 &\nwait\n";
        tool.ask(&format!("launch -n 1 {}", world.executable("starts_two", script).display()));
        let root = tool.ask("session")["root"].as_str().expect("a root").to_owned();
        let sleeping = || running(&world, "sleep");
        eventually(SOON, "the rank has started two", || sleeping().len() == 2);
        let (done, tracer) = keep_from_ending(sleeping());
        tool.ask("close");
        assert_eq!(sleeping().len(), 2);
        assert!(!Path::new(&root).exists(), "the agent did not remove the session");
        drop(done);
        tracer.join().expect("the tracer has let go");
        tool.assert_alone(&world);
    });
}

#[test]
fn a_rank_and_a_daemon_that_cannot_be_killed_are_named_and_nothing_waits_for_them() {
    within(LIMIT, || {
        let mut scene = Scene::new(State::DaemonRunning);
        let (rank, daemon) = (scene.ranks[0], scene.daemons[0]);
        let (done, tracer) = keep_from_ending(vec![rank, daemon]);
        let refused = scene.tool.refused("destroy");
        assert_eq!(
            (&refused["kind"], names(&refused["message"], daemon)),
            (&"timed-out".into(), true),
            "{refused}"
        );
        assert!(!scene.root.as_ref().is_some_and(|root| Path::new(root).exists()), "the session stayed");
        scene.tool.ask("close");
        let error = scene.tool.event("error");
        let message = &error["message"];
        assert!(names(message, rank) && names(message, daemon), "{error}");
        eventually(SOON, "the agent has left", || agents(&scene.world).is_empty());
        assert!(proc::is_alive(rank) && proc::is_alive(daemon));
        drop(done);
        tracer.join().expect("the tracer has let go");
        scene.tool.assert_alone(&scene.world);
    });
}

#[test]
fn an_agent_that_is_asked_to_go_names_what_it_cannot_end() {
    within(LIMIT, || {
        let mut scene = Scene::new(State::Held);
        let rank = scene.ranks[0];
        let (done, tracer) = keep_from_ending(vec![rank]);
        proc::send(scene.agent(), Signal::SIGTERM);
        let lost = scene.tool.event("nodes_lost");
        assert!(names(&lost["reason"], rank), "{lost}");
        drop(done);
        tracer.join().expect("the tracer has let go");
        scene.tool.assert_alone(&scene.world);
    });
}

/// Whether a message names this process.
fn names(message: &Value, pid: i32) -> bool {
    let message = message.as_str().unwrap_or_default();
    message.split(|c: char| !c.is_ascii_digit()).any(|number| number == pid.to_string())
}

#[test]
fn one_agent_of_three_killed_takes_its_node_along_and_no_other() {
    within(LIMIT, || {
        let mut scene = Scene::with(State::DaemonRunning, "-N 3 -n 6");
        let victim = proc::stat(scene.ranks[2]).expect("a rank").parent;
        assert!(agents(&scene.world).contains(&victim));
        kill(victim);
        let lost = scene.tool.event("nodes_lost");
        assert!(lost["hosts"][0].as_str().is_some_and(|host| host.ends_with(".1")), "{lost}");
        for rank in [2, 3] {
            proc::wait_gone(scene.ranks[rank], SOON);
        }
        proc::wait_gone(scene.daemons[1], SOON);
        for rank in [0, 1, 4, 5] {
            assert_eq!(proc::why_not_held(scene.ranks[rank]), None);
        }
        assert!(proc::is_alive(scene.daemons[0]) && proc::is_alive(scene.daemons[2]));
        // The remaining ranks are released as usual.
        scene.tool.ask("release");
        proc::wait_file(&scene.world.work_dir().join("ran.5"), SOON);
        assert!(!scene.world.work_dir().join("ran.2").exists());
        scene.tool.ask("close");
        scene.tool.assert_alone(&scene.world);
    });
}

#[test]
fn tool_and_guard_killed_together_leave_no_process() {
    in_each(&[State::Held, State::Running, State::DaemonRunning], |mut scene, _| {
        let guard = scene.guard();
        proc::send(guard, Signal::SIGSTOP);
        scene.kill_tool();
        kill(guard);
        sweep_sockets(&scene.world);
        scene.world.assert_nothing_left();
    });
}

#[test]
fn tool_guard_and_agent_killed_together_leave_no_process_and_the_next_agent_sweeps_the_storage() {
    in_each(&[State::DaemonRunning], |mut scene, _| {
        let (guard, agent) = (scene.guard(), scene.agent());
        proc::send(guard, Signal::SIGSTOP);
        kill(agent);
        kill(guard);
        scene.kill_tool();
        for pid in scene.ranks.iter().chain(&scene.daemons) {
            proc::wait_gone(*pid, SOON);
        }
        let root = scene.root.clone().expect("a session");
        assert!(Path::new(&root).exists(), "no process was left to remove it");
        // A background child of the daemon is an orphan now. Only the daemon itself dies with its agent.
        scene.world.processes().into_iter().for_each(kill);
        sweep_sockets(&scene.world);
        let mut next = Tool::start(&scene.world);
        next.ask("hold /bin/true");
        next.ask("session");
        eventually(SOON, "the storage is swept", || !Path::new(&root).exists());
    });
}

#[test]
fn daemon_killed_is_told_and_nothing_else_happens() {
    in_each(&[State::DaemonRunning], |mut scene, _| {
        kill(scene.daemons[0]);
        let event: Value = scene.tool.event("daemon_exited");
        assert_eq!(event["signal"], "SIGKILL", "{event}");
        assert!(scene.ranks.iter().all(|pid| proc::why_not_held(*pid).is_none()));
        assert!(scene.root.as_ref().is_some_and(|root| Path::new(root).is_dir()));
        // Another daemon can be started in its place.
        scene.tool.ask("daemon /bin/true");
        assert_eq!(scene.tool.event("daemon_exited")["code"], 0);
        scene.kill_tool();
    });
}

#[test]
fn rank_killed_while_app_is_held_leaves_the_others_held() {
    in_each(&[State::Held], |mut scene, _| {
        kill(scene.ranks[1]);
        let event = scene.tool.event("rank_exited");
        assert_eq!((&event["rank"], &event["signal"]), (&1.into(), &"SIGKILL".into()));
        for rank in [0, 2, 3] {
            assert_eq!(proc::why_not_held(scene.ranks[rank]), None);
        }
        scene.tool.ask("release");
        for rank in [0, 2, 3] {
            proc::wait_file(&scene.world.work_dir().join(format!("ran.{rank}")), SOON);
        }
        scene.tool.ask("close");
        assert!(!scene.world.work_dir().join("ran.1").exists());
    });
}

#[test]
fn rank_killed_while_app_runs_leaves_the_others_running() {
    in_each(&[State::Running], |mut scene, _| {
        kill(scene.ranks[1]);
        assert_eq!(scene.tool.event("rank_exited")["signal"], "SIGKILL");
        assert!([0, 2, 3].iter().all(|rank| proc::is_alive(scene.ranks[*rank])));
        for rank in [0, 2, 3] {
            kill(scene.ranks[rank]);
        }
        assert_eq!(scene.tool.event("exited")["code"], 137);
        scene.tool.assert_alone(&scene.world);
    });
}
