//! What tests need is built or installed once, by one process at a time. That time counts for no test.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// One thread of this process prepares something, and no other process prepares the same. Ends when dropped.
pub(crate) struct Preparing {
    _lock: Flock<File>,
    _pause: Pause,
}

/// Begins to prepare what `path` is the lock of. Waits until no other process does.
pub(crate) fn lock(path: &Path) -> Preparing {
    let pause = Pause::begin();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.unwrap_or_else(|error| panic!("lock {}: {error}", path.display()));
    let lock = Flock::lock(file, FlockArg::LockExclusive)
        .unwrap_or_else(|(_, error)| panic!("lock {}: {error}", path.display()));
    Preparing { _lock: lock, _pause: pause }
}

/// For how long this process has been preparing until now.
pub(crate) fn elapsed() -> Duration {
    let clock = clock();
    clock.before + clock.since.map_or(Duration::ZERO, |since| since.elapsed())
}

#[derive(Debug)]
struct Clock {
    /// The time of what has ended.
    before: Duration,
    /// When the first of the current ones began.
    since: Option<Instant>,
    /// How many threads are preparing.
    threads: usize,
}

static CLOCK: Mutex<Clock> = Mutex::new(Clock { before: Duration::ZERO, since: None, threads: 0 });

fn clock() -> MutexGuard<'static, Clock> {
    CLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Pause;

impl Pause {
    fn begin() -> Self {
        let mut clock = clock();
        clock.threads += 1;
        clock.since.get_or_insert_with(Instant::now);
        Self
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut clock = clock();
        clock.threads -= 1;
        if clock.threads == 0
            && let Some(since) = clock.since.take()
        {
            clock.before += since.elapsed();
        }
    }
}
