//! If a file system of a node hangs, only its users may wait for it.

use gantry_tests::slurm::{Cluster, lines_of, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Finished, Run, SOON, binaries, proc};

/// Ranks that print when they run and when they get a signal.
const RANK: &str = "trap 'echo got it' USR1; echo ready; while :; do sleep 0.1; done";

/// Mounts a file system that hangs at this path on the first node.
#[track_caller]
fn hang(cluster: &Cluster, path: &str) -> Run {
    let program = binaries().dir.join("hang_fs");
    let mut command = cluster.bed.node(1).root_command("sh").expect("the first node");
    command.args(["-c", "mkdir -p \"$1\" && exec \"$0\" \"$1\""]).arg(program).arg(path);
    let mut hang = cluster.world.spawn(command);
    assert_eq!(hang.next_line(SOON), "hangs");
    hang
}

/// Unmounts it, and makes the user's agent remove the leftovers on the first node.
#[track_caller]
fn unhang(cluster: &Cluster, mut hang: Run, path: &str) {
    hang.close_stdin();
    hang.exited(SOON);
    let mut remove = cluster.bed.node(1).root_command("rmdir").expect("the first node");
    assert!(remove.arg(path).status().expect("rmdir").success());
    // What waited for the file system goes on now. A sweep leaves alone what a living agent has.
    proc::eventually(SOON, "no agent is left", || {
        let nodes = cluster.bed.nodes();
        let mut processes = nodes.iter().flat_map(|node| node.user_processes());
        !processes.any(|process| process.line.contains("gantry-agent"))
    });
    let mut sweep = cluster.bed.node(1).command(&binaries().agent).expect("the first node");
    assert!(sweep.args(["sweep", "/tmp"]).status().expect("a sweep").success());
}

/// Launches two ranks on two hosts and waits until they run. Returns the run and the app's id.
#[track_caller]
fn launch(cluster: &Cluster, options: &[&str]) -> (Run, String) {
    let ranks = ["--wlm", "ssh", "--", "--hosts", "n[001-002]", "/bin/sh", "-c", RANK];
    let mut run = cluster.launch(&[options, &ranks].concat());
    let started = run.next_event("started", SOON);
    wait_for_text(&mut run, "ready");
    (run, started["app"].as_str().expect("an id").to_owned())
}

/// Waits until both ranks have written this text.
#[track_caller]
fn wait_for_text(run: &mut Run, text: &str) {
    let mut seen = 0;
    while seen < 2 {
        let output = run.next_event("output", SOON);
        seen += output["text"].as_str().map_or(0, |said| said.matches(text).count());
    }
}

/// Ranks must get signals and write output, and the app must end in time.
#[track_caller]
fn check_the_rest(cluster: &Cluster, mut run: Run, app: &str) -> Finished {
    cluster.ask(&["kill", app, "-s", "USR1"]);
    wait_for_text(&mut run, "got it");
    cluster.ask(&["kill", app]);
    run.wait(SOON)
}

/// An error must name the first node, which did not clean up in time.
#[track_caller]
fn assert_names_the_remains(done: &Finished) {
    let errors: Vec<_> = done.events().into_iter().filter(|event| event["event"] == "error").collect();
    let says = |error: &serde_json::Value| {
        let message = error["message"].as_str().unwrap_or_default();
        message.contains("n001") && message.contains("has not done it in time")
    };
    assert!(errors.iter().any(says), "{done:?}");
}

#[test]
fn a_file_that_hangs_on_a_node_delays_only_the_session_that_wants_it() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = cluster.world.work_dir().join("data");
        std::fs::create_dir(&folder).expect("a folder");
        let file = folder.join("settings");
        std::fs::write(&file, "a = b").expect("a file");
        let (run, app) = launch(cluster, &[]);
        let folder = folder.display().to_string();
        let mut hang = hang(cluster, &folder);
        let file = file.display().to_string();
        let mut stuck = cluster.gantry(["daemon", "--json", &app, "--file", &file, "--", "/bin/true"]);
        assert_eq!(hang.next_line(SOON), "asked");
        // Another complete session.
        let done = cluster.ask(&["daemon", "--json", &app, "--", "/bin/echo", "hello"]);
        assert_eq!(lines_of(&done), ["hello", "hello"]);
        let done = check_the_rest(cluster, run, &app);
        assert_names_the_remains(&done);
        stuck.exited(SOON);
        unhang(cluster, hang, &folder);
    });
}

#[test]
fn a_folder_for_logs_that_hangs_on_a_node_delays_only_its_session() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = "/var/tmp/hangs";
        let mut tool = cluster.tool(&[("FAULT_TOOL_WLM", "ssh")]);
        let app =
            tool.ask("launch --hosts n[001-002] /bin/sleep 1000")["app"].as_str().expect("an id").to_owned();
        tool.ask("session");
        let mut hang = hang(cluster, folder);
        tool.tell(&format!("log {folder} true"));
        assert_eq!(hang.next_line(SOON), "asked");
        let done = cluster.ask(&["daemon", "--json", &app, "--", "/bin/echo", "hello"]);
        assert_eq!(lines_of(&done), ["hello", "hello"]);
        cluster.ask(&["kill", &app]);
        let answer = tool.answer();
        assert!(answer["failed"].is_string(), "{answer}");
        tool.event("exited");
        unhang(cluster, hang, folder);
    });
}

#[test]
fn a_stage_directory_that_hangs_on_a_node_keeps_nothing_but_its_sessions() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = "/var/tmp/stage";
        let (run, app) = launch(cluster, &["--stage-dir", folder]);
        let mut hang = hang(cluster, folder);
        let mut stuck = cluster.gantry(["daemon", "--json", &app, "--", "/bin/true"]);
        assert_eq!(hang.next_line(SOON), "asked");
        let done = check_the_rest(cluster, run, &app);
        assert_names_the_remains(&done);
        stuck.exited(SOON);
        unhang(cluster, hang, folder);
    });
}
