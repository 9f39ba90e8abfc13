//! Section "deadlines": how long calls of a thread may wait.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::Duration;

use gantry_shared_capi::{Fault, enter};

/// Where nothing is set: others may have much to do before.
const CALL: Duration = Duration::from_secs(10 * 60);

/// As good as for ever.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

thread_local! {
    static SET: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// How long a call of this thread may wait.
pub(crate) fn of_calls() -> Duration {
    set().unwrap_or(CALL)
}

/// The same for what may take any time: the start of a job may stand in a queue.
pub(crate) fn of_jobs() -> Duration {
    set().unwrap_or(LONGEST)
}

/// What this thread has set.
fn set() -> Option<Duration> {
    SET.try_with(Cell::get).ok().flatten()
}

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_setDeadline(milliseconds: i64) -> c_int {
    enter("gantry_be_setDeadline", 1, || {
        let deadline = match u64::try_from(milliseconds) {
            Ok(milliseconds) => Some(Duration::from_millis(milliseconds).min(LONGEST)),
            Err(_) if milliseconds == -1 => None,
            Err(_) => return Err(Fault::invalid(format!("{milliseconds} is no number of milliseconds"))),
        };
        SET.try_with(|set| set.set(deadline)).map_err(|_| Fault::invalid("this thread has ended"))?;
        Ok(0)
    })
}

/// What this thread has set.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getDeadline() -> i64 {
    set().map_or(-1, |deadline| i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX))
}
