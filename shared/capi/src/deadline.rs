//! How long calls of a thread may wait, as that thread has set it.

use std::cell::Cell;
use std::time::Duration;

use crate::Fault;

/// Where nothing is set: files may be large, links slow, and others may have much to do before.
const CALL: Duration = Duration::from_secs(10 * 60);

/// As good as for ever.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

thread_local! {
    static SET: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// What this thread has set.
#[must_use]
pub fn of_thread() -> Option<Duration> {
    SET.try_with(Cell::get).ok().flatten()
}

/// How long a call of this thread may wait.
#[must_use]
pub fn of_calls() -> Duration {
    of_thread().unwrap_or(CALL)
}

/// The same for what may take any time: launches and the starts of jobs may stand in a queue.
#[must_use]
pub fn of_launches() -> Duration {
    of_thread().unwrap_or(LONGEST)
}

/// Sets it for this thread; -1: nothing is set.
///
/// # Errors
/// [`Fault`] for another negative number, and where the thread is about to end.
pub fn set(milliseconds: i64) -> Result<(), Fault> {
    let deadline = match u64::try_from(milliseconds) {
        Ok(milliseconds) => Some(Duration::from_millis(milliseconds).min(LONGEST)),
        Err(_) if milliseconds == -1 => None,
        Err(_) => return Err(Fault::invalid(format!("{milliseconds} is not a number of milliseconds"))),
    };
    SET.try_with(|set| set.set(deadline)).map_err(|_| Fault::invalid("this thread has ended"))
}

/// What this thread has set, in milliseconds; -1: nothing.
#[must_use]
pub fn in_milliseconds() -> i64 {
    of_thread().map_or(-1, |deadline| i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_what_it_has_set_and_others_do_not() {
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
    }
}
