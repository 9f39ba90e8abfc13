//! Agents in a separate step, under a real Slurm that kills a step's leftovers, and for sessions that outlive the
//! ranks.

use gantry_tests::slurm::{Cluster, error_of, lines_of, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::testbed::config::Proctrack;
use gantry_tests::testbed::program;
use gantry_tests::{Finished, Run, SOON, becomes_true, binaries, eventually, proc};
use nix::sys::signal::Signal;

/// Nodes whose Slurm kills a step's leftovers.
fn strict() -> Config {
    Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(2) }
}

/// Runs longer than the time that a daemon has after its app's end.
const LATE: &str = "/bin/sh -c 'sleep 4; echo late'";

/// Runs gantry in an allocation of two nodes.
fn inside(cluster: &Cluster, args: &[&str]) -> Run {
    let gantry = binaries().gantry.to_str().expect("a path");
    let words = ["--quiet", "-N2", "-n2", gantry, "launch", "--json", "--cwd", "/"];
    cluster.run("salloc", words.iter().chain(args), &[])
}

fn ends_with(done: &Finished, code: i32) {
    assert_eq!(done.code(), code, "{done:?}");
}

#[test]
fn where_agents_among_the_ranks_would_be_killed_srun_holds_and_no_end_waits_for_an_epilog() {
    on_cluster(strict(), |cluster| {
        let (mut run, app) = cluster.held(&["--", "-N2", "-n8", "/bin/sleep", "0"]);
        cluster.assert_held("/bin/sleep 0", 8);
        let processes = cluster.bed.login().user_processes();
        assert!(processes.iter().any(|it| it.line.contains("gantry-agents")), "{processes:?}");
        assert!(!processes.iter().any(|it| it.line.contains("task-epilog")), "{processes:?}");
        cluster.ask(&["release", &app]);
        ends_with(&run.wait(SOON), 0);
    });
}

/// Ranks that srun has held continue until they execute the program to hold. Agents that did not start them trace
/// them.
#[test]
fn a_program_behind_one_that_srun_holds_is_held_and_no_end_waits_for_an_epilog() {
    const SCRIPT: &str = "/bin/env true; echo before; /bin/sleep 0; echo after; exit 4";
    on_cluster(strict(), |cluster| {
        let (mut run, app) =
            cluster.held(&["--hold-at", "*/sleep", "--", "-N2", "-n4", "/bin/sh", "-c", SCRIPT]);
        cluster.assert_held("/bin/sleep 0", 4);
        let login = cluster.bed.login().user_processes();
        assert!(!login.iter().any(|it| it.line.contains("task-epilog")), "{login:?}");
        cluster.ask(&["release", &app]);
        let done = run.wait(SOON);
        ends_with(&done, 4);
        let count = |word: &str| lines_of(&done).iter().filter(|line| *line == word).count();
        assert_eq!((count("before"), count("after")), (4, 4), "{done:?}");
        // The first program may already be the one to hold, for all ranks or for some.
        let (mut run, app) = cluster.held(&["--hold-at", "sleep", "--", "-N2", "-n2", "/bin/sleep", "0"]);
        cluster.assert_held("/bin/sleep 0", 2);
        cluster.ask(&["release", &app]);
        ends_with(&run.wait(SOON), 0);
        let error =
            error_of(&cluster.launch(&["--hold-at", "none", "--", "-N2", "-n2", "/bin/true"]).wait(SOON));
        assert!(error["message"].as_str().is_some_and(|it| it.contains("none")), "{error}");
    });
}

/// Ranks that wait for a program that never comes are ended like any others.
#[test]
fn ranks_that_are_followed_end_with_their_tool() {
    on_cluster(strict(), |cluster| {
        let waits = ["--hold-at", "none", "--", "-N2", "-n2", "/bin/sh", "-c", "/bin/sleep 900; true"];
        let run = cluster.launch(&waits);
        eventually(SOON, "the ranks go on", || cluster.find("/bin/sleep 900").len() == 2);
        drop(run);
        cluster.bed.assert_nothing_left(2 * SOON);
    });
}

#[test]
fn ranks_that_srun_holds_exchange_data_too() {
    on_cluster(strict(), |cluster| {
        let probe = binaries().dir.join("rendezvous_probe").display().to_string();
        for words in [&["all"][..], &["items"], &["dies", "2"]] {
            let args: Vec<&str> = [&["--", "-N2", "-n4", &probe][..], words].concat();
            ends_with(&cluster.launch(&args).wait(2 * SOON), 0);
        }
    });
}

/// The output without srun's lines about its ranks' exit codes.
fn of_daemons(done: &Finished) -> Vec<String> {
    lines_of(done).into_iter().filter(|line| !line.starts_with("srun: ")).collect()
}

/// Daemons of an app that has ended finish their output. Everything ends with the last daemon.
fn check_linger(config: Config) {
    on_cluster(config, |cluster| {
        let app = ["--", "-N2", "-n2", "/bin/sh", "-c", "exit 7"];
        let lingers = inside(cluster, &[&["--linger", "--daemon", LATE][..], &app].concat()).wait(2 * SOON);
        ends_with(&lingers, 7);
        assert_eq!(of_daemons(&lingers), ["late", "late"], "{lingers:?}");
        // Without the option, the daemons are asked to end before they print.
        let leaves = inside(cluster, &[&["--daemon", LATE][..], &app].concat()).wait(2 * SOON);
        ends_with(&leaves, 7);
        assert!(of_daemons(&leaves).is_empty(), "{leaves:?}");
    });
}

#[test]
fn where_daemonised_processes_survive_daemons_outlive_the_ranks_too() {
    check_linger(Config::with_nodes(2));
}

#[test]
fn daemons_outlive_the_ranks_where_nothing_else_survives_their_step() {
    check_linger(strict());
}

#[test]
fn lingering_daemons_are_gone_when_their_tool_is_killed_or_their_job_ends() {
    on_cluster(strict(), |cluster| {
        for cancel in [false, true] {
            let app = ["--linger", "--daemon", "/bin/sleep 1000", "--", "-N2", "-n2", "/bin/true"];
            let mut run = inside(cluster, &app);
            run.next_event("rank_exited", SOON);
            run.next_event("rank_exited", SOON);
            eventually(SOON, "the ranks' step is over", || {
                !cluster.said("squeue", ["--steps", "--noheader", "--format=%j"]).contains("true")
            });
            assert_eq!(cluster.find("sleep 1000").len(), 2, "{:?}", cluster.bed.leftovers());
            match cancel {
                true => drop(cluster.said("scancel", ["--me"])),
                false => {
                    let tools = cluster.bed.login().user_processes();
                    let gantry = format!("{} launch", binaries().gantry.display());
                    let tool = tools.iter().find(|it| it.line.starts_with(&gantry)).expect("a tool");
                    gantry_tests::proc::send(tool.pid, nix::sys::signal::Signal::SIGKILL);
                }
            }
            run.exited(2 * SOON);
            cluster.bed.assert_nothing_left(2 * SOON);
            cluster.bed.wait_idle(2 * SOON).expect("idle nodes");
        }
    });
}

#[test]
fn a_job_that_ends_with_its_ranks_has_nothing_that_lingers() {
    on_cluster(strict(), |cluster| {
        let check = |args: &[&str], words: &str| {
            let error = error_of(&cluster.launch(args).wait(SOON));
            assert!(error["message"].as_str().is_some_and(|it| it.contains(words)), "{error}");
        };
        check(&["--linger", "--", "-n1", "/bin/true"], "the job that srun makes ends with the ranks");
        let brought = ["--linger", "--hold-method=exec", "--", "-n1", "/bin/true"];
        check(&brought, "agents that a launcher brings with the ranks end with them");
    });
}

/// Each node has two GPUs, and the job has all of them.
#[test]
fn daemons_have_the_devices_and_the_variables_of_their_node_and_take_no_device_from_a_step() {
    let config = Config::with_nodes(2).slurm("GresTypes", "gpu").slurm("NodeName", "DEFAULT Gres=gpu:2");
    on_cluster(config, |cluster| {
        // The command line of srun itself has another end than that of the ranks.
        let script =
            "srun --quiet --gres=none --exact -N2 -n2 --ntasks-per-node=1 /bin/sh -c 'exec /bin/sleep 900 #'";
        let told = cluster.said(
            "sbatch",
            ["-N2", "--ntasks-per-node=4", "--gres=gpu:2", "--output=/dev/null", "--wrap", script],
        );
        let run = becomes_true(SOON, || cluster.find("/bin/sleep 900").len() == 2);
        let state = || cluster.said("squeue", ["--format=%i %T %R"]) + &cluster.bed.last_log_lines();
        assert!(run, "{told}{}", state());
        let job = cluster.said("squeue", ["--me", "--noheader", "--format=%i"]).trim().to_owned();
        let daemon = "/bin/sh -c 'echo $SLURMD_NODENAME=$(hostname) $SLURM_PROCID GPU=$CUDA_VISIBLE_DEVICES \
                      JOB=$SLURM_JOB_GPUS; exec sleep 901'";
        // A tool in a batch script has the variables of its own node.
        let elsewhere = [
            ("SLURMD_NODENAME", "n009"),
            ("SLURM_PROCID", "7"),
            ("CUDA_VISIBLE_DEVICES", "7"),
            ("SLURM_JOB_GPUS", "7"),
        ];
        let mut tool =
            cluster.run(&binaries().gantry, ["attach", "--json", &job, "--daemon", daemon], &elsewhere);
        let told =
            [(); 2].map(|()| tool.next_event("output", SOON)["text"].as_str().expect("text").to_owned());
        let expected = |node: &str, number: u32| format!("{node}={node} {number} GPU=0,1 JOB=");
        for (node, number) in [("n001", 0), ("n002", 1)] {
            assert!(told.iter().any(|it| it.trim() == expected(node, number)), "{told:?}");
        }
        let step =
            ["30", "srun", "--jobid", &job, "--gres=gpu:2", "--exact", "-N2", "-n2", "--quiet", "hostname"];
        let there = cluster.said("timeout", step);
        assert_eq!(there.lines().count(), 2, "a step gets no devices beside the daemons: {there}");
        let inside = program(tool.pid()).expect("the tool");
        proc::send(inside, Signal::SIGINT);
        assert_eq!(tool.wait(SOON).code(), 0);
        // A site may have it another way.
        let none = [("CTI_SLURM_DAEMON_GRES", "none")];
        let mut tool = cluster.run(&binaries().gantry, ["attach", "--json", &job, "--daemon", daemon], &none);
        let text = tool.next_event("output", SOON)["text"].as_str().expect("text").trim().to_owned();
        assert!(text.ends_with(" GPU= JOB="), "{text}");
        cluster.said("scancel", [&job]);
        tool.wait(SOON);
    });
}
