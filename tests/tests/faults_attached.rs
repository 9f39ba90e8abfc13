//! Which processes end together in attached apps. Whatever dies, the ranks are left as they were found.

use std::path::PathBuf;
use std::time::Duration;

use gantry_tests::fault::{Tool, agents, guards, numbers};
use gantry_tests::{Run, SOON, World, eventually, proc, programs, within};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);

/// Two processes that existed before, attached to, with a daemon.
struct Scene {
    tool: Tool,
    found: Vec<Run>,
    daemon: i32,
    root: PathBuf,
    world: World,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        let found: Vec<Run> = (0..2)
            .map(|_| {
                let mut run = world.start(&programs::get("loop_forever"), [""; 0]);
                assert_eq!(run.next_line(SOON), "looping");
                run
            })
            .collect();
        let mut tool = Tool::start(&world);
        let attached = tool.ask(&format!("attach {},{}", found[0].pid(), found[1].pid()));
        assert_eq!(numbers(&attached["pids"]), [found[0].pid(), found[1].pid()]);
        let root = PathBuf::from(tool.ask("session")["root"].as_str().expect("a folder"));
        let daemon =
            numbers(&tool.ask(&format!("daemon {}", programs::get("loop_forever").display()))["pids"])[0];
        Self { tool, found, daemon, root, world }
    }

    /// All our processes are gone. The found processes are unchanged.
    #[track_caller]
    fn assert_left_as_found(&self) {
        proc::wait_gone(self.daemon, SOON);
        proc::eventually(SOON, "the session is removed", || !self.root.exists());
        proc::eventually(SOON, "guard and agent have gone", || {
            guards(&self.world).is_empty() && agents(&self.world).is_empty()
        });
        proc::eventually(SOON, "the control socket is removed", || self.world.files_left().is_empty());
        for run in &self.found {
            assert_eq!(proc::state(run.pid()), Some('S'), "{}", run.pid());
            assert_eq!(proc::tracer(run.pid()), None);
        }
    }
}

fn only(pids: &[i32]) -> i32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

#[test]
fn tool_killed_while_attached_leaves_the_ranks_as_they_were() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        scene.tool.run.kill();
        scene.tool.run.exited(SOON);
        scene.assert_left_as_found();
    });
}

#[test]
fn tool_that_returns_without_a_word_leaves_the_ranks_as_they_were() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        scene.tool.run.close_stdin();
        scene.tool.run.exited(SOON);
        scene.assert_left_as_found();
    });
}

#[test]
fn guard_killed_while_attached_leaves_the_ranks_as_they_were() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        proc::send(only(&guards(&scene.world)), Signal::SIGKILL);
        assert_eq!(scene.tool.event("error")["kind"], "lost");
        scene.assert_left_as_found();
    });
}

#[test]
fn agent_killed_while_attached_leaves_the_ranks_as_they_were() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        proc::send(only(&agents(&scene.world)), Signal::SIGKILL);
        scene.tool.event("nodes_lost");
        scene.assert_left_as_found();
        // The ranks can be attached to again.
        scene.tool.ask(&format!("attach {},{}", scene.found[0].pid(), scene.found[1].pid()));
    });
}

#[test]
fn agent_that_is_asked_to_go_leaves_the_ranks_as_they_were_and_the_tool_hears_of_it() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        proc::send(only(&agents(&scene.world)), Signal::SIGTERM);
        scene.tool.event("nodes_lost");
        scene.assert_left_as_found();
    });
}

#[test]
fn tool_guard_and_agent_killed_together_leave_the_ranks_as_they_were() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        let (guard, agent) = (only(&guards(&scene.world)), only(&agents(&scene.world)));
        proc::send(guard, Signal::SIGSTOP);
        proc::send(agent, Signal::SIGKILL);
        proc::send(guard, Signal::SIGKILL);
        scene.tool.run.kill();
        scene.tool.run.exited(SOON);
        proc::wait_gone(scene.daemon, SOON);
        // The user's next agent removes the storage, and the next command removes the socket. The command does not
        // wait for that.
        assert!(scene.world.gantry(["ps", "--json"]).wait(SOON).status.success());
        let mut next = Tool::start(&scene.world);
        next.ask(&format!("attach {}", scene.found[0].pid()));
        next.ask("session");
        eventually(SOON, "the storage is swept", || !scene.root.exists());
        next.ask("destroy");
        next.ask("close");
        scene.assert_left_as_found();
    });
}

#[test]
fn daemon_killed_while_attached_touches_no_rank() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        proc::send(scene.daemon, Signal::SIGKILL);
        assert_eq!(scene.tool.event("daemon_exited")["signal"], "SIGKILL");
        assert!(scene.root.is_dir());
        scene.tool.ask("close");
        scene.assert_left_as_found();
    });
}

#[test]
fn rank_killed_while_attached_is_told_and_the_other_goes_on() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        scene.found[1].kill();
        assert_eq!(scene.tool.event("rank_exited")["rank"], 1);
        assert!(proc::is_alive(scene.found[0].pid()) && proc::is_alive(scene.daemon));
        scene.found.pop();
        scene.tool.ask("close");
        scene.assert_left_as_found();
    });
}

#[test]
fn the_last_rank_killed_ends_the_app_with_its_daemons_and_sessions() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        scene.found.iter().for_each(Run::kill);
        scene.tool.event("exited");
        scene.found.clear();
        scene.assert_left_as_found();
    });
}

#[test]
fn tool_killed_after_it_detached_changes_nothing() {
    within(LIMIT, || {
        let mut scene = Scene::new();
        scene.tool.ask("detach");
        scene.tool.run.kill();
        scene.tool.run.exited(SOON);
        let mut other = Tool::start(&scene.world);
        other.ask("launch /bin/true");
        other.event("exited");
        other.ask("close");
        drop(other);
        assert!(proc::is_alive(scene.daemon) && scene.root.is_dir());
        scene.found.clear();
        scene.world.assert_nothing_left();
    });
}
