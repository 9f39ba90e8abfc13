//! Section "deadlines": how long calls of a thread may wait.

use std::ffi::c_int;

use gantry_shared_capi::{deadline, enter};

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_setDeadline(milliseconds: i64) -> c_int {
    enter("gantry_setDeadline", 1, || deadline::set(milliseconds).map(|()| 0))
}

/// The timeout that this thread has set.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getDeadline() -> i64 {
    deadline::in_milliseconds()
}

/// Sets the timeout of launches in a queue.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_setQueueDeadline(milliseconds: i64) -> c_int {
    enter("gantry_setQueueDeadline", 1, || deadline::set_for_queues(milliseconds).map(|()| 0))
}

/// The timeout that this thread has set for queues.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_getQueueDeadline() -> i64 {
    deadline::of_queues_in_milliseconds()
}
