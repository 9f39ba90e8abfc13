//! Who dies with whom under a real Flux, for apps that gantry has launched and for jobs that it has attached to: each
//! process is killed, the job is cancelled, a broker is lost. Nothing is left on any node, nor a job.

use std::time::Duration;

use gantry_tests::flux::{last_job, on_flux};
use gantry_tests::slurm::{Cluster, cause_of};
use gantry_tests::states::{STATES, State, act_in};
use gantry_tests::testbed::program;
use gantry_tests::{Run, SOON, becomes_true, proc};
use nix::sys::signal::Signal;

const RANKS: [&str; 2] = ["-N2", "-n4"];
const LINE: &str = "/bin/sleep 1000";

/// How long Flux may take to notice that a broker is gone, or that it is back.
const LONG: Duration = Duration::from_secs(60);

/// An app in each state, one after the other.
fn in_each(act: impl Fn(&Cluster, &mut Run) + Send + 'static) {
    on_flux(2, move |cluster| {
        STATES.iter().for_each(|state| act_in(cluster, *state, &RANKS, &act));
    });
}

fn kill(pid: i32) {
    proc::send(pid, Signal::SIGKILL);
}

/// The only process of the login node with this text in its command line.
#[track_caller]
fn on_login(cluster: &Cluster, part: &str) -> i32 {
    let mut processes = cluster.bed.login().user_processes();
    processes.retain(|process| process.line.contains(part));
    assert_eq!(processes.len(), 1, "'{part}': {processes:?}");
    processes[0].pid
}

#[track_caller]
fn cancel(cluster: &Cluster) {
    cluster.said("flux", ["cancel", &last_job(cluster)]);
}

/// Kills the broker of the second node.
#[track_caller]
fn kill_broker(cluster: &Cluster) {
    cluster.bed.node(2).kill_daemon("flux-broker-2").expect("a broker");
}

/// Has the second node start again, with a new broker.
#[track_caller]
fn start_again(cluster: &Cluster) {
    let node = cluster.bed.node(2);
    node.power_off().expect("off");
    node.power_on().expect("on");
    cluster.bed.wait_idle(LONG).expect("idle");
}

#[track_caller]
fn assert_none(cluster: &Cluster, line: &str) {
    let gone = becomes_true(LONG, || cluster.find(line).is_empty());
    assert!(gone, "{:?}", cluster.find(line));
}

#[test]
fn a_cancelled_job_is_told_and_leaves_nothing_on_any_node() {
    in_each(|cluster, run| {
        cancel(cluster);
        let told = run.next_event("ended_by", LONG);
        assert_eq!(told["cause"], "cancelled", "{told}");
    });
}

#[test]
fn a_killed_flux_run_takes_its_job_along() {
    in_each(|cluster, _| kill(on_login(cluster, "attach")));
}

#[test]
fn a_killed_agent_takes_held_ranks_with_it() {
    on_flux(2, |cluster| {
        act_in(cluster, State::Held, &RANKS, &|cluster, run| {
            let agents = cluster.find("gantry-agent enter");
            assert_eq!(agents.len(), 2, "{agents:?}");
            kill(agents[0].1.pid);
            run.next_event("nodes_lost", SOON);
        });
    });
}

#[test]
fn ranks_that_run_go_on_without_a_killed_agent() {
    on_flux(2, |cluster| {
        act_in(cluster, State::Running, &RANKS, &|cluster, run| {
            kill(cluster.find("gantry-agent enter")[0].1.pid);
            run.next_event("nodes_lost", SOON);
            assert_eq!(cluster.find(LINE).len(), 4);
            cancel(cluster);
        });
    });
}

#[test]
fn a_killed_broker_ends_the_app_and_what_its_node_had_of_it() {
    in_each(|cluster, run| {
        kill_broker(cluster);
        let told = run.next_event("ended_by", LONG);
        assert_eq!(told["cause"], "node_failed", "{told}");
        assert!(told["message"].to_string().contains("n002"), "{told}");
        for line in [LINE, "/bin/sleep 999", "gantry-agent enter"] {
            assert_none(cluster, line);
        }
        start_again(cluster);
    });
}

#[test]
fn a_killed_shell_of_a_node_ends_held_ranks_on_every_node() {
    on_flux(2, |cluster| {
        act_in(cluster, State::Held, &RANKS, &|cluster, _| {
            let processes = cluster.bed.node(2).user_processes();
            let shell = processes.iter().find(|process| process.line.contains("flux-shell"));
            kill(shell.unwrap_or_else(|| panic!("no shell: {processes:?}")).pid);
            for line in [LINE, "gantry-agent enter"] {
                assert_none(cluster, line);
            }
            // Flux leaves the folder of a shell that was killed.
            start_again(cluster);
        });
    });
}

/// A tool that has attached to that job, with a daemon on each node.
#[track_caller]
fn attach(cluster: &Cluster, job: &str) -> Run {
    let args = ["--json", "attach", "--wait", "--wlm", "flux", "--daemon", "/bin/sleep 999", job];
    let mut run = cluster.gantry(args);
    run.next_event("attached", 2 * SOON);
    run.next_event("daemon_started", SOON);
    run.next_event("daemon_started", SOON);
    run
}

/// An attached job is acted on; nothing of the tool may be left, and of the job neither when it has been cancelled.
fn while_attached(act: impl Fn(&Cluster, &mut Run) + Send + 'static) {
    on_flux(2, move |cluster| {
        let job = cluster.said("flux", ["submit", RANKS[0], RANKS[1], "/bin/sleep", "1000"]);
        let job = job.trim().to_owned();
        let mut run = attach(cluster, &job);
        act(cluster, &mut run);
        for line in ["/bin/sleep 999", "gantry-agent serve step"] {
            assert_none(cluster, line);
        }
        drop(run);
        cluster.said("flux", ["cancel", &job]);
        assert_none(cluster, LINE);
        cluster.ask(&["ps", "--json"]);
    });
}

#[test]
fn a_job_that_is_cancelled_while_a_tool_is_attached_ends_its_daemons_and_says_why() {
    while_attached(|cluster, run| {
        cancel(cluster);
        let done = run.wait(LONG);
        let cause = cause_of(&done);
        assert_eq!(cause["cause"], "cancelled", "{cause}");
    });
}

#[test]
fn a_broker_that_is_killed_while_a_tool_is_attached_ends_its_daemons_and_says_why() {
    while_attached(|cluster, run| {
        kill_broker(cluster);
        let done = run.wait(LONG);
        let cause = cause_of(&done);
        assert_eq!(cause["cause"], "node_failed", "{cause}");
        for line in ["/bin/sleep 999", "gantry-agent serve step"] {
            assert_none(cluster, line);
        }
        // Nobody ends ranks on a node without its broker: gantry has not started them.
        start_again(cluster);
    });
}

#[test]
fn an_agent_that_is_killed_while_attached_is_told_and_ranks_go_on() {
    while_attached(|cluster, run| {
        kill(cluster.find("gantry-agent serve step")[0].1.pid);
        run.next_event("nodes_lost", SOON);
        assert_eq!(cluster.find(LINE).len(), 4);
        kill(program(run.pid()).expect("the tool"));
        run.exited(SOON);
        assert_eq!(cluster.find(LINE).len(), 4);
    });
}

#[test]
fn a_tool_or_a_flux_exec_that_is_killed_while_attached_leaves_the_ranks_as_they_were() {
    while_attached(|cluster, run| {
        kill(on_login(cluster, "exec --quiet"));
        run.next_event("nodes_lost", SOON);
        kill(program(run.pid()).expect("the tool"));
        run.exited(SOON);
        let ranks = cluster.find(LINE);
        assert_eq!(ranks.len(), 4, "{ranks:?}");
        // Flux has killed the agents with their keepers: the next ones remove what they have left.
        let mut next = attach(cluster, &last_job(cluster));
        proc::send(program(next.pid()).expect("the tool"), Signal::SIGINT);
        next.exited(SOON);
        assert!(ranks.iter().all(|(_, rank)| proc::state(rank.pid) == Some('S')), "{ranks:?}");
    });
}
