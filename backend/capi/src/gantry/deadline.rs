//! Section "deadlines": how long calls of a thread may wait.

use std::ffi::c_int;

use gantry_shared_capi::{deadline, enter};

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_setDeadline(milliseconds: i64) -> c_int {
    enter("gantry_be_setDeadline", 1, || deadline::set(milliseconds).map(|()| 0))
}

/// The timeout that this thread has set.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_be_getDeadline() -> i64 {
    deadline::in_milliseconds()
}
