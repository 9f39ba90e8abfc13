//! Launches by a script that starts `srun` as a child, on a real Slurm.

use gantry_tests::slurm::{Cluster, lines_of, on_cluster};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, becomes_true, proc};
use nix::sys::signal::Signal;

/// A launcher of these lines. The world's folder is on the login node, and no other host needs it.
fn script(cluster: &Cluster, lines: &str) -> String {
    let srun = cluster.bed.config().srun().display().to_string();
    let text = format!("#!/bin/sh\n{}\n", lines.replace("SRUN", &srun));
    cluster.world.executable("site-run", text.as_bytes()).display().to_string()
}

/// What a script of a site may do before and after its launch.
const LINES: &str = "version=$(srun --version | tail -n 1)\ntrue | env true &\nsrun \"$@\"\ncode=$?\nwait\n\
    srun --overlap -N1 -n1 /bin/echo \"another one after $code\"\nexit $((code + 1))";

/// The first process of the user on the login node whose command line begins so.
#[track_caller]
fn first(cluster: &Cluster, line: &str) -> i32 {
    let all = cluster.bed.login().user_processes();
    let found = all.iter().filter(|it| it.line.starts_with(line)).map(|it| it.pid).min();
    found.unwrap_or_else(|| panic!("no '{line}' in {all:?}"))
}

#[test]
fn ranks_of_a_scripts_child_are_held_and_its_exit_code_is_that_of_the_launch() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let rank = "echo ${SLURM_PROCID} of it; exit 4";
        let launch = ["-N2", "-n4", "/bin/sh", "-c", rank];
        for (lines, code) in [
            (LINES, 5),
            ("PATH=/usr/bin:/bin; SRUN \"$@\"; true", 0),
            ("(timeout 100 srun \"$@\") || exit 4", 4),
            ("srun --version; exec SRUN \"$@\"", 4),
        ] {
            let launcher = script(cluster, lines);
            let (mut run, app) = cluster.held(&[&["--launcher", &launcher, "--"][..], &launch].concat());
            cluster.assert_held(rank, 4);
            let name = if lines.contains("SRUN") {
                cluster.bed.config().srun().display().to_string()
            } else {
                "srun".to_owned()
            };
            assert_eq!(proc::tracer(first(cluster, &format!("{name} -N2"))), None, "{lines}");
            cluster.ask(&["release", &app]);
            let done = run.wait(SOON);
            assert_eq!(done.code(), code, "{lines}: {done:?}");
            let said = lines_of(&done);
            assert_eq!(said.iter().filter(|line| line.ends_with(" of it")).count(), 4, "{lines}: {said:?}");
            let is_second = lines == LINES;
            assert_eq!(said.iter().any(|line| line == "another one after 4"), is_second, "{said:?}");
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn the_launcher_below_a_script_stands_where_that_is_asked_for_and_parts_are_held_too() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let launcher = script(cluster, LINES);
        let with = ["--launcher", &launcher, "--hold-method"];
        let one = ["-n1", "/bin/sleep", "0.01"];
        for (method, args, ranks) in
            [("mpir-stop", &one[..], 1), ("mpir", &[&one[..], &[":"], &one].concat(), 2)]
        {
            let (mut run, app) = cluster.held(&[&with[..], &[method, "--"], args].concat());
            let found = cluster.find("/bin/sleep 0.01").len();
            assert_eq!(found, ranks, "{method}: {:?}", run.stderr());
            cluster.assert_held("/bin/sleep 0.01", ranks);
            cluster.ask(&["release", &app]);
            let done = run.wait(SOON);
            assert_eq!(done.code(), 1, "{method}: {done:?}");
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

fn kill(pid: i32) {
    proc::send(pid, Signal::SIGKILL);
}

/// A launch by a script, while its `srun` waits in the queue.
fn queued(cluster: &Cluster, options: &[&str]) -> Run {
    let launcher = script(cluster, "srun --version\nsrun \"$@\"\nsleep 1000");
    let with = ["--launcher", &launcher, "--hold"];
    cluster.launch(&[&with[..], options, &["--", "--hold", "-N2", "-n2", "/bin/echo", "here"]].concat())
}

#[test]
fn a_scripts_job_in_the_queue_is_told_and_goes_with_the_launch() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let jobs = |cluster: &Cluster| cluster.said("squeue", ["--me", "--noheader", "--format=%j %T"]);
        let late = queued(cluster, &["--queue-timeout", "1"]).wait(SOON);
        assert_ne!(late.code(), 0, "{late:?}");
        assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{}", jobs(cluster));
        for victim in ["tool", "script"] {
            let mut run = queued(cluster, &[]);
            let waiting = run.next_event("waiting", SOON);
            assert!(waiting["job"].is_string(), "{waiting}");
            kill(match victim {
                "tool" => program(run.pid()).expect("the tool"),
                _ => first(cluster, "/bin/sh "),
            });
            run.exited(SOON);
            assert!(becomes_true(SOON, || jobs(cluster).is_empty()), "{victim}: {}", jobs(cluster));
            let gone = becomes_true(SOON, || cluster.bed.leftovers().is_empty());
            assert!(gone, "{victim}: {:?}", cluster.bed.leftovers());
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}

#[test]
fn whoever_is_killed_while_the_ranks_of_a_script_are_held_nothing_is_left() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let launcher = script(cluster, LINES);
        let args = ["--launcher", &launcher, "--", "-N2", "-n2", "/bin/sleep", "1003"];
        for victim in ["tool", "guard", "script", "srun", "nobody"] {
            let (mut run, app) = cluster.held(&args);
            match victim {
                "tool" => kill(program(run.pid()).expect("the tool")),
                "guard" => kill(cluster.bed.login().guard().pid),
                "script" => kill(first(cluster, "/bin/sh ")),
                "srun" => kill(first(cluster, "srun -N2")),
                _ => drop(cluster.ask(&["kill", &app])),
            }
            run.exited(2 * SOON);
            let gone = becomes_true(2 * SOON, || cluster.bed.leftovers().is_empty());
            assert!(gone, "{victim}: {:?}", cluster.bed.leftovers());
        }
        cluster.bed.wait_idle(2 * SOON).expect("idle");
    });
}
