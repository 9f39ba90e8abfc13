//! `gantry why --watch` beside a program that first makes progress and then hangs.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::{Run, World, becomes_true, eventually, proc};

/// For each step: a program may make progress for some time.
const LONG: Duration = Duration::from_secs(120);

/// Whether a program has printed a line with this part.
pub fn says(run: &mut Run, part: &str) -> bool {
    run.stdout().iter().any(|line| line.contains(part))
}

/// Watches a program that prints "begun", and "hangs" when its progress ends. The hang must be reported with the words
/// `says_why`, and not before. Then kills the ranks.
///
/// # Panics
/// The watch says something else.
#[track_caller]
pub fn check_hang_after_progress(
    world: &World,
    mut run: Run,
    is_rank: impl Fn(&i32) -> bool,
    says_why: &str,
) {
    eventually(LONG, "it has begun", || says(&mut run, "begun"));
    let mut watch = world.gantry(["why", "--watch=1.5s", "--every", "0.2", &run.pid().to_string()]);
    eventually(LONG, "it hangs", || says(&mut run, "hangs"));
    assert!(!says(&mut watch, "nothing has moved"), "{:?} after {:?}", watch.stdout(), run.stdout());
    eventually(LONG, "the hang is told", || says(&mut watch, "nothing has moved"));
    assert!(becomes_true(LONG, || says(&mut watch, says_why)), "{:?}", watch.stdout());
    let ranks: Vec<i32> = world.processes().into_iter().filter(is_rank).collect();
    proc::send_those_left(ranks, Signal::SIGKILL);
    let done = watch.wait(LONG);
    let last = done.stdout.last().map(String::as_str);
    assert_eq!((done.code(), last), (0, Some("the job has ended")), "{done:?}");
    run.exited(LONG);
}
