//! Which processes end together in apps from which the tool has detached.

use std::path::PathBuf;
use std::time::Duration;

use gantry_tests::fault::{Tool, agents, guards, numbers};
use gantry_tests::{SOON, World, proc, programs, within};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);

/// An app of four ranks with a daemon, from which the tool has detached.
struct Scene {
    tool: Tool,
    ranks: Vec<i32>,
    daemon: i32,
    root: PathBuf,
    world: World,
}

impl Scene {
    fn new(launch: &str) -> Self {
        let world = World::new();
        let mut tool = Tool::start(&world);
        let program = programs::get("loop_forever").display().to_string();
        let ranks = numbers(&tool.ask(&format!("{launch} -n 4 {program}"))["pids"]);
        let root = PathBuf::from(tool.ask("session")["root"].as_str().expect("a folder"));
        let daemon = numbers(&tool.ask(&format!("daemon {program}"))["pids"])[0];
        tool.ask("detach");
        tool.event("detached");
        Self { tool, ranks, daemon, root, world }
    }

    /// Ranks, daemon and storage still exist.
    #[track_caller]
    fn assert_goes_on(&self) {
        assert!(self.ranks.iter().all(|pid| proc::is_alive(*pid)), "a rank has ended");
        assert!(proc::is_alive(self.daemon), "the daemon has ended");
        assert!(self.root.join("tmp").is_dir(), "the session is gone");
    }

    fn kill_ranks(&self) {
        proc::send_those_left(self.ranks.iter().copied(), Signal::SIGKILL);
    }

    fn kill_tool(&mut self) {
        self.tool.run.kill();
        self.tool.run.exited(SOON);
    }

    /// Gives effects of the kill time to happen: another tool runs another app from start to end.
    fn let_things_happen(&self) {
        let mut other = Tool::start(&self.world);
        other.ask("launch -n 2 /bin/true");
        other.event("exited");
        other.ask("close");
    }
}

fn only(pids: &[i32]) -> i32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

#[test]
fn tool_killed_after_it_let_go_changes_nothing_and_all_goes_with_the_last_rank() {
    within(LIMIT, || {
        let mut scene = Scene::new("launch");
        scene.kill_tool();
        scene.let_things_happen();
        scene.assert_goes_on();
        for pid in &scene.ranks[..3] {
            proc::send(*pid, Signal::SIGKILL);
            proc::wait_gone(*pid, SOON);
        }
        assert!(proc::is_alive(scene.ranks[3]) && proc::is_alive(scene.daemon) && scene.root.is_dir());
        proc::send(scene.ranks[3], Signal::SIGKILL);
        scene.world.assert_nothing_left();
    });
}

#[test]
fn tool_killed_after_it_let_go_of_a_held_app_leaves_it_held() {
    within(LIMIT, || {
        let mut scene = Scene::new("hold");
        scene.kill_tool();
        scene.let_things_happen();
        scene.assert_goes_on();
        for pid in &scene.ranks {
            assert_eq!(proc::why_not_held(*pid), None);
            proc::send(*pid, Signal::SIGCONT);
        }
        for pid in &scene.ranks {
            proc::eventually(SOON, "it runs", || proc::state(*pid) == Some('S'));
        }
        scene.kill_ranks();
        scene.world.assert_nothing_left();
    });
}

#[test]
fn tool_that_lives_on_after_it_let_go_has_no_part_in_the_end() {
    within(LIMIT, || {
        let mut scene = Scene::new("launch");
        scene.kill_ranks();
        proc::wait_gone(scene.daemon, SOON);
        proc::eventually(SOON, "only the tool is left", || scene.world.processes() == [scene.tool.run.pid()]);
        proc::eventually(SOON, "the session is removed", || !scene.root.exists());
        scene.tool.ask("launch /bin/true");
    });
}

#[test]
fn guard_killed_after_the_tool_let_go_changes_nothing_and_all_goes_with_the_ranks() {
    within(LIMIT, || {
        let mut scene = Scene::new("launch");
        scene.kill_tool();
        proc::send(only(&guards(&scene.world)), Signal::SIGKILL);
        scene.let_things_happen();
        scene.assert_goes_on();
        scene.kill_ranks();
        scene.world.assert_nothing_left();
    });
}

#[test]
fn agent_killed_after_the_tool_let_go_takes_its_ranks_and_daemons_along() {
    within(LIMIT, || {
        for with_tool in [true, false] {
            let mut scene = Scene::new("launch");
            if !with_tool {
                scene.kill_tool();
            }
            proc::send(only(&agents(&scene.world)), Signal::SIGKILL);
            for pid in scene.ranks.iter().chain([&scene.daemon]) {
                proc::wait_gone(*pid, SOON);
            }
            // Only the guard is left to remove the storage.
            proc::eventually(SOON, "the session is removed", || !scene.root.exists());
            drop(scene.tool);
            scene.world.finish();
        }
    });
}

#[test]
fn daemon_killed_after_the_tool_let_go_is_nobodys_business() {
    within(LIMIT, || {
        let mut scene = Scene::new("launch");
        scene.kill_tool();
        proc::send(scene.daemon, Signal::SIGKILL);
        proc::wait_gone(scene.daemon, SOON);
        scene.let_things_happen();
        assert!(scene.ranks.iter().all(|pid| proc::is_alive(*pid)) && scene.root.is_dir());
        scene.kill_ranks();
        scene.world.assert_nothing_left();
    });
}

#[test]
fn a_detached_app_without_a_reader_is_not_stopped_by_its_output() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = Tool::start(&world);
        let program = programs::get("flood").display().to_string();
        // More output than any buffer holds. The rank ends by itself when it can write all of it.
        let pid = numbers(&tool.ask(&format!("hold {program} 50000000"))["pids"])[0];
        tool.ask("detach");
        tool.run.kill();
        tool.run.exited(SOON);
        proc::send(pid, Signal::SIGCONT);
        world.finish();
    });
}
