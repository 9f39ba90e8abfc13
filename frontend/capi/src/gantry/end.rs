//! Section "the end".

use std::ffi::c_int;

use gantry_shared_capi::enter;

use crate::process::process;

/// Ends everything.
#[unsafe(no_mangle)]
pub extern "C" fn gantry_finalize() -> c_int {
    enter("gantry_finalize", 1, || {
        let process = process();
        let closed = process.close_all();
        process.end_threads();
        closed.map(|()| 0)
    })
}
