//! Attaching to steps of a user's own srun, on a real Slurm. Agents run in a separate step and leave nothing behind.

use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::{Config, Process, Shared, Testbed, program, shared, usable};
use gantry_tests::{Run, World, becomes_true, binaries, eventually, proc, require, within};
use nix::sys::signal::Signal;

/// The timeout of a whole test, including a new testbed and the turns of other tests. One of them attaches fifty
/// times.
const LIMIT: Duration = Duration::from_secs(480);

/// The timeout of Slurm's commands and of agents on all nodes together.
const LONG: Duration = Duration::from_secs(60);

/// Runs a test on a testbed of three nodes. At its end the user may have left nothing on any host.
#[track_caller]
fn on_bed(body: impl FnOnce(&mut Shared) + Send + 'static) {
    let config = Config::with_nodes(3);
    require!(usable(&config));
    within(LIMIT, move || {
        let mut bed = shared(&config);
        body(&mut bed);
        bed.assert_nothing_left(LONG);
    });
}

/// A command of the ordinary user on the login node. Sessions use the default directory, because a world's folder is
/// not on the nodes.
fn command(bed: &Testbed, world: &World, name: &str) -> Command {
    let mut command = bed.login().command_of(world, name).expect("the login node");
    command.env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR");
    command
}

fn srun(bed: &Testbed, world: &World, args: &[&str]) -> Run {
    let mut command = command(bed, world, "srun");
    command.args(args);
    world.spawn(command)
}

fn gantry(bed: &Testbed, world: &World, args: &[&str]) -> Run {
    let mut command = command(bed, world, binaries().gantry.to_str().expect("a path"));
    command.args(args);
    world.spawn(command)
}

/// The stdout of a user's command on the login node. It must succeed.
#[track_caller]
fn said(bed: &Testbed, words: &[&str]) -> String {
    let mut command = bed.login().command("timeout").expect("the login node");
    let output =
        command.args(["--kill-after=5", "40"]).args(words).stdin(Stdio::null()).output().expect("nsenter");
    assert!(output.status.success(), "{words:?}: {output:?}\n{}", bed.last_log_lines());
    String::from_utf8(output.stdout).expect("text")
}

/// The ranks on all nodes: each is a `sleep` with this argument.
fn sleepers(bed: &Testbed, seconds: &str) -> Vec<Process> {
    let line = format!("sleep {seconds}");
    let all = bed.nodes().into_iter().flat_map(|node| node.user_processes());
    let mut found: Vec<Process> = all.filter(|process| process.line.ends_with(&line)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Starts `srun` with these options and `sleep`, and waits until all ranks run. Returns the job's number.
#[track_caller]
fn start_sleepers(bed: &Testbed, world: &World, options: &[&str], count: usize) -> (Run, String) {
    let args = [options, &["sleep", "1000"]].concat();
    let mut run = srun(bed, world, &args);
    let there = becomes_true(LONG, || sleepers(bed, "1000").len() == count);
    assert!(there, "{:?}\n{}", run.stderr(), bed.last_log_lines());
    let jobs = said(bed, &["squeue", "--me", "--noheader", "--format=%i"]);
    (run, jobs.lines().next().expect("a job").trim().to_owned())
}

/// Ends a user's job and waits until Slurm has its nodes back.
#[track_caller]
fn cancel(bed: &Testbed, mut run: Run, job: &str) {
    said(bed, &["scancel", job]);
    run.exited(LONG);
    bed.wait_idle(LONG).expect("idle");
}

/// The pid, state and tracer of each process, for comparison.
fn pids(processes: &[Process]) -> Vec<(i32, Option<char>, Option<i32>)> {
    processes
        .iter()
        .map(|process| (process.pid, proc::state(process.pid), proc::tracer(process.pid)))
        .collect()
}

/// Attaches with a daemon on every node, which prints where it is, and detaches.
#[track_caller]
fn attach_and_leave(bed: &Testbed, world: &World, target: &str, nodes: usize) {
    attach_and_leave_with(bed, world, target, nodes, &[]);
}

/// Like [`attach_and_leave`], with variables in the tool's environment.
#[track_caller]
fn attach_and_leave_with(
    bed: &Testbed,
    world: &World,
    target: &str,
    nodes: usize,
    variables: &[(&str, &str)],
) {
    let daemon = "sh -c 'echo here $SLURMD_NODENAME $(hostname); exec sleep 2000'";
    let mut command = command(bed, world, binaries().gantry.to_str().expect("a path"));
    command.args(["--json", "attach", target, "--daemon", daemon]).envs(variables.iter().copied());
    let mut tool = world.spawn(command);
    let attached = tool.next_event("attached", LONG);
    assert!(attached.is_object());
    for _ in 0..nodes {
        tool.next_event("daemon_started", LONG);
    }
    let there = becomes_true(LONG, || sleepers(bed, "2000").len() == nodes);
    assert!(there, "{:?}", tool.stderr());
    let inside = program(tool.pid()).expect("the tool");
    proc::send(inside, Signal::SIGINT);
    tool.exited(LONG);
    eventually(LONG, "daemons are gone", || sleepers(bed, "2000").is_empty());
}

/// Starts two ranks behind a gate, which is a file in the home. Returns the step's name.
///
/// Slurm lists a step before it executes the step's tasks. The gate makes the attach meet that state.
#[track_caller]
fn start_gated(bed: &Testbed, world: &World) -> (Run, String) {
    // All hosts share the home.
    let script =
        "printf '#!/bin/sh\\nwhile ! test -e ~/go; do sleep 0.05; done\\n' >~/prolog; chmod 700 ~/prolog";
    said(bed, &["sh", "-c", script]);
    let prolog = format!("--task-prolog={HOME}/prolog");
    let run = srun(bed, world, &["-N2", "-n2", &prolog, "sleep", "1000"]);
    let step = || said(bed, &["squeue", "--me", "--steps", "--noheader", "--format=%i"]);
    assert!(becomes_true(LONG, || step().contains(".0")), "{}", bed.last_log_lines());
    let steps = step();
    let step = steps.lines().find(|line| line.trim().ends_with(".0")).expect("a step").trim().to_owned();
    (run, step)
}

/// An attachment with `--wait` waits until its own timeout.
#[test]
fn an_attachment_that_waits_has_more_patience_for_ranks_than_one_that_does_not() {
    on_bed(|bed| {
        let world = World::new();
        let (srun, step) = start_gated(bed, &world);
        let mut run = gantry(bed, &world, &["attach", "-vv", "--json", "--wait", &step]);
        run.stderr_line("ranks are not stopped yet", LONG);
        // An attachment without `--wait` starts later and gives up.
        let words = refused(bed, &world, &step);
        assert!(words.contains("no process on this node is rank"), "{words}");
        said(bed, &["touch", &format!("{HOME}/go")]);
        let attached = run.next_event("attached", LONG);
        assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(2), "{attached}");
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(LONG);
        cancel(bed, srun, step.split('.').next().expect("a job"));
        said(bed, &["sh", "-c", "rm ~/go ~/prolog"]);
        world.finish();
    });
}

#[test]
fn ranks_that_do_not_stand_yet_are_waited_for() {
    on_bed(|bed| {
        let world = World::new();
        let (waits, step) = start_gated(bed, &world);
        let mut run = gantry(bed, &world, &["attach", "-vv", "--json", &step]);
        run.stderr_line("ranks are not stopped yet", LONG);
        said(bed, &["touch", &format!("{HOME}/go")]);
        let attached = run.next_event("attached", LONG);
        assert_eq!(attached["ranks"].as_array().map(Vec::len), Some(2), "{attached}");
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGINT);
        run.exited(LONG);
        cancel(bed, waits, step.split('.').next().expect("a job"));
        said(bed, &["sh", "-c", "rm ~/go ~/prolog"]);
        world.finish();
    });
}

#[test]
fn a_step_is_attached_to_by_its_name_by_its_job_and_by_the_pid_of_its_srun() {
    on_bed(|bed| {
        let world = World::new();
        let (run, job) = start_sleepers(bed, &world, &["-N3", "-n6"], 6);
        let before = pids(&sleepers(bed, "1000"));
        for target in [format!("{job}.0"), job.clone(), pid_of_srun(bed, &run)] {
            attach_and_leave(bed, &world, &target, 3);
            assert_eq!(pids(&sleepers(bed, "1000")), before, "{target}");
        }
        cancel(bed, run, &job);
        world.finish();
    });
}

/// The pid of an srun on the login node.
#[track_caller]
fn pid_of_srun(bed: &Testbed, run: &Run) -> String {
    let srun = program(run.pid()).expect("srun");
    let processes = bed.login().user_processes();
    processes.iter().find(|it| it.pid == srun).expect("srun").number.to_string()
}

/// gantry's processes on all hosts.
fn helpers(bed: &Testbed) -> Vec<String> {
    let all = bed.hosts().into_iter().flat_map(|host| host.user_processes());
    all.map(|process| process.line).filter(|line| line.contains("gantry-")).collect()
}

/// Attaches and waits until gantry is attached.
#[track_caller]
fn attach(bed: &Testbed, world: &World, args: &[&str]) -> Run {
    let mut tool = gantry(bed, world, &[&["--json", "attach"], args].concat());
    assert!(tool.next_event("attached", LONG).is_object());
    tool
}

/// The error of `gantry attach`.
#[track_caller]
fn refused(bed: &Testbed, world: &World, target: &str) -> String {
    let mut tool = gantry(bed, world, &["attach", target]);
    let ended = tool.wait(LONG);
    assert_ne!(ended.code(), 0, "{target}");
    tool.stderr().join("\n")
}

#[test]
fn attaching_fifty_times_leaves_nothing() {
    on_bed(|bed| {
        let world = World::new();
        let (run, job) = start_sleepers(bed, &world, &["-N3", "-n3"], 3);
        let before = pids(&sleepers(bed, "1000"));
        let targets = [job.clone(), pid_of_srun(bed, &run)];
        for round in 0..50 {
            attach_and_leave(bed, &world, &targets[round % 2], 3);
            eventually(LONG, "the helpers are gone", || helpers(bed).is_empty());
            assert_eq!(pids(&sleepers(bed, "1000")), before, "round {round}");
        }
        let files: Vec<_> = bed.nodes().iter().flat_map(|node| node.user_files()).collect();
        assert!(files.is_empty(), "{files:?}");
        cancel(bed, run, &job);
        world.finish();
    });
}

#[test]
fn agents_need_no_free_cpu_and_no_free_memory() {
    on_bed(|bed| {
        let world = World::new();
        let cpus = said(bed, &["sinfo", "--noheader", "--format=%c"]);
        let all = format!("--cpus-per-task={}", cpus.trim());
        let options = ["-N3", "-n3", "--exclusive", "--mem=0", &all];
        let (run, job) = start_sleepers(bed, &world, &options, 3);
        attach_and_leave(bed, &world, &format!("{job}.0"), 3);
        attach_and_leave_with(bed, &world, &format!("{job}.0"), 3, &FOR_SOMEBODY_ELSE);
        cancel(bed, run, &job);
        world.finish();
    });
}

/// Options in the environment for the user's own launches. An srun that obeyed any of them could not start the agents
/// here.
const FOR_SOMEBODY_ELSE: [(&str, &str); 13] = [
    ("SLURM_CPU_BIND", "map_cpu:99"),
    ("SLURM_CPUS_PER_TASK", "999"),
    ("SLURM_DISTRIBUTION", "nonsense"),
    ("SLURM_EXCLUSIVE", "1"),
    ("SLURM_HET_SIZE", "3"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_JOB_NODELIST", "nowhere"),
    ("SLURM_MEM_PER_NODE", "9999999"),
    ("SLURM_MPI_TYPE", "nonsense"),
    ("SLURM_NTASKS", "7"),
    ("SLURM_PARTITION", "none"),
    ("SLURM_REMOTE_CWD", "/no/folder"),
    ("SLURM_SRUN_MULTI", "1"),
];

#[test]
fn a_cancelled_job_is_the_end_of_the_attachment() {
    on_bed(|bed| {
        let world = World::new();
        let (run, job) = start_sleepers(bed, &world, &["-N2", "-n2"], 2);
        let mut tool = attach(bed, &world, &[&job, "--daemon", "sleep 2000"]);
        tool.next_event("daemon_started", LONG);
        cancel(bed, run, &job);
        tool.exited(LONG);
        world.finish();
    });
}

#[test]
fn a_job_that_waits_is_attached_to_when_it_runs() {
    on_bed(|bed| {
        let world = World::new();
        let run = srun(bed, &world, &["--hold", "-N3", "-n3", "sleep", "1000"]);
        let mut waiting = String::new();
        eventually(LONG, "a job waits", || {
            waiting = said(bed, &["squeue", "--me", "--noheader", "--states=PENDING", "--format=%i"]);
            !waiting.trim().is_empty()
        });
        let waiting = waiting.trim();
        let words = refused(bed, &world, waiting);
        assert!(words.contains("PENDING") && words.contains("--wait"), "{words}");
        let mut tool = gantry(bed, &world, &["--json", "attach", "--wait", waiting]);
        said(bed, &["scontrol", "release", waiting]);
        assert!(tool.next_event("attached", LONG).is_object());
        proc::send(program(tool.pid()).expect("the tool"), Signal::SIGINT);
        tool.exited(LONG);
        cancel(bed, run, waiting);
        world.finish();
    });
}

#[test]
fn jobs_that_are_not_there_any_more_or_never_were() {
    on_bed(|bed| {
        let world = World::new();
        let words = refused(bed, &world, "4711.0");
        assert!(words.contains("4711") && words.contains("Invalid job id specified"), "{words}");
        let (run, job) = start_sleepers(bed, &world, &["-N1"], 1);
        let words = refused(bed, &world, &format!("{job}.7"));
        assert!(words.contains(&format!("{job}.7")), "{words}");
        cancel(bed, run, &job);
        let words = refused(bed, &world, &job);
        assert!(words.contains("CANCELLED") || words.contains("Invalid job id"), "{words}");
        world.finish();
    });
}
