//! An instance of Flux with several brokers on one host, as `flux start --test-size` makes it: a launch has all its ranks
//! there, with one agent and one daemon, and so has a job that gantry attaches to.

use std::fs;

use gantry_tests::fault::Tool;
use gantry_tests::flux::on_flux;
use gantry_tests::slurm::Cluster;
use gantry_tests::testbed::Process;
use gantry_tests::testbed::config::LOGIN;
use gantry_tests::{SOON, becomes_true, binaries, eventually, proc};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Starts an instance of four brokers on the login node, with a shell that runs these lines and then becomes the scriptable tool.
fn tool_in_instance(cluster: &Cluster, lines: &str) -> Tool {
    let tool = binaries().dir.join("fault_tool").display().to_string();
    let script = format!("cd / && {lines} exec {tool}");
    Tool::of(cluster.run("flux", ["start", "--test-size=4", "sh", "-c", &script], &[]))
}

fn on_login(cluster: &Cluster, line: &str) -> Vec<Process> {
    let mut found = cluster.bed.login().user_processes();
    found.retain(|process| process.line == line);
    found
}

#[track_caller]
fn assert_places(answer: &Value, ranks: usize) {
    let hosts = answer["hosts"].as_array().expect("hosts");
    assert!(hosts.len() == ranks && hosts.iter().all(|host| host == LOGIN), "{answer}");
}

fn end(mut tool: Tool) {
    tool.run.close_stdin();
    tool.run.exited(2 * SOON);
}

#[test]
fn a_launch_over_all_brokers_is_held_served_and_released_on_their_host() {
    on_flux(1, |cluster| {
        let mut tool = tool_in_instance(cluster, "");
        tool.ask("launch -N4 -n4 /bin/sh -c true");
        assert_eq!(tool.event("exited")["code"], 0);
        for (options, ranks) in [("-N4 -n8", 8), ("-n3", 3), ("-N1 -n1", 1)] {
            assert_places(&tool.ask(&format!("hold {options} /bin/sleep 1004")), ranks);
            let held = on_login(cluster, "/bin/sleep 1004");
            assert_eq!(held.len(), ranks, "{held:?}");
            assert!(held.iter().all(|it| proc::why_not_held(it.pid).is_none()), "{held:?}");
            tool.ask("session");
            assert_places(&tool.ask("daemon /bin/sleep 1005"), 1);
            tool.ask("release");
            tool.ask("close");
            eventually(SOON, "all is gone", || {
                on_login(cluster, "/bin/sleep 1004").is_empty()
                    && on_login(cluster, "/bin/sleep 1005").is_empty()
            });
        }
        end(tool);
    });
}

#[test]
fn a_job_over_all_brokers_is_attached_to_and_gets_one_daemon() {
    on_flux(1, |cluster| {
        let named = cluster.world.work_dir().join("job");
        let submit = format!("flux submit -N4 -n8 /bin/sleep 1006 >{};", named.display());
        let mut tool = tool_in_instance(cluster, &submit);
        assert!(becomes_true(2 * SOON, || on_login(cluster, "/bin/sleep 1006").len() == 8));
        let job = fs::read_to_string(&named).expect("a job");
        assert_places(&tool.ask(&format!("attach {}", job.trim())), 8);
        tool.ask("session");
        assert_places(&tool.ask("daemon /bin/sleep 1007"), 1);
        tool.ask("close");
        assert_eq!(on_login(cluster, "/bin/sleep 1007").len(), 0);
        assert_eq!(on_login(cluster, "/bin/sleep 1006").len(), 8, "left as found");
        on_login(cluster, "/bin/sleep 1006").iter().for_each(|it| proc::send(it.pid, Signal::SIGTERM));
        end(tool);
    });
}
