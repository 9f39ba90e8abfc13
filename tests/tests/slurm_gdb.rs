//! `gantry gdb` on a real Slurm, from the login node: on ranks that srun holds, and on a running step.

use std::time::Duration;

use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::{self, Config};
use gantry_tests::{Finished, Run, becomes_true, proc, programs, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(120);

#[track_caller]
fn assert_said(done: &Finished, parts: &[&str]) {
    assert_eq!(done.code(), 0, "{done:?}");
    for part in parts {
        assert!(done.stdout.iter().any(|line| line.contains(part)), "no '{part}': {done:?}");
    }
}

/// Starts `rounds` by srun. Returns when all four ranks have printed, with the id of the job.
#[track_caller]
fn begin(cluster: &Cluster, args: &[&str]) -> (Run, String) {
    let mut srun = cluster.run("srun", args, &[]);
    let all_run = becomes_true(LONG, || srun.stdout().len() >= 4);
    assert!(all_run, "{:?} {:?}", srun.stdout().to_vec(), srun.stderr().to_vec());
    let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]);
    (srun, job.trim().to_owned())
}

#[test]
fn a_step_is_debugged_from_held_and_while_it_runs_and_then_goes_on() {
    require!(tool("srun"));
    require!(tool("gdb"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let program = programs::get("rounds").to_str().expect("a path").to_owned();
        let words = ["gdb", "--batch", "-ex", "tbreak solve", "-ex", "continue", "-ex", "print rank"];
        let launch = ["-ex", "compare 0 1-3 limit", "--", "-N2", "-n4", &program, "100"];
        let done = cluster.gantry([&words[..], &launch].concat()).wait(LONG);
        assert_said(&done, &["solve (n=[10;11]) at ", "[0-3] $1 = [0;3]", "[0] 10 | [2] 11"]);
        let (mut srun, job) = begin(cluster, &["-N2", "-n4", &program, "200"]);
        let done = cluster.gantry([&words[..], &[&job]].concat()).wait(LONG);
        assert_said(&done, &["solve (n=[10;11]) at ", "[0-3] $1 = [0;3]"]);
        let before = srun.stdout().len();
        assert!(
            becomes_true(LONG, || srun.stdout().len() >= before + 8),
            "they go on: {:?}",
            srun.stdout().to_vec()
        );
        cluster.said("scancel", [job.as_str()]);
        srun.exited(LONG);
    });
}

#[test]
fn ranks_on_eight_nodes_stop_in_main_from_held_and_answer_in_a_few_lines_and_the_odd_one_is_found() {
    require!(tool("srun"));
    require!(tool("gdb"));
    on_cluster(Config::with_nodes(8), |cluster| {
        let program = programs::get("rounds").to_str().expect("a path").to_owned();
        let stops = ["-ex", "break main", "-ex", "continue", "-ex", "bt", "-ex", "break solve"];
        let looks = ["-ex", "continue", "-ex", "bt", "-ex", "compare 0 1-63 limit"];
        let launch = ["--", "--overcommit", "-N8", "-n64", &program, "600"];
        let words = [&["--json", "gdb", "--batch", "--timeout", "300"], &stops[..], &looks, &launch].concat();
        let done = cluster.gantry(words).wait(2 * LONG);
        assert_eq!(done.code(), 0, "{done:?}");
        let answers = done.events();
        let of = |command: &str| answers.iter().filter(|it| it["command"] == command).collect::<Vec<_>>();
        let places = ["main (argc=2", "solve (n=[10;11])"];
        assert_eq!((of("bt").len(), of("continue").len()), (2, 2), "{answers:?}");
        for (bt, place) in of("bt").iter().zip(places) {
            let (class, text) = (&bt["classes"][0], bt["classes"][0]["text"].as_str().expect("a text"));
            assert_eq!((bt["classes"].as_array().map(Vec::len), &class["ranks"]), (Some(1), &"0-63".into()));
            assert!(text.contains(place) && text.lines().count() <= 2, "{bt}");
        }
        let compared = of("compare 0 1-63 limit")[0].to_string();
        assert!(compared.contains("11") && compared.contains("\"2\""), "{compared}");
    });
}

/// How long it may take until the end of a node without a word is noticed.
const SILENCE: Duration = Duration::from_secs(90);

#[test]
fn a_node_that_is_lost_in_the_middle_of_a_step_is_named_and_the_other_ranks_go_on() {
    require!(tool("srun"));
    require!(tool("gdb"));
    on_cluster(Config::with_nodes(2), |cluster| {
        let program = programs::get("rounds").to_str().expect("a path").to_owned();
        let (mut srun, job) = begin(cluster, &["--no-kill", "-N2", "-n4", &program, "600"]);
        let mut gdb = cluster.gantry(["--json", "gdb", "--patience", "600", &job]);
        for command in ["tbreak solve", "continue"] {
            gdb.write(format!("{command}\n").as_bytes());
            let answer: Value = serde_json::from_str(&gdb.next_line(LONG)).expect("JSON");
            assert_eq!(answer["running"], "", "{answer}");
        }
        // A million lines of source: no rank comes to the end of that.
        gdb.write(b"next 1000000\n");
        let ranks = cluster.find(&format!("{program} 600"));
        let in_step = || ranks.iter().any(|(_, rank)| proc::state(rank.pid) == Some('S'));
        assert!(becomes_true(LONG, in_step), "{ranks:?}");
        cluster.bed.node(2).power_off().expect("off");
        let lost = gdb.next_line(SILENCE);
        assert!(
            lost.contains("no answer from n002: its node was lost") || lost.contains("its node n002 is lost"),
            "{lost}"
        );
        proc::send(testbed::program(gdb.pid()).expect("the tool"), Signal::SIGINT);
        let answer: Value = serde_json::from_str(&gdb.next_line(LONG)).expect("JSON");
        let text = answer.to_string();
        assert_eq!(answer["running"], "", "{text}");
        assert!(text.contains("its node n002 is lost") && text.contains("Program received signal"), "{text}");
        gdb.write(b"ranks\nquit\n");
        let ranks = gdb.next_line(LONG);
        assert!(ranks.contains("ended: its node n002 is lost") && ranks.contains("stopped: "), "{ranks}");
        gdb.exited(LONG);
        let before = srun.stdout().len();
        assert!(becomes_true(LONG, || srun.stdout().len() >= before + 4), "{:?}", srun.stdout().to_vec());
        cluster.bed.node(2).power_on().expect("on");
        cluster.said("scancel", [job.as_str()]);
        srun.exited(LONG);
    });
}
