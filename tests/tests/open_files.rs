//! Launches with a low limit of open files, as most users have it.

use std::time::Duration;

use gantry_tests::fault::agents;
use gantry_tests::slurm::error_of;
use gantry_tests::{Finished, World, binaries, within};

const LIMIT: Duration = Duration::from_secs(120);

/// Runs gantry after `ulimit` with these options.
fn gantry(world: &World, limits: &str, args: &[&str]) -> Finished {
    let mut command = world.command("/bin/sh");
    let script = format!("ulimit {limits} && exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(&binaries().gantry).args(args);
    world.spawn(command).wait(LIMIT / 2)
}

#[test]
fn a_launch_on_more_nodes_than_the_soft_limit_allows_works_and_ranks_get_the_users_limit() {
    within(LIMIT, || {
        let world = World::new();
        let launch = ["launch", "--quiet", "--", "-N", "40", "-n", "40", "/bin/sh", "-c", "ulimit -Sn"];
        let done = gantry(&world, "-Sn 32", &launch);
        assert_eq!((done.code(), done.stdout.len()), (0, 40), "{done:?}");
        assert!(done.stdout.iter().all(|line| line == "32"), "{done:?}");
        world.finish();
    });
}

#[test]
fn a_launch_without_descriptors_names_the_limit_and_the_remedy() {
    within(LIMIT, || {
        let world = World::new();
        let launch = ["launch", "--json", "--timeout", "5", "--", "-N", "40", "-n", "40", "/bin/true"];
        let done = gantry(&world, "-n 32", &launch);
        assert_ne!(done.code(), 0, "{done:?}");
        let error = error_of(&done);
        let hint = error["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("32 open files at most"), "{error}");
        world.finish();
    });
}

/// If the table grew with the ranks, each growth would stop the agent for about 10 ms, because the agent has threads.
#[test]
fn an_agents_table_of_open_files_has_room_before_it_starts_ranks() {
    within(LIMIT, || {
        let world = World::new();
        let done =
            world.gantry(["launch", "--hold", "--background", "--", "-n", "1", "/bin/true"]).wait(LIMIT / 2);
        assert_eq!(done.code(), 0, "{done:?}");
        let agents = agents(&world);
        assert_eq!(agents.len(), 1);
        let status = std::fs::read_to_string(format!("/proc/{}/status", agents[0])).expect("an agent");
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("FDSize in proc(5)");
        let hard =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("a limit").1;
        // The kernel rounds the size of the table up.
        assert!(room.trim().parse::<u64>().expect("a number") >= hard.min(4096), "{status}");
        assert_eq!(world.gantry(["kill", "--yes", &done.stdout[0]]).wait(LIMIT / 2).code(), 0);
        world.finish();
    });
}
