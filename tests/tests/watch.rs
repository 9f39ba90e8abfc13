//! `gantry why --watch` with programs that hang and programs that do not. It must report only the former.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::hung::assert_result;
use gantry_tests::programs;
use gantry_tests::watched::{check_hang_after_progress, says};
use gantry_tests::{Finished, Run, World, eventually, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);

/// The exit code of `--exit`.
const STALLED: i32 = 75;

/// Launches `steps` in the background and returns the app's id.
#[track_caller]
fn launched(world: &World, ranks: &str, words: &[&str]) -> String {
    launched_on(world, "1", ranks, words)
}

/// The same, on that many nodes that this machine plays.
#[track_caller]
fn launched_on(world: &World, nodes: &str, ranks: &str, words: &[&str]) -> String {
    let program = programs::get("steps");
    let program = [program.to_str().expect("a path")];
    let launch = ["launch", "--background", "--", "-N", nodes, "-n", ranks];
    let line = [launch.as_slice(), &program, words].concat();
    let done = world.gantry(line).wait(SOON);
    assert_eq!((done.code(), done.stdout.len()), (0, 1), "{done:?}");
    done.stdout[0].clone()
}

#[track_caller]
fn kill(world: &World, app: &str) {
    assert_eq!(world.gantry(["kill", "--yes", app]).wait(SOON).code(), 0);
}

fn runs(pid: i32, program: &Path) -> bool {
    proc::exe(pid).as_deref() == Some(program)
}

/// How often the watch has reported that nothing moves.
fn stalls(watch: &mut Run) -> usize {
    watch.stdout().iter().filter(|line| line.contains(" moved for ")).count()
}

fn notes(watch: &mut Run, part: &str) -> bool {
    watch.stderr().iter().any(|line| line.contains(part))
}

/// Lets the ranks that hang go on, and ends a watch that has told that stall once.
#[track_caller]
fn free_and_end(world: &World, app: &str, ranks: Vec<i32>, mut watch: Run) {
    proc::send_those_left(ranks, Signal::SIGUSR1);
    eventually(SOON, "they move", || says(&mut watch, "ranks move again"));
    assert_eq!(stalls(&mut watch), 1, "{:?}", watch.stdout());
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.wait(SOON).code(), 0);
    kill(world, app);
}

/// The daemons that read stacks.
fn daemons(world: &World) -> Vec<i32> {
    let is_one = |pid: &i32| proc::stat(*pid).is_some_and(|stat| stat.comm == "gantry-stackd");
    world.processes().into_iter().filter(is_one).collect()
}

#[track_caller]
fn parent(pid: i32) -> i32 {
    proc::stat(pid).expect("a process").parent
}

fn ranks_of(world: &World, program: &Path) -> Vec<i32> {
    world.processes().into_iter().filter(|pid| runs(*pid, program)).collect()
}

#[test]
fn a_hang_is_told_a_command_is_run_and_the_exit_code_says_so() {
    in_a_world(LIMIT, |world| {
        let app = launched(world, "3", &["hang"]);
        let report = world.work_dir().join("report");
        let report = report.to_str().expect("a path");
        let command = format!(
            "cat > {report}; echo \"$GANTRY_WATCH_TARGET $GANTRY_WATCH_SIZE [$GANTRY_WATCH_ODD_RANKS]\" >> {report}; exit 5"
        );
        let words = ["why", "--watch=1s", "--every", "0.2", "--exit", "--run", &command, &app];
        let done = world.gantry(words).wait(SOON);
        assert_eq!(done.code(), STALLED, "{done:?}");
        let all = "all 3 ranks wait in read called at steps.c:";
        assert!(done.stdout[0].starts_with("nothing has moved for "), "{done:?}");
        assert!(done.stdout[1].starts_with(all) && done.stdout.len() == 2, "{done:?}");
        assert!(
            done.stderr.iter().any(|line| line.contains("the command of --run ended with exit status: 5"))
        );
        let text = std::fs::read_to_string(report).expect("the report");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 3 && lines[1].starts_with(all), "{text}");
        assert_eq!(lines[2], format!("{app} 3 []"));
        // The ranks are unchanged. They get a signal only if the user asks for it.
        let words = ["why", "--watch=1s", "--every", "0.2", "--exit", "--signal", "KILL", "--json", &app];
        let done = world.gantry(words).wait(SOON);
        assert_eq!(done.code(), STALLED, "{done:?}");
        let told: Value = serde_json::from_str(&done.stdout[0]).expect("an object");
        assert_eq!((&told["watch"], &told["groups"][0]["waits_in"]), (&"stalled".into(), &"read".into()));
        eventually(SOON, "all ranks are killed", || ranks_of(world, &programs::get("steps")).is_empty());
    });
}

#[test]
fn waiting_by_short_sleeps_is_a_hang_too() {
    in_a_world(LIMIT, |world| {
        let app = launched(world, "2", &["sleeps-in-a-loop"]);
        let done = world.gantry(["why", "--watch=2s", "--every", "0.3", "--exit", &app]).wait(SOON);
        assert_eq!(done.code(), STALLED, "{done:?}");
        kill(world, &app);
    });
}

#[test]
fn a_rank_that_moves_again_is_reported_and_ctrl_c_ends_it() {
    in_a_world(LIMIT, |world| {
        let app = launched(world, "2", &["once"]);
        let mut watch = world.gantry(["why", "--watch=1s", "--every", "0.2", &app]);
        eventually(SOON, "the hang is told", || says(&mut watch, "nothing has moved"));
        proc::send_those_left(ranks_of(world, &programs::get("steps")), Signal::SIGUSR1);
        eventually(SOON, "they move", || says(&mut watch, "ranks move again"));
        watch.signal(Signal::SIGINT);
        let done = watch.wait(SOON);
        assert_eq!((done.code(), done.stderr.len()), (0, 0), "{done:?}");
        kill(world, &app);
    });
}

/// Watches until the job has ended, and returns the output.
fn watched(world: &World, app: &str, limit: &str) -> Finished {
    world
        .gantry(["why", "--watch", "--exit", "--every", "0.2", app].map(|word| match word {
            "--watch" => limit,
            word => word,
        }))
        .wait(SOON)
}

#[test]
fn healthy_programs_raise_no_alarm_and_their_end_is_told() {
    in_a_world(LIMIT, |world| {
        for words in [["work", "100"], ["sleep", "4"], ["files", "60"]] {
            let app = launched(world, "2", &words);
            // Longer than the sleep, and much shorter than the program.
            let done = watched(world, &app, "--watch=1.5s");
            assert_eq!(
                (done.code(), done.stdout.as_slice()),
                (0, ["the job has ended".to_owned()].as_slice()),
                "{words:?} {done:?}"
            );
        }
    });
}

#[test]
fn an_mpi_program_that_is_always_in_a_collective_moves_until_it_hangs() {
    let program = require!(programs::get_mpi("mpi_steps", "mpicc.mpich"));
    let mpiexec = require!(tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra")));
    in_a_world(LIMIT, move |world| {
        let run = world.start(&mpiexec, ["-n", "3", program.to_str().expect("a path"), "6", "wait"]);
        let why = "rank 0 waits in MPI_Recv called at mpi_steps.c:";
        check_hang_after_progress(world, run, |pid| runs(*pid, &program), why);
    });
}

/// The program `mpi_threads`, and the launcher for it.
fn mpi_threads() -> Result<(PathBuf, PathBuf), String> {
    let mpiexec = tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra"))?;
    Ok((mpiexec, programs::get_source("mpi_threads.c", "mpicc.mpich", &["-O2", "-fomit-frame-pointer"])?))
}

#[test]
fn a_thread_that_polls_for_messages_hides_no_hang() {
    let (mpiexec, program) = require!(mpi_threads());
    in_a_world(LIMIT, move |world| {
        for mode in ["poll", "pause"] {
            let run = world.start(&mpiexec, ["-n", "2", program.to_str().expect("a path"), mode, "6"]);
            check_hang_after_progress(
                world,
                run,
                |pid| runs(*pid, &program),
                "waits in MPI_Recv called at mpi_threads.c:",
            );
        }
    });
}

#[test]
fn the_progress_thread_of_a_library_hides_no_hang() {
    let program = require!(programs::get_mpi("mpi_steps", "mpicc.mpich"));
    let mpiexec = require!(tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra")));
    in_a_world(LIMIT, move |world| {
        let words = ["-genv", "MPIR_CVAR_ASYNC_PROGRESS", "1", "-n", "2"];
        let program_words = [program.to_str().expect("a path"), "6", "wait"];
        let run = world.start(&mpiexec, [&words[..], &program_words].concat());
        check_hang_after_progress(
            world,
            run,
            |pid| runs(*pid, &program),
            "waits in MPI_Recv called at mpi_steps.c:",
        );
    });
}

#[test]
fn a_thread_that_computes_is_progress_whatever_the_first_one_waits_for() {
    let (mpiexec, program) = require!(mpi_threads());
    in_a_world(LIMIT, move |world| {
        for mode in ["compute", "join"] {
            let mut run = world.start(&mpiexec, ["-n", "2", program.to_str().expect("a path"), mode, "8"]);
            eventually(SOON, "it has begun", || says(&mut run, "begun"));
            let done = watched(world, &run.pid().to_string(), "--watch=1.5s");
            assert_eq!(
                (done.code(), done.stdout.as_slice()),
                (0, ["the job has ended".to_owned()].as_slice()),
                "{mode} {done:?}"
            );
            assert_eq!(run.wait(SOON).code(), 0);
        }
    });
}

/// The agent of such a node keeps its link. Its ranks may be anywhere.
#[test]
fn a_node_that_does_not_answer_ends_no_watch_and_repeats_no_alarm() {
    in_a_world(LIMIT, |world| {
        // As another tool's app on three nodes, and attached to by the watch itself, all on one node.
        for (is_attached, unseen) in [(false, "is not seen"), (true, "ranks 0-2 are not seen")] {
            let app = launched_on(world, "3", "3", &["once"]);
            let ranks = ranks_of(world, &programs::get("steps"));
            let pids: Vec<String> = ranks.iter().map(i32::to_string).collect();
            let target = if is_attached { pids.join(",") } else { app.clone() };
            // Some of an earlier watch may be ending.
            let before = daemons(world);
            let words = ["why", "--watch=1s", "--every", "0.2", "--timeout", "4", &target];
            let mut watch = world.gantry(words);
            eventually(SOON, "the hang is told", || stalls(&mut watch) == 1);
            let daemon = daemons(world).into_iter().find(|daemon| !before.contains(daemon));
            let agent = parent(daemon.expect("a daemon"));
            proc::send(agent, Signal::SIGSTOP);
            eventually(SOON, "the node is named", || notes(&mut watch, "no answer from"));
            eventually(SOON, "its ranks are named", || notes(&mut watch, unseen));
            proc::send(agent, Signal::SIGCONT);
            let told = (stalls(&mut watch), says(&mut watch, "ranks move again"));
            assert_eq!(told, (1, false), "{:?}", watch.stdout());
            free_and_end(world, &app, ranks, watch);
        }
    });
}

#[test]
fn a_node_without_a_sign_of_life_is_left_out_of_a_look_until_it_gives_one() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "3", "3", &["hang"]);
        let silent = parent(ranks_of(world, &programs::get("steps"))[0]);
        proc::send(silent, Signal::SIGSTOP);
        for command in [&["why"][..], &["stack"], &["top", "--once"]] {
            let done = world.gantry([command, &["--timeout", "20", &app]].concat()).wait(SOON);
            let names = |line: &String| line.contains("no answer from") && line.contains("no sign of life");
            assert!(done.code() == 0 && done.stderr.iter().any(names), "{done:?}");
            assert!(done.stdout.iter().any(|line| line.starts_with("not seen: ")), "{done:?}");
        }
        let mut watch = world.gantry(["why", "--watch=60s", "--every", "0.2", "--timeout", "20", &app]);
        eventually(SOON, "a note", || notes(&mut watch, "starts its daemons anew"));
        proc::send(silent, Signal::SIGCONT);
        let has_daemon =
            || daemons(world).into_iter().filter_map(proc::stat).any(|stat| stat.parent == silent);
        eventually(SOON, "the node has a daemon", has_daemon);
        watch.signal(Signal::SIGINT);
        assert_eq!(watch.wait(SOON).code(), 0);
        kill(world, &app);
        // Without any node there is nothing to look at.
        let app = launched(world, "1", &["hang"]);
        let silent = parent(ranks_of(world, &programs::get("steps"))[0]);
        proc::send(silent, Signal::SIGSTOP);
        let done = world.gantry(["stack", "--timeout", "2", &app]).wait(SOON);
        let names = |line: &String| line.contains("asking for signs of life; no answer from");
        assert!(done.code() == 67 && done.stderr.iter().any(names), "{done:?}");
        proc::send(silent, Signal::SIGCONT);
        kill(world, &app);
    });
}

#[test]
fn a_hang_is_told_although_a_node_does_not_answer() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "3", "3", &["once"]);
        let busy = ranks_of(world, &programs::get("steps"))[0];
        let mut watch = world.gantry(["why", "--watch=2s", "--every", "0.2", "--timeout", "4", &app]);
        eventually(SOON, "the hang is told", || stalls(&mut watch) == 1);
        proc::send(busy, Signal::SIGUSR1);
        eventually(SOON, "one rank moves", || says(&mut watch, "ranks move again"));
        let agent = parent(busy);
        proc::send(agent, Signal::SIGSTOP);
        eventually(SOON, "the hang is told again", || stalls(&mut watch) == 2);
        eventually(SOON, "its rank is named", || says(&mut watch, "not seen: "));
        proc::send(agent, Signal::SIGCONT);
        watch.signal(Signal::SIGINT);
        assert_eq!(watch.wait(SOON).code(), 0);
        kill(world, &app);
    });
}

#[test]
fn a_rank_whose_daemon_has_ended_raises_no_alarm_and_gets_another_daemon() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "2", "2", &["once"]);
        let busy = ranks_of(world, &programs::get("steps"))[0];
        // Longer than one look, in which the daemon is missing.
        let mut watch = world.gantry(["why", "--watch=5s", "--every", "0.2", &app]);
        eventually(SOON, "the hang is told", || stalls(&mut watch) == 1);
        proc::send(busy, Signal::SIGUSR1);
        eventually(SOON, "one rank moves", || says(&mut watch, "ranks move again"));
        let before = daemons(world);
        let beside = before.iter().find(|daemon| parent(**daemon) == parent(busy));
        proc::send(*beside.expect("a daemon"), Signal::SIGKILL);
        eventually(SOON, "a note", || notes(&mut watch, "starts its daemons anew"));
        eventually(SOON, "two new daemons", || {
            let now = daemons(world);
            now.len() == 2 && now.iter().all(|daemon| !before.contains(daemon))
        });
        assert_eq!(stalls(&mut watch), 1, "{:?}", watch.stdout());
        // A stopped rank does not move. Only the new daemon can see that.
        proc::send(busy, Signal::SIGSTOP);
        eventually(SOON, "the hang is told again", || stalls(&mut watch) == 2);
        watch.signal(Signal::SIGINT);
        let done = watch.wait(SOON);
        assert!(done.code() == 0 && !done.stdout.iter().any(|line| line.contains("not seen")), "{done:?}");
        kill(world, &app);
    });
}

/// Its rank may compute: gantry itself does not know.
#[test]
fn a_hang_of_the_others_beside_a_rank_whose_daemon_does_not_stay_is_told_and_no_more() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "2", "2", &["once"]);
        let busy = ranks_of(world, &programs::get("steps"))[0];
        proc::send(busy, Signal::SIGUSR1);
        let words = ["why", "--watch=2s", "--every", "0.2", "--exit", "--signal", "KILL", &app];
        let mut watch = world.gantry(words);
        eventually(SOON, "its daemons are there", || daemons(world).len() == 2);
        let agent = parent(busy);
        eventually(SOON, "the hang is told", || {
            let is_beside = |pid: &i32| proc::stat(*pid).is_some_and(|stat| stat.parent == agent);
            proc::send_those_left(daemons(world).into_iter().filter(is_beside), Signal::SIGKILL);
            stalls(&mut watch) == 1
        });
        eventually(SOON, "a note", || notes(&mut watch, "so gantry does nothing more"));
        eventually(SOON, "a daemon sees that it moves", || says(&mut watch, "ranks move again"));
        assert!(says(&mut watch, "nothing that gantry sees has moved for "), "{:?}", watch.stdout());
        watch.signal(Signal::SIGINT);
        assert_eq!(watch.wait(SOON).code(), 0);
        kill(world, &app);
    });
}

/// Ranks that make an order long: these, and `others` that do not exist.
fn many_ranks(others: usize) -> String {
    let others: Vec<String> = (10_000..).step_by(2).take(others).map(|rank| rank.to_string()).collect();
    format!("0-2,{}", others.join(","))
}

/// Its orders wait for it, and occupy the window of all daemons. Long ones do so soon.
#[test]
fn a_node_that_does_not_answer_for_hours_does_not_end_the_watch() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "3", "3", &["once"]);
        let ranks = ranks_of(world, &programs::get("steps"));
        let wanted = many_ranks(15_000);
        let words = ["why", "--watch=1s", "--every", "0.2", "--timeout", "4", "--ranks", &wanted, &app];
        let mut watch = world.gantry(words);
        eventually(SOON, "the hang is told", || stalls(&mut watch) == 1);
        let before = daemons(world);
        let agent = parent(ranks[0]);
        proc::send(agent, Signal::SIGSTOP);
        eventually(SOON, "the others have new daemons", || {
            daemons(world).iter().filter(|daemon| !before.contains(daemon)).count() == 2
        });
        proc::send(agent, Signal::SIGCONT);
        free_and_end(world, &app, ranks, watch);
    });
}

#[test]
fn new_daemons_that_cannot_start_beside_such_a_node_do_not_end_the_watch() {
    in_a_world(LIMIT, |world| {
        let app = launched_on(world, "3", "3", &["once"]);
        let ranks = ranks_of(world, &programs::get("steps"));
        let wanted = many_ranks(7_500);
        let words = ["why", "--watch=1s", "--every", "0.2", "--timeout", "4", "--ranks", &wanted, &app];
        let mut watch = world.gantry(words);
        eventually(SOON, "the hang is told", || stalls(&mut watch) == 1);
        let agents: Vec<i32> = ranks.iter().map(|rank| parent(*rank)).collect();
        proc::send_those_left(agents.clone(), Signal::SIGSTOP);
        eventually(SOON, "a start fails", || notes(&mut watch, "daemons are not started anew"));
        proc::send_those_left(agents, Signal::SIGCONT);
        free_and_end(world, &app, ranks, watch);
    });
}

/// While the command runs, the daemon gets no order.
#[test]
fn a_rank_that_was_read_while_it_waited_in_the_kernel_goes_on_when_it_can() {
    let program = require!(programs::get_source("hung/in_the_kernel.c", "cc", &["-O2"]));
    in_a_world(LIMIT, move |world| {
        let mut run = world.gantry(["launch", "--", "-n", "3", program.to_str().expect("a path")]);
        eventually(SOON, "all ranks are there", || {
            run.stdout().iter().filter(|line| line.contains("there")).count() == 3
        });
        let report = world.work_dir().join("report");
        let file = report.to_str().expect("a path");
        let command = format!("cat > {file}; while test -e {file}; do sleep 0.1; done");
        let target = format!("pid:{}", run.pid());
        let mut watch = world.gantry(["why", "--watch=1s", "--every", "0.2", "--run", &command, &target]);
        eventually(SOON, "the hang is told", || report.exists());
        proc::send_those_left(ranks_of(world, &program), Signal::SIGUSR1);
        assert_result(&run.wait(SOON), 3);
        std::fs::remove_file(report).expect("the report");
        assert_eq!(watch.wait(SOON).code(), 0);
    });
}

#[test]
fn a_tool_that_is_gone_ends_the_watch_with_a_word() {
    in_a_world(LIMIT, |world| {
        let program = programs::get("steps");
        let mut tool =
            world.gantry(["launch", "--json", "--", "-n", "2", program.to_str().expect("a path"), "hang"]);
        let app = tool.next_event("started", SOON)["app"].as_str().expect("an id").to_owned();
        let mut watch = world.gantry(["why", "--watch=1s", "--every", "0.2", &app]);
        eventually(SOON, "the hang is told", || says(&mut watch, "nothing has moved"));
        tool.kill();
        let done = watch.wait(SOON);
        assert_eq!(done.code(), 71, "{done:?}");
        assert!(done.stderr[0].contains(&format!("app {app}")), "{done:?}");
        tool.exited(SOON);
    });
}
