//! Strangers at every port of a launch: thousands of connections that prove nothing, made by another user and by our own.
//!
//! Each test has a network namespace of its own, so that the crowd reaches no other program.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::time::{Duration, Instant};

use gantry_tests::{Run, World, record_skip, within};
use nix::sched::{CloneFlags, unshare};

const SOON: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(300);
/// Each user's crowd comes until so many connections stood, to so many launches at most: a launch may be over before it has been found.
const CONNECTIONS: usize = 2000;
const ROUNDS: usize = 20;
/// The user `nobody`, and the one that runs the tests.
const USERS: [&str; 2] = ["65534", "0"];

/// A world whose processes have a loopback of their own. None: this user may not have one.
fn alone() -> Option<World> {
    if !nix::unistd::geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        record_skip("only root has a network namespace and another user to attack from");
        return None;
    }
    let world = World::new();
    let mut up = world.command("ip");
    up.args(["link", "set", "lo", "up"]);
    assert_eq!(world.spawn(up).wait(SOON).code(), 0, "no loopback");
    Some(world)
}

fn crowd(world: &World, user: &str, first: usize, others: usize) -> Run {
    let mut command = world.command("sh");
    // Before others, so that it comes in time on a busy machine.
    let script = "ulimit -n $(ulimit -Hn); exec nice -n -10 \"$@\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_crowd"), user]);
    command.args([first.to_string(), others.to_string()]);
    let mut crowd = world.spawn(command);
    assert_eq!(crowd.next_line(SOON), "ready");
    crowd
}

/// How many connections it had.
fn disperse(mut crowd: Run) -> usize {
    crowd.close_stdin();
    let said = crowd.next_line(SOON);
    crowd.wait(SOON);
    said.split(' ').next().unwrap().parse().unwrap()
}

fn launch(world: &World) -> Duration {
    let start = Instant::now();
    let launched = world.gantry(["launch", "--", "-n", "256", "-N", "64", "/bin/true"]).wait(SOON);
    assert_eq!(launched.code(), 0, "{launched:?}");
    start.elapsed()
}

#[test]
fn a_launch_beside_two_thousand_strangers_succeeds() {
    within(LIMIT, || {
        let Some(world) = alone() else { return };
        for user in USERS {
            let (mut alone, mut beside, mut connections) = (Vec::new(), Vec::new(), 0);
            while connections < CONNECTIONS && alone.len() < ROUNDS {
                alone.push(launch(&world));
                let crowd = crowd(&world, user, 2000, 100);
                let time = launch(&world);
                let came = disperse(crowd);
                connections += came;
                beside.push((time, came));
            }
            alone.sort();
            println!(
                "user {user}: alone {:?} at the median; beside so many: {beside:?}",
                alone[alone.len() / 2]
            );
            assert!(connections >= CONNECTIONS, "the crowd did not come: {connections}");
        }
        world.finish();
    });
}
