//! Timeouts of a thread's calls, as set by that thread.

use std::cell::Cell;
use std::thread::LocalKey;
use std::time::Duration;

use gantry_shared::deadline::{LONGEST, bounded};

use crate::Fault;

/// The default: files may be large, links slow, and other processes busy.
const CALL: Duration = Duration::from_secs(10 * 60);

thread_local! {
    static SET: Cell<Option<Duration>> = const { Cell::new(None) };
    static SET_FOR_QUEUES: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The timeout that this thread has set.
#[must_use]
pub fn of_thread() -> Option<Duration> {
    SET.try_with(Cell::get).ok().flatten()
}

/// How long a call of this thread may wait.
#[must_use]
pub fn of_calls() -> Duration {
    of_thread().unwrap_or(CALL)
}

/// The same for calls that may take any time: launches and job starts may wait in a queue.
#[must_use]
pub fn of_launches() -> Duration {
    of_thread().unwrap_or(LONGEST)
}

/// How long this thread's launches may wait in a queue. None: no limit.
#[must_use]
pub fn of_queues() -> Option<Duration> {
    SET_FOR_QUEUES.try_with(Cell::get).ok().flatten()
}

/// Sets the timeout of this thread's calls; -1: the default.
///
/// # Errors
/// [`Fault`] for another negative number, or when the thread is about to end.
pub fn set(milliseconds: i64) -> Result<(), Fault> {
    set_in(&SET, milliseconds)
}

/// Sets how long this thread's launches may wait in a queue; -1: the default.
///
/// # Errors
/// As [`set`].
pub fn set_for_queues(milliseconds: i64) -> Result<(), Fault> {
    set_in(&SET_FOR_QUEUES, milliseconds)
}

fn set_in(place: &'static LocalKey<Cell<Option<Duration>>>, milliseconds: i64) -> Result<(), Fault> {
    let deadline = match u64::try_from(milliseconds) {
        Ok(milliseconds) => Some(bounded(Duration::from_millis(milliseconds))),
        Err(_) if milliseconds == -1 => None,
        Err(_) => return Err(Fault::invalid(format!("{milliseconds} is not a number of milliseconds"))),
    };
    place.try_with(|set| set.set(deadline)).map_err(|_| Fault::invalid("this thread has ended"))
}

/// This thread's setting in milliseconds; -1: none.
#[must_use]
pub fn in_milliseconds() -> i64 {
    to_milliseconds(of_thread())
}

/// This thread's setting for queues in milliseconds; -1: none.
#[must_use]
pub fn of_queues_in_milliseconds() -> i64 {
    to_milliseconds(of_queues())
}

fn to_milliseconds(set: Option<Duration>) -> i64 {
    set.map_or(-1, |deadline| i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_timeout_is_its_own() {
        assert_eq!((in_milliseconds(), of_calls(), of_launches()), (-1, CALL, LONGEST));
        set(5).unwrap();
        assert_eq!((in_milliseconds(), of_calls(), of_launches()), (5, Duration::from_millis(5), of_calls()));
        assert_eq!(std::thread::spawn(in_milliseconds).join().unwrap(), -1);
        set(i64::MAX).unwrap();
        assert_eq!(of_calls(), LONGEST);
        assert!(set(-2).is_err());
        assert_eq!(of_calls(), LONGEST);
        set(-1).unwrap();
        assert_eq!(of_thread(), None);
        set_for_queues(7).unwrap();
        assert_eq!((of_queues_in_milliseconds(), in_milliseconds()), (7, -1));
        assert!(set_for_queues(-2).is_err());
        set_for_queues(-1).unwrap();
        assert_eq!((of_queues(), of_queues_in_milliseconds()), (None, -1));
    }
}
