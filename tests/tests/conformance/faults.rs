//! Who dies with whom, under every workload manager: a tool, a guard or an agent is killed in each state of an app, and nothing is left on any node.

use std::time::Duration;

use gantry_tests::fault::{Tool, guards};
use gantry_tests::states::{STATES, State};
use gantry_tests::{SOON, Site, on_every_wlm, on_every_wlm_but, proc, programs};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(180);

/// A tool of its own with an app of two nodes in that state, and the app's ranks.
fn in_state(site: &Site, state: State) -> (Tool, Vec<i32>) {
    let program = programs::get("loop_forever").display().to_string();
    let mut tool = site.tool();
    let held = tool.ask(&format!("hold {}", site.spread(2, 4, &[&program]).join(" ")));
    let mut all = site.seen(&held);
    assert_eq!(all.len(), 4);
    all.iter().for_each(|pid| assert_eq!(proc::why_not_held(*pid), None));
    match state {
        State::Held => {}
        State::Running => drop(tool.ask("release")),
        State::DaemonRunning => {
            tool.ask("session");
            all.extend(site.seen(&tool.ask(&format!("daemon {program}"))));
            assert_eq!(all.len(), 6);
        }
    }
    (tool, all)
}

/// Waits until all of them and all their children are gone, on every node.
#[track_caller]
fn assert_gone(site: &Site, all: Vec<i32>, state: State) {
    for pid in all {
        assert!(proc::becomes_true(2 * SOON, || !proc::is_alive(pid)), "{state:?}: {pid} is left");
    }
    site.sweep_sockets();
    let gone = proc::becomes_true(2 * SOON, || site.world.processes().is_empty());
    let left = || site.world.processes().into_iter().map(proc::command_line).collect::<Vec<_>>();
    assert!(gone, "{state:?}: {:#?}", left());
}

#[test]
fn a_killed_tool_leaves_nothing_on_any_node() {
    on_every_wlm(LIMIT, async |site| {
        for state in STATES {
            let (mut tool, all) = in_state(site, state);
            tool.run.kill();
            tool.run.exited(SOON);
            assert_gone(site, all, state);
        }
    });
}

#[test]
fn a_killed_guard_leaves_nothing_on_any_node() {
    // A job of the played cluster is a guard's child too, and nothing tells the two guards apart.
    on_every_wlm_but("fake", LIMIT, async |site| {
        for state in STATES {
            let (mut tool, all) = in_state(site, state);
            let guards = guards(&site.world);
            assert_eq!(guards.len(), 1, "{guards:?}");
            proc::send(guards[0], Signal::SIGKILL);
            tool.event("exited");
            tool.run.close_stdin();
            tool.run.exited(SOON);
            assert_gone(site, all, state);
        }
    });
}

#[test]
fn an_agent_that_is_killed_while_ranks_are_held_is_told_and_nothing_is_left() {
    on_every_wlm(LIMIT, async |site| {
        let (mut tool, all) = in_state(site, State::Held);
        let agents = site.agents(&all);
        assert_eq!(agents.len(), 2, "{agents:?}");
        proc::send(agents[0], Signal::SIGKILL);
        let lost = tool.event("nodes_lost");
        assert_eq!(lost["hosts"].as_array().map(Vec::len), Some(1), "{lost}");
        tool.run.close_stdin();
        tool.run.exited(SOON);
        assert_gone(site, all, State::Held);
    });
}

#[test]
fn a_job_that_is_cancelled_ends_its_app_and_leaves_nothing_on_any_node() {
    on_every_wlm(LIMIT, async |site| {
        for state in STATES {
            let (mut tool, all) = in_state(site, state);
            if !site.cancel_job_of(all[0]) {
                tool.ask("close");
                return;
            }
            tool.event("exited");
            tool.run.close_stdin();
            tool.run.exited(SOON);
            assert_gone(site, all, state);
        }
    });
}
