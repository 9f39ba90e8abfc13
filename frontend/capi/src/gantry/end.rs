//! Section "the end".

use std::ffi::c_int;

use gantry_shared_capi::enter;

use super::gate::Gate;
use crate::process::process;

/// Ends everything.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_finalize() -> c_int {
    enter("gantry_finalize", 1, || {
        // A filter runs on one of the threads that this ends.
        Gate::refuse_inside()?;
        let process = process();
        let closed = process.close_all();
        process.end_threads();
        closed.map(|()| 0)
    })
}
