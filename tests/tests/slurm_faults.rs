//! Who dies with whom under a real Slurm: each process of an app is killed, and nothing is left on any node, nor a
//! job.

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::states::{SILENCE, STATES, State, act_in};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, eventually, proc};
use nix::sys::signal::Signal;

/// Two tasks on each of two nodes.
const RANKS: [&str; 3] = ["-N2", "-n4", "--ntasks-per-node=2"];
const LINE: &str = "/bin/sleep 1000";

/// An app of four ranks in that state; at its end the leak check.
fn in_state(state: State, act: impl Fn(&Cluster, &mut Run) + Send + 'static) {
    on_cluster(Config::with_nodes(2), move |cluster| act_in(cluster, state, &RANKS, &act));
}

/// In each state, one after the other.
fn in_each(act: impl Fn(&Cluster, &mut Run) + Send + 'static) {
    on_cluster(Config::with_nodes(2), move |cluster| {
        STATES.iter().for_each(|state| act_in(cluster, *state, &RANKS, &act));
    });
}

fn kill(pid: i32) {
    proc::send(pid, Signal::SIGKILL);
}

/// The first process of the login node with this text in its command line.
#[track_caller]
fn on_login(cluster: &Cluster, part: &str) -> i32 {
    let processes = cluster.bed.login().user_processes();
    let found = processes.iter().find(|process| process.line.contains(part));
    found.unwrap_or_else(|| panic!("no '{part}' in {processes:?}")).pid
}

#[test]
fn a_killed_srun_leaves_nothing_on_any_node() {
    in_each(|cluster, _| kill(on_login(cluster, "/srun -N2")));
}

#[test]
fn ranks_that_run_go_on_without_a_killed_agent() {
    in_state(State::Running, |cluster, run| {
        kill(cluster.find("gantry-agent enter")[0].1.pid);
        run.next_event("nodes_lost", SOON);
        assert_eq!(cluster.find(LINE).len(), 4);
        cluster.said("scancel", ["--me"]);
    });
}

#[test]
fn a_cancelled_job_leaves_nothing_on_any_node() {
    in_each(|cluster, _| {
        let jobs = cluster.said("squeue", ["--noheader", "--format=%A"]);
        cluster.said("scancel", [jobs.trim()]);
    });
}

#[test]
fn a_tool_killed_while_its_job_waits_leaves_no_job() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let run = cluster.launch(&["--", "--begin=now+1hour", "-n1", "/bin/true"]);
        eventually(SOON, "the job waits", || {
            cluster.said("squeue", ["--noheader", "--format=%T"]).contains("PENDING")
        });
        kill(program(run.pid()).expect("the tool"));
        drop(run);
        eventually(SOON, "the job is gone", || cluster.said("squeue", ["--noheader"]).is_empty());
    });
}

/// A held app and one that runs lose the second node at the same moment, as it takes 40 s of silence to notice that: the held one ends, the other goes on where
/// it can, and is cancelled.
fn without_second_node(lose: impl Fn(&Cluster) + Send + 'static, back: impl Fn(&Cluster) + Send + 'static) {
    const RUNNING: &str = "/bin/sleep 1001";
    in_state(State::Held, move |cluster, held| {
        let args = [&["--"][..], &RANKS, &["/bin/sleep", "1001"]].concat();
        let (mut running, app) = cluster.held(&args);
        cluster.ask(&["release", &app]);
        lose(cluster);
        held.exited(SILENCE);
        let lost = running.next_event("nodes_lost", SILENCE).to_string();
        assert!(lost.contains("n002") && !lost.contains("n001"), "{lost}");
        let first = cluster.bed.node(1).user_processes();
        assert_eq!(first.iter().filter(|it| it.line == RUNNING).count(), 2, "{first:?}");
        back(cluster);
        cluster.said("scancel", ["--me"]);
        running.exited(SILENCE);
    });
}

#[test]
fn a_node_without_power_takes_held_ranks_with_it_and_others_go_on() {
    let off = |cluster: &Cluster| cluster.bed.node(2).power_off().expect("off");
    without_second_node(off, |cluster| cluster.bed.node(2).power_on().expect("on"));
}

#[test]
fn a_node_whose_link_is_cut_loses_its_ranks_by_itself_and_others_go_on() {
    let cut = |cluster: &Cluster| cluster.bed.node(2).cut_link().expect("cut");
    without_second_node(cut, |cluster| {
        let alone = || {
            let left = cluster.bed.node(2).user_processes();
            !left.iter().any(|it| it.line.starts_with("/bin/sleep 100"))
        };
        eventually(SILENCE, "the ranks of the node that was cut off end", alone);
        cluster.bed.node(2).mend_link().expect("mended");
    });
}

/// Kills the slurmd of a node, has the app ended, and sees that nothing of it is left anywhere while the slurmd is still away.
fn without_slurmd(state: State, line: &'static str, end: impl Fn(&Cluster, &str, &mut Run) + Send + 'static) {
    on_cluster(Config::with_nodes(2), move |cluster| {
        let mut args = vec!["--daemon", "/bin/sleep 999", "--", "-N2", "-n4", "--ntasks-per-node=2"];
        args.extend(line.split(' '));
        let (mut run, app) = cluster.held(&args);
        run.next_event("daemon_started", SOON);
        run.next_event("daemon_started", SOON);
        if state == State::Running {
            cluster.ask(&["release", &app]);
        }
        let node = cluster.bed.node(2);
        node.kill_daemon("slurmd").expect("killed");
        if state == State::Held {
            cluster.assert_held(line, 4);
        }
        end(cluster, &app, &mut run);
        drop(run);
        eventually(SILENCE, "nothing of the app is left", || cluster.bed.leftovers().is_empty());
        node.start_slurmd().expect("started");
        cluster.bed.wait_idle(SILENCE).expect("idle");
    });
}

#[test]
fn ranks_held_on_a_node_without_its_slurmd_are_let_go_and_end_well() {
    without_slurmd(State::Held, "/bin/sleep 0", |cluster, app, run| {
        cluster.ask(&["release", app]);
        assert_eq!(run.wait(SILENCE).code(), 0);
    });
}

#[test]
fn ranks_on_a_node_without_its_slurmd_are_ended_by_their_agent() {
    without_slurmd(State::Running, LINE, |cluster, app, run| {
        cluster.ask(&["kill", app]);
        assert_eq!(run.wait(SILENCE).code(), 137);
    });
}

#[test]
fn a_tool_killed_while_a_node_has_no_slurmd_leaves_nothing_on_it() {
    without_slurmd(State::Held, LINE, |_, _, run| kill(program(run.pid()).expect("the tool")));
}

#[test]
fn a_killed_agent_takes_its_app_with_it() {
    in_state(State::Held, |cluster, _| {
        let agents = cluster.find("gantry-agent enter");
        assert_eq!(agents.len(), 2, "{agents:?}");
        kill(agents[0].1.pid);
    });
}
