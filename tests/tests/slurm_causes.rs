//! For every cause of an app's end under a real Slurm, the tool must get Slurm's message. An app must have Slurm's
//! name.

use std::process::Stdio;

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, World, becomes_true};
use serde_json::Value;

/// Two ranks on two nodes, which do not end by themselves.
const RANKS: [&str; 5] = ["--", "-N2", "-n2", "/bin/sleep", "1000"];

/// The timeout for Slurm to notice an end. It polls every few seconds.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

#[track_caller]
fn launch(cluster: &Cluster) -> (Run, String) {
    let mut run = cluster.launch(&RANKS);
    run.next_event("started", SOON);
    (run, job_of(cluster))
}

/// The only running job.
#[track_caller]
fn job_of(cluster: &Cluster) -> String {
    let jobs = cluster.said("squeue", ["--me", "--noheader", "--format=%A"]);
    jobs.lines().next().expect("a job").trim().to_owned()
}

/// Runs `scontrol` as root on the login node. It must succeed.
#[track_caller]
fn as_root(cluster: &Cluster, args: &[&str]) {
    let mut command = cluster.bed.login().root_command("scontrol").expect("the login node");
    let output = command.args(args).stdin(Stdio::null()).output().expect("scontrol");
    assert!(output.status.success(), "{output:?}");
}

/// The tool must report the cause with this message, and the app's end.
#[track_caller]
fn check_end(mut run: Run, cause: &str, words: &str) {
    let ended: Value = run.next_event("ended_by", LONG);
    assert_eq!(ended["cause"], cause, "{ended}");
    // The first of Slurm's programs to report may use small letters or capitals.
    let message = ended["message"].as_str().unwrap_or_default().to_lowercase();
    assert!(message.contains(&words.to_lowercase()), "{ended}");
    let done = run.wait(LONG);
    let exited = done.events().into_iter().find(|event| event["event"] == "exited").expect("an end");
    assert_eq!(exited["cause"]["kind"], cause, "{exited}");
    assert_ne!(done.code(), 0, "{done:?}");
}

#[test]
fn a_cancelled_step_says_so() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let (run, job) = launch(cluster);
        cluster.said("scancel", [&format!("{job}.0")]);
        check_end(run, "cancelled", &format!("STEP {job}.0 ON n001 CANCELLED AT"));
    });
}

#[test]
fn a_time_limit_says_so() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let (run, job) = launch(cluster);
        // Time limits are whole minutes, but the end time of a job can be set to the second.
        as_root(cluster, &["update", &format!("jobid={job}"), "EndTime=now+2"]);
        check_end(run, "time_limit", "DUE TO TIME LIMIT");
    });
}

#[test]
fn a_node_that_fails_says_so() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let (run, _) = launch(cluster);
        as_root(cluster, &["update", "nodename=n002", "state=down", "reason=test"]);
        check_end(run, "node_failed", "ode");
        // Slurm takes a node back by itself when the node answers.
        cluster.bed.wait_idle(LONG).expect("idle");
    });
}

/// Attaches to the ranks of the user's srun.
#[track_caller]
fn attached(cluster: &Cluster) -> (Run, Run, String) {
    let srun = cluster.run("srun", &RANKS[1..], &[]);
    assert!(becomes_true(SOON, || cluster.find("sleep 1000").len() == 2));
    let job = job_of(cluster);
    let mut tool = cluster.gantry(["--json", "attach", &job]);
    tool.next_event("attached", SOON);
    (srun, tool, job)
}

#[test]
fn a_tool_attached_to_a_job_learns_why_it_has_ended() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let (mut srun, mut tool, job) = attached(cluster);
        cluster.said("scancel", [&job]);
        let ended = tool.next_event("ended_by", LONG);
        assert_eq!(ended["cause"], "cancelled", "{ended}");
        assert!(ended["message"].as_str().is_some_and(|it| it.contains("CANCELLED")), "{ended}");
        tool.exited(LONG);
        srun.exited(SOON);
        let (mut srun, mut tool, job) = attached(cluster);
        as_root(cluster, &["update", &format!("jobid={job}"), "EndTime=now+2"]);
        let ended = tool.next_event("ended_by", LONG);
        assert_eq!(ended["cause"], "time_limit", "{ended}");
        tool.exited(LONG);
        srun.exited(SOON);
        cluster.bed.wait_idle(LONG).expect("idle");
    });
}

/// The entry of `gantry ps` for the only app.
#[track_caller]
fn listed(cluster: &Cluster) -> Value {
    let done = cluster.ask(&["ps", "--json"]);
    let apps: Value = serde_json::from_str(&done.stdout.concat()).expect("JSON");
    apps[0].clone()
}

#[test]
fn an_app_has_the_name_that_slurm_has_for_it() {
    on_cluster(Config::with_nodes(2), |cluster| {
        for method in ["--hold-method=exec", "--hold-method=mpir"] {
            let args: Vec<&str> = [method].into_iter().chain(RANKS).collect();
            let (mut run, app) = cluster.held(&args);
            let job = job_of(cluster);
            assert_eq!(listed(cluster)["job"], format!("{job}.0"), "{method}");
            cluster.ask(&["kill", &app]);
            run.exited(SOON);
            cluster.bed.wait_idle(LONG).expect("idle");
        }
        let (mut srun, tool, job) = attached(cluster);
        assert_eq!(listed(cluster)["job"], format!("{job}.0"));
        drop(tool);
        cluster.said("scancel", [&job]);
        srun.exited(SOON);
        cluster.bed.wait_idle(LONG).expect("idle");
    });
}

#[test]
fn an_app_of_this_machine_has_no_job() {
    gantry_tests::within(LONG, || {
        let world = World::new();
        let mut run = world.gantry(["launch", "--json", "--wlm", "localhost", "--hold", "--", "/bin/true"]);
        let held = run.next_event("held", SOON);
        let done = world.gantry(["ps", "--json"]).wait(SOON);
        let apps: Value = serde_json::from_str(&done.stdout.concat()).expect("JSON");
        assert!(apps[0].get("job").is_none() && apps[0]["app"] == held["app"], "{apps}");
        let app = held["app"].as_str().expect("an id").to_owned();
        assert_eq!(world.gantry(["release", &app]).wait(SOON).code(), 0);
        run.exited(SOON);
        drop(run);
        world.finish();
    });
}
