//! Leaks of the test process itself. The tests share that process, so a lock lets them run one at a time.
#![expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]

use std::fs::File;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_tests::fds::Census;
use gantry_tests::{World, proc, programs};

const SOON: Duration = Duration::from_secs(10);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_child_without_a_wait_is_a_leak() {
    let _alone = alone();
    let mut world = World::new();
    world.set_grace(Duration::from_millis(100));
    let mut child = Command::new(programs::get("exit_with")).arg("0").spawn().expect("a child");
    let pid = i32::try_from(child.id()).expect("a pid");
    proc::eventually(SOON, "the child is a zombie", || proc::state(pid) == Some('Z'));
    let leaks = world.leaks();
    child.wait().expect("the child's status");
    assert!(leaks.zombies.iter().any(|line| line.starts_with(&format!("{pid} (state Z"))), "{leaks}");
    world.finish();
}

#[test]
fn descriptors_that_stay_open_are_listed() {
    let _alone = alone();
    let before = Census::take();
    let file = File::open("/proc/self/limits").expect("a file");
    let outcome = catch_unwind(|| before.assert_no_growth(Duration::from_millis(10)));
    let message = *outcome.expect_err("a failure").downcast::<String>().expect("a message");
    assert!(message.contains("1 descriptors more") && message.contains("/limits"), "{message}");
    drop(file);
    before.assert_no_growth(SOON);
}
