//! Launchers that bring our agents on this machine, with real MPI libraries: every rank held, let go, and their launcher's code passed on.

use std::time::Duration;

use gantry_tests::programs::Link;
use gantry_tests::{SOON, World, proc, programs, require, tool, within};

const LIMIT: Duration = Duration::from_secs(120);

/// A launcher, and what it wants before anything else.
#[derive(Clone, Copy)]
struct By {
    launcher: &'static str,
    options: &'static [&'static str],
}

const HYDRA: By = By { launcher: "mpiexec.hydra", options: &[] };

/// Tests may be run as root, and with more ranks than processors.
const OPEN_MPI: By = By { launcher: "mpirun.openmpi", options: &["--allow-run-as-root", "--oversubscribe"] };

/// Launches held, judges that many ranks from outside, lets them go, and gives what they wrote, sorted; the code must be that, if one is given.
#[track_caller]
fn check_by(by: By, world: &World, args: &[&str], ranks: usize, code: Option<i32>) -> Vec<String> {
    let launch = ["launch", "--hold", "--json", "--launcher", by.launcher, "--"];
    let mut run = world.gantry(launch.iter().chain(by.options).chain(args));
    let held = run.next_event("held", 2 * SOON);
    let list = held["ranks"].as_array().expect("ranks");
    assert_eq!(list.len(), ranks, "{held}");
    for rank in list {
        let pid = i32::try_from(rank["pid"].as_i64().expect("a pid")).expect("a pid");
        assert_eq!(proc::why_not_held(pid), None, "{rank}");
    }
    assert_eq!(world.gantry(["release", held["app"].as_str().expect("an id")]).wait(SOON).code(), 0);
    let done = run.wait(2 * SOON);
    assert!(code.is_none_or(|code| done.code() == code), "{done:?}");
    let events = done.events();
    let text: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[track_caller]
fn check(world: &World, args: &[&str], ranks: usize, code: Option<i32>) -> Vec<String> {
    check_by(HYDRA, world, args, ranks, code)
}

fn in_a_world(body: impl FnOnce(&World) + Send + 'static) {
    within(LIMIT, || {
        let world = World::new();
        body(&world);
        world.finish();
    });
}

#[test]
fn an_mpi_program_under_hydra_is_held_and_its_ranks_find_each_other() {
    require!(tool("mpiexec.hydra"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.mpich")).display().to_string();
    in_a_world(move |world| {
        // Hydra takes it ill that the program ends without MPI_Finalize: its code says nothing.
        let said = check(world, &["-n", "4", &hello], 4, None);
        assert!(said.iter().any(|line| line.starts_with("rank 0 of 4 on ")), "{said:?}");
    });
}

#[test]
fn parts_and_plain_programs_under_hydra_are_held() {
    require!(tool("mpiexec.hydra"));
    in_a_world(|world| {
        let parts = ["-n", "1", "/bin/echo", "one", ":", "-n", "2", "/bin/echo", "two"];
        assert_eq!(check(world, &parts, 3, Some(0)), ["one", "two", "two"]);
        check(world, &["-n", "2", "/bin/true"], 2, Some(0));
        check(world, &["-n", "2", "/bin/sh", "-c", "exit 7"], 2, Some(7));
    });
}

#[test]
fn sixty_four_ranks_under_hydra_are_held_again_and_again() {
    require!(tool("mpiexec.hydra"));
    in_a_world(|world| {
        for _ in 0..2 {
            check(world, &["-n", "64", "/bin/true"], 64, Some(0));
        }
    });
}

#[test]
fn an_mpi_program_under_open_mpi_is_held_and_its_ranks_find_each_other() {
    require!(tool("mpirun.openmpi"));
    let hello = require!(programs::get_mpi("mpi_hello", "mpicc.openmpi")).display().to_string();
    in_a_world(move |world| {
        let said = check_by(OPEN_MPI, world, &["-n", "4", &hello], 4, None);
        assert!(said.iter().any(|line| line.starts_with("rank 3 of 4 on ")), "{said:?}");
    });
}

#[test]
fn parts_and_plain_programs_under_open_mpi_are_held() {
    require!(tool("mpirun.openmpi"));
    in_a_world(|world| {
        let parts = ["-n", "1", "/bin/echo", "one", ":", "-n", "2", "/bin/echo", "two"];
        assert_eq!(check_by(OPEN_MPI, world, &parts, 3, Some(0)), ["one", "two", "two"]);
        check_by(OPEN_MPI, world, &["-np", "2", "/bin/true"], 2, Some(0));
    });
}

#[test]
fn programs_in_files_are_held() {
    require!(tool("mpiexec.hydra"));
    require!(tool("mpirun.openmpi"));
    in_a_world(|world| {
        let file = |name: &str, text: &str| {
            let path = world.work_dir().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let hydra = file("hydra", "-n 1 /bin/echo one\n-n 2 /bin/echo two\n");
        assert_eq!(check(world, &["-configfile", &hydra], 3, Some(0)), ["one", "two", "two"]);
        let open_mpi = file("open_mpi", "-np 1 /bin/echo one\n-np 2 /bin/echo two\n");
        assert_eq!(check_by(OPEN_MPI, world, &["--app", &open_mpi], 3, Some(0)), ["one", "two", "two"]);
    });
}

#[test]
fn programs_without_a_loader_are_held() {
    require!(tool("mpiexec.hydra"));
    require!(tool("mpirun.openmpi"));
    let program = require!(programs::get_as("exit_with", Link::Static)).display().to_string();
    in_a_world(move |world| {
        check(world, &["-n", "3", &program, "5"], 3, Some(5));
        check_by(OPEN_MPI, world, &["-n", "3", &program, "5"], 3, Some(5));
    });
}

/// By hand a hundred times: `GANTRY_ROUNDS=100`.
#[test]
#[expect(clippy::disallowed_methods, reason = "who has more time says so in the environment")]
fn of_256_ranks_under_either_launcher_none_is_lost() {
    require!(tool("mpiexec.hydra"));
    require!(tool("mpirun.openmpi"));
    let rounds = std::env::var("GANTRY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let limit = LIMIT * rounds;
    within(limit, move || {
        for _ in 0..rounds {
            let world = World::new();
            check(&world, &["-n", "256", "/bin/true"], 256, Some(0));
            check_by(OPEN_MPI, &world, &["-n", "256", "/bin/true"], 256, Some(0));
            world.finish();
        }
    });
}

/// Starts the first of two ranks, and kills it as soon as its agent is there: as launchers do that hear of a failure on another node.
const GIVES_UP: &[u8] = br#"#!/bin/sh
shift 2
PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 "$@" &
is_agent() {
    tr '\0' ' ' <"$1/cmdline" | grep -q 'gantry-agent enter ' && tr '\0' '\n' <"$1/environ" | grep -qxF "GANTRY_TEST_TAG=$GANTRY_TEST_TAG"
}
while kill -0 $!; do
    for it in /proc/[0-9]*; do
        if is_agent "$it" 2>/dev/null; then
            kill -KILL $!
            wait
            exit 3
        fi
    done
done
"#;

#[test]
fn a_launcher_that_gives_up_before_all_ranks_have_come_leaves_no_agent_that_waits() {
    in_a_world(|world| {
        let launcher = world.executable("mpiexec.hydra", GIVES_UP).display().to_string();
        let launch = ["launch", "--hold", "--json", "--launcher", &launcher, "--", "-n", "2", "/bin/true"];
        let done = world.gantry(launch).wait(2 * SOON);
        let error = gantry_tests::slurm::error_of(&done).to_string();
        assert!(error.contains("rank 0") || error.contains("code 3"), "{error}");
    });
}
