//! Random faults: any of our processes is killed or stopped at any moment of an app's life. Ranks and daemons start
//! other processes that are hard to find. Nothing may be left afterwards.
//!
//! Each run has a seed, which is printed. `GANTRY_FAULT_SEED=N` repeats that run. `GANTRY_FAULT_RUNS=N` makes N runs.

#![expect(clippy::print_stdout, reason = "it prints the numbers, and how to repeat one")]

use std::time::Duration;

use gantry_tests::fault_run::{Plan, play, tool_program};
use gantry_tests::schedule::{Kind, Schedule};
use gantry_tests::slurm::on_cluster_for;
use gantry_tests::testbed::{Config, Testbed};
use gantry_tests::{SOON, World, becomes_true, proc, programs, within};
use nix::sys::signal::Signal;

/// The total time of the runs on each testbed.
const TIME: Duration = Duration::from_secs(50);

/// The timeout of all runs if their number is given.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The timeout until nothing is left. A guard gives hung agents 20 s.
const GONE: Duration = Duration::from_secs(60);

/// Prints how to repeat a run that failed.
struct Replay(u64, &'static str, Vec<String>);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, test, log) = self;
            let schedule = Schedule::from_seed(*seed);
            println!("what was to happen: {schedule:#?}\nwhat happened:\n  {}", log.join("\n  "));
            println!(
                "again: GANTRY_FAULT_SEED={seed} GANTRY_BIN_DIR=$PWD/target/debug cargo test -p gantry-tests --test fault_runner -- {test}"
            );
        }
    }
}

/// Performs the runs. `run` performs one of them and returns its events.
fn play_all(test: &'static str, mut run: impl FnMut(&Schedule, &mut Vec<String>)) {
    let mut done = 0;
    drop(programs::get("strays"));
    let plan = Plan::of_environment();
    println!("{test} begins with GANTRY_FAULT_SEED={}", plan.seed);
    for seed in plan.seeds(TIME) {
        let mut replay = Replay(seed, test, Vec::new());
        run(&Schedule::from_seed(seed), &mut replay.2);
        done += 1;
    }
    println!("{test}: {done} runs");
}

#[test]
fn random_faults_on_this_machine_leave_nothing() {
    within(LIMIT, || {
        play_all("random_faults_on_this_machine_leave_nothing", |schedule, log| {
            let world = World::new();
            let (tag, nodes) = (world.tag().to_owned(), schedule.nodes);
            let launch = format!("-N {nodes} -n {}", nodes * schedule.ranks_per_node);
            let find = || proc::bearing("GANTRY_TEST_TAG", &tag);
            *log = play(schedule, world.command(tool_program()), &launch, &find);
            let gone = || world.processes().is_empty() && world.files_left().is_empty();
            if !becomes_true(GONE / 10, gone) {
                // The processes that clean up may be dead. The next command then cleans up.
                assert!(world.gantry(["ps", "--json"]).wait(SOON).status.success());
                assert!(becomes_true(GONE, gone), "left: {}", world.leaks());
            }
            world.finish();
        });
    });
}

#[test]
fn random_faults_under_slurm_leave_nothing() {
    on_cluster_for(LIMIT, Config::with_nodes(2), |cluster| {
        play_all("random_faults_under_slurm_leave_nothing", |schedule, log| {
            let mut tool =
                cluster.bed.login().command_of(&cluster.world, tool_program()).expect("the login node");
            tool.env_remove("GANTRY_STAGE_DIR").env_remove("TMPDIR").current_dir("/");
            let nodes = schedule.nodes.min(2);
            let launch = format!("--chdir=/ -N{nodes} -n{}", nodes * schedule.ranks_per_node);
            let bed: &Testbed = &cluster.bed;
            let hosts = || bed.nodes().into_iter().chain([bed.login()]);
            let find = || hosts().flat_map(|host| host.user_processes()).map(|it| it.pid).collect();
            *log = play(schedule, tool, &launch, &find);
            let gone =
                || cluster.bed.leftovers().is_empty() && cluster.said("squeue", ["--noheader"]).is_empty();
            // If a tool was killed with its guard, the next command removes its control socket.
            cluster.ask(&["ps", "--json"]);
            // Running ranks continue without their agents. If an srun is killed before its ranks exist, Slurm keeps
            // its job, and the user must cancel it. The next app on a node cleans up after dead agents.
            let excused =
                [Kind::Agent, Kind::Keeper, Kind::Launcher].iter().any(|kind| schedule.kills(*kind));
            if !becomes_true(if excused { GONE / 10 } else { GONE }, gone) {
                assert!(excused, "left: {:#?}", cluster.bed.leftovers());
                cluster.said("scancel", ["--me"]);
                // Without cgroups, slurmstepd waits for a child of a detached rank that holds the rank's output open.
                // Slurm gives up after a minute or two. The user would end it earlier.
                if cluster.bed.wait_idle(GONE / 6).is_err() {
                    let left = bed.nodes().into_iter().flat_map(|host| host.user_processes());
                    proc::send_those_left(left.map(|process| process.pid), Signal::SIGKILL);
                }
                cluster.bed.wait_idle(GONE).expect("idle nodes");
                // An agent sweeps storage when it opens a session.
                let next = ["--hold-for-daemons", "--daemon", "/bin/true", "--", "-N2", "-n2", "/bin/true"];
                assert_eq!(cluster.launch(&next).wait(GONE).code(), 0);
                assert!(becomes_true(GONE, gone), "left: {:#?}", cluster.bed.leftovers());
            }
        });
    });
}
