//! Ranks that srun itself holds, on a real Slurm. gantry does not change srun's command line, and agents run in a
//! separate step.

use std::time::Duration;

use gantry_tests::testbed::{Config, Shared, Testbed, program, shared, usable};
use gantry_tests::{Run, World, becomes_true, binaries, eventually, proc, require, within, write_executable};
use nix::sys::signal::Signal;

/// The timeout of a whole test, including a new testbed.
const LIMIT: Duration = Duration::from_secs(240);

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

/// Launches by mpir. Sessions use the default directory, because a world's folder is not on the nodes.
fn launch(bed: &Testbed, world: &World, args: &[&str]) -> Run {
    launch_by("--hold-method=mpir", bed, world, args)
}

fn launch_by(method: &str, bed: &Testbed, world: &World, args: &[&str]) -> Run {
    let gantry = binaries().gantry.to_str().expect("a path");
    let mut command = bed.login().command_of(world, gantry).expect("the login node");
    command.env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR");
    command.args(["--json", "launch", method]).args(args);
    world.spawn(command)
}

/// The processes on all nodes whose command line has this end.
fn ranks(bed: &Testbed, end: &str) -> Vec<i32> {
    let all = bed.nodes().into_iter().flat_map(|node| node.user_processes());
    all.filter(|process| process.line.ends_with(end)).map(|process| process.pid).collect()
}

#[test]
fn ranks_are_held_before_their_first_instruction_and_their_code_is_passed_on() {
    on_bed(|bed| {
        let world = World::new();
        let script = "exit $((SLURM_PROCID + 3))";
        let mut run = launch(
            bed,
            &world,
            &["--hold", "--daemon", "sleep 2000", "--", "-N3", "-n6", "sh", "-c", script],
        );
        let held = run.next_event("held", LONG);
        let app = held["app"].as_str().expect("an id").to_owned();
        for _ in 0..3 {
            run.next_event("daemon_started", LONG);
        }
        let held = ranks(bed, script);
        assert_eq!(held.len(), 6);
        for pid in held {
            assert_eq!(proc::why_not_held(pid), None);
            assert_eq!(proc::tracer(pid), None);
        }
        let gantry = binaries().gantry.to_str().expect("a path");
        let mut release = bed.login().command_of(&world, gantry).expect("the login node");
        release.args(["release", &app]);
        assert!(world.spawn(release).exited(LONG).success());
        run.next_event("released", LONG);
        run.next_event("exited", LONG);
        assert_eq!(run.wait(LONG).code(), 8);
        bed.wait_idle(LONG).expect("idle");
        world.finish();
    });
}

#[test]
fn ranks_that_are_not_to_be_held_run_at_once_and_their_output_comes() {
    on_bed(|bed| {
        let world = World::new();
        let mut run = launch(bed, &world, &["--", "-N2", "-n2", "sh", "-c", "echo here; exit 5"]);
        run.next_event("exited", LONG);
        assert_eq!(run.wait(LONG).code(), 5);
        bed.wait_idle(LONG).expect("idle");
        world.finish();
    });
}

/// The first thread of srun, which starts the ranks.
fn srun(bed: &Testbed) -> i32 {
    let processes = bed.login().user_processes();
    let is_srun = |line: &str| line.contains("srun -N") && !line.contains("gantry");
    let found = processes.iter().filter(|process| is_srun(&process.line)).map(|process| process.pid).min();
    found.unwrap_or_else(|| panic!("no srun in {processes:?}"))
}

#[test]
fn srun_stands_still_where_that_is_asked_for_until_its_ranks_are_let_go_or_have_ended() {
    on_bed(|bed| {
        for end in ["release", "kill"] {
            let world = World::new();
            let args = ["--hold", "--", "-N2", "-n4", "sh", "-c", "exit 9"];
            let mut run = launch_by("--hold-method=mpir-stop", bed, &world, &args);
            let app = run.next_event("held", LONG)["app"].as_str().expect("an id").to_owned();
            let held = ranks(bed, "exit 9");
            assert!(
                held.iter().all(|pid| proc::why_not_held(*pid).is_none() && proc::tracer(*pid).is_none())
            );
            let srun = srun(bed);
            assert_eq!((proc::state(srun), proc::tracer(srun).is_some()), (Some('t'), true));
            let gantry = binaries().gantry.to_str().expect("a path");
            let mut command = bed.login().command_of(&world, gantry).expect("the login node");
            command.args([end, &app]);
            assert!(world.spawn(command).exited(LONG).success());
            assert_eq!(run.wait(LONG).code(), if end == "release" { 9 } else { 137 });
            bed.wait_idle(LONG).expect("idle");
            world.finish();
        }
    });
}

/// Holds an app and kills a helper or the tool. Nothing may be left.
#[track_caller]
fn killed_while_held(victim: impl Fn(&Testbed, &Run) -> i32 + Send + 'static) {
    on_bed(move |bed| {
        for method in ["--hold-method=mpir", "--hold-method=mpir-stop"] {
            let world = World::new();
            let args = ["--hold", "--daemon", "sleep 2000", "--", "-N3", "-n3", "sleep", "1000"];
            let mut run = launch_by(method, bed, &world, &args);
            run.next_event("daemon_started", LONG);
            proc::send(victim(bed, &run), Signal::SIGKILL);
            run.exited(LONG);
            let gone = becomes_true(LONG, || bed.leftovers().is_empty());
            assert!(gone, "{method}: {:?}", bed.leftovers());
            bed.wait_idle(LONG).expect("idle");
            world.finish();
        }
    });
}

#[test]
fn a_killed_tool_leaves_nothing_of_held_ranks() {
    killed_while_held(|_, run| program(run.pid()).expect("the tool"));
}

#[test]
fn a_killed_guard_leaves_nothing_of_held_ranks() {
    killed_while_held(|bed, _| bed.login().guard().pid);
}

#[test]
fn a_refusal_of_srun_is_reported_with_its_message() {
    on_bed(|bed| {
        let world = World::new();
        let mut run = launch(bed, &world, &["--", "--partition=nowhere", "true"]);
        assert_ne!(run.wait(LONG).code(), 0);
        let words = [run.stderr().join("\n"), run.stdout().join("\n")].concat();
        assert!(words.contains("invalid partition specified: nowhere"), "{words}");
        eventually(LONG, "nothing is left", || bed.leftovers().is_empty());
        world.finish();
    });
}

/// A folder with an srun that runs `before_agents` before it starts agents. In all other cases it is srun itself.
fn meddling(before_agents: &str, srun: &std::path::Path) -> std::path::PathBuf {
    let folder =
        gantry_tests::target_dir().join("test-programs").join(format!("mpir-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("srun");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *gantry-agents*) {before_agents};; esac\nexec {} \"$@\"\n",
        srun.display()
    );
    write_executable(&path, script);
    folder
}

#[test]
fn a_table_with_a_process_that_is_gone_fails_the_launch_and_leaves_nothing() {
    on_bed(|bed| {
        let world = World::new();
        // One of the held ranks dies between the launcher's table and the start of the agents.
        let srun = bed.config().srun();
        let kill = "--overlap --jobid=$(squeue --me --noheader --format=%A) -w n002 -n1 pkill -KILL -f 'sleep 1001' </dev/null";
        let folder = meddling(&format!("{} {kill}", srun.display()), &srun);
        let path =
            format!("{}:{}:/usr/bin:/bin", folder.display(), srun.parent().expect("a folder").display());
        let gantry = binaries().gantry.to_str().expect("a path");
        let mut command = bed.login().command_of(&world, "/usr/bin/env").expect("the login node");
        command.env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR");
        command.args([&format!("PATH={path}"), gantry, "--json", "launch", "--hold-method=mpir"]);
        command.arg(format!("--launcher={}", srun.display()));
        command.args(["--hold", "--", "-N3", "-n3", "sleep", "1001"]);
        let done = world.spawn(command).wait(LONG);
        assert_ne!(done.code(), 0, "{done:?}");
        let error = gantry_tests::slurm::error_of(&done).to_string();
        assert!(error.contains("n002") && error.contains("process"), "{error}");
        eventually(LONG, "nothing is left", || bed.leftovers().is_empty());
        bed.wait_idle(LONG).expect("idle");
        world.finish();
    });
}
