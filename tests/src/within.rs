//! The watchdog: a test that hangs fails, with a list of its processes, and the other tests continue.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{leak, preparing};

/// Tag and folder of each world that one watched test has made.
type Worlds = Arc<Mutex<Vec<(String, PathBuf)>>>;

thread_local! {
    static WATCHED: RefCell<Option<Worlds>> = const { RefCell::new(None) };
}

/// Registers a new world with the watchdog of the current test, if there is one.
pub(crate) fn enrol(tag: &str, folder: &Path) {
    WATCHED.with_borrow(|worlds| {
        if let Some(worlds) = worlds {
            let mut worlds = worlds.lock().unwrap_or_else(PoisonError::into_inner);
            worlds.push((tag.to_owned(), folder.to_path_buf()));
        }
    });
}

/// Runs the body of a test and fails it when it takes longer than `limit`. The time in which this process builds or
/// installs something for its tests does not count. At the timeout it kills all processes of the body's
/// worlds and removes their folders. The body runs on a separate thread with the test's name. A hung thread is left
/// behind and ends with the process.
///
/// # Panics
/// At the timeout, with the running processes; otherwise as `body` panics.
pub fn within<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> T {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let worlds = Worlds::default();
    let (done, ended) = channel::<()>();
    let watched = Arc::clone(&worlds);
    let spawned = thread::Builder::new().name(name.clone()).spawn(move || {
        WATCHED.set(Some(watched));
        // Dropped at the end, also when the body panics: that is the message.
        let _done = done;
        body()
    });
    let runner = spawned.expect("a thread for the test's body");
    if !ends_within(limit, &ended) {
        let worlds = worlds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running: Vec<String> = worlds.iter().flat_map(|(tag, _)| leak::describe_and_kill(tag)).collect();
        for (_, folder) in &worlds {
            // The hung thread never ends its world; a world that has ended has no folder any more.
            drop(std::fs::remove_dir_all(folder));
        }
        panic!("{name} took longer than {limit:?}; it had running (killed now):\n  {}", running.join("\n  "));
    }
    runner.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn ends_within(limit: Duration, ended: &Receiver<()>) -> bool {
    let (start, prepared) = (Instant::now(), preparing::elapsed());
    loop {
        let left = (limit + preparing::elapsed() - prepared).saturating_sub(start.elapsed());
        if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::{World, proc, programs};

    #[test]
    fn a_body_in_time_gives_its_value() {
        assert_eq!(within(Duration::from_secs(5), || 7), 7);
    }

    #[test]
    fn the_time_in_which_a_program_is_built_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        within(Duration::from_secs(1), move || {
            let _building = preparing::lock(&lock);
            thread::sleep(Duration::from_millis(1500));
        });
    }

    #[test]
    #[should_panic(expected = "the body's own words")]
    fn a_panic_of_the_body_is_the_tests() {
        within(Duration::from_secs(5), || panic!("the body's own words"));
    }

    #[test]
    fn a_hung_body_fails_and_its_processes_are_killed() {
        let (say, said) = channel();
        let outcome = catch_unwind(|| {
            within(Duration::from_millis(300), move || {
                let world = World::new();
                let mut run = world.start(&programs::get("loop_forever"), [""; 0]);
                say.send((run.pid(), world.path().to_path_buf())).unwrap();
                run.exited(Duration::from_secs(60));
                std::mem::forget(world);
                loop {
                    thread::park();
                }
            })
        });
        let message = *outcome.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("took longer") && message.contains("loop_forever"), "{message}");
        let (pid, folder) = said.recv().unwrap();
        proc::wait_gone(pid, Duration::from_secs(5));
        assert!(!folder.exists());
    }
}
