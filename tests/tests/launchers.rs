//! Launchers that bring our agents on this machine, with real MPI libraries: every rank held, let go, and their launcher's code passed on.

use std::time::Duration;

use gantry_tests::{SOON, World, proc, programs, require, tool, within};

const LIMIT: Duration = Duration::from_secs(120);

/// Launches held by Hydra, judges that many ranks from outside, lets them go, and gives what they wrote, sorted; the code must be that,
/// if one is given.
#[track_caller]
fn check(world: &World, args: &[&str], ranks: usize, code: Option<i32>) -> Vec<String> {
    let launch = ["launch", "--hold", "--json", "--launcher", "mpiexec.hydra", "--"];
    let mut run = world.gantry(launch.iter().chain(args));
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
