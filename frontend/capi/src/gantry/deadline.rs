//! Section "deadlines": how long calls of a thread may wait.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::Duration;

use gantry_shared_capi::{Fault, enter};

/// A launch may stand in a queue: as good as for ever.
const LAUNCH: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Everything else: files may be large and links slow.
const CALL: Duration = Duration::from_secs(10 * 60);

thread_local! {
    static SET: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// What this thread has set.
pub(crate) fn set() -> Option<Duration> {
    SET.try_with(Cell::get).ok().flatten()
}

/// How long launches and attaching may wait.
pub(crate) fn of_launches() -> Duration {
    set().unwrap_or(LAUNCH)
}

/// How long everything else may wait.
pub(crate) fn of_calls() -> Duration {
    set().unwrap_or(CALL)
}

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_setDeadline(milliseconds: i64) -> c_int {
    enter("gantry_setDeadline", 1, || {
        let deadline = match u64::try_from(milliseconds) {
            Ok(milliseconds) => Some(Duration::from_millis(milliseconds).min(LAUNCH)),
            Err(_) if milliseconds == -1 => None,
            Err(_) => return Err(Fault::invalid(format!("{milliseconds} is no number of milliseconds"))),
        };
        SET.try_with(|set| set.set(deadline)).map_err(|_| Fault::invalid("this thread has ended"))?;
        Ok(0)
    })
}

/// What this thread has set.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getDeadline() -> i64 {
    set().map_or(-1, |deadline| i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX))
}
